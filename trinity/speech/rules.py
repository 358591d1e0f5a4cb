"""Which tokens may come next: the rules of Whisper's decoding.

Source: openai/whisper, decoding.py (SuppressBlank, SuppressTokens, ApplyTimestampRules), and
transformers, WhisperTimeStampLogitsProcessor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trinity.formats.speech_config import SpeechConfig
from trinity.speech.tokens import SpeechTokens


class DecodingRules:
    """The decoding rules, with or without timestamps."""

    def __init__(self, config: SpeechConfig, tokens: SpeechTokens, times: bool) -> None:
        self._always = np.array(config.suppressed, np.intp)
        self._at_first = np.array(config.suppressed_first, np.intp)
        self._latest = tokens.first_time + config.latest_first_time
        self._tokens, self._times = tokens, times

    def apply(self, logits: NDArray[np.float32], text: Sequence[int]) -> None:
        """Set the logits (vocabulary,) of tokens that may not follow the ids ``text`` to -inf."""
        nothing = -np.inf
        logits[self._always] = nothing
        if not text:
            logits[self._at_first] = nothing
        if not self._times:
            return
        first, end = self._tokens.first_time, self._tokens.end
        logits[self._tokens.without_times] = nothing
        if not text:
            logits[:first] = nothing
            logits[self._latest + 1 :] = nothing
            return
        last = text[-1] >= first
        before = len(text) < 2 or text[-2] >= first
        if last and before:
            logits[first:] = nothing  # a pair of timestamps is complete: text follows
        elif last:
            logits[:end] = nothing  # the beginning of the next piece, or the end
        times = [token for token in text if token >= first]
        if times:
            # Timestamps never decrease, and a piece is not empty.
            logits[first : times[-1] + (0 if last and not before else 1)] = nothing
        self._prefer_times(logits, first)

    @staticmethod
    def _prefer_times(logits: NDArray[np.float32], first: int) -> None:
        """Suppress text if all timestamps together are more probable than the best text token."""
        times = logits[first:].astype(np.float64)
        largest = times.max()
        if np.isfinite(largest):
            together = largest + np.log(np.exp(times - largest).sum())
            if together > logits[:first].max():
                logits[:first] = -np.inf


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """The log-probabilities of logits (..., vocabulary)."""
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    logs: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return logs
