"""Perplexity: how well a model predicts a text, measured as llama.cpp's perplexity tool does.

The text's tokens are divided into windows. Each window is computed alone; its first token is
replaced by BOS if the model's file asks for one. Only the second half of a window is scored, so
that every scored token has at least half a window before it. Source: llama.cpp
tools/perplexity/perplexity.cpp, perplexity().
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError
from trinity.runtime.sampling.sampler import check_finite

DEFAULT_WINDOW = 512
SMALLEST_WINDOW = 4


@dataclass(frozen=True, slots=True)
class Perplexity:
    """How well a text is predicted."""

    perplexity: float
    """exp of the mean negative log-likelihood of the scored tokens."""
    error: float
    """The standard error of that mean, times the perplexity."""
    bits_per_byte: float
    """-log2 of the probability of the scored tokens, divided by the bytes of their text."""
    scored_tokens: int
    """Tokens that were predicted: the second half of each window."""
    windows: int
    """Windows computed so far."""
    total_windows: int
    window: int
    """Tokens per window."""


def cut_windows(tokens: Sequence[int], window: int, bos: int | None) -> NDArray[np.int32]:
    """Tokens (windows, ``window``); tokens after the last whole window are dropped.

    ``bos`` replaces each window's first token; None keeps it. Raises InputError if the text is
    shorter than two windows, llama.cpp's limit for an estimate.
    """
    if len(tokens) < 2 * window:
        raise InputError(
            f"the text is too short: windows of {window} need at least {2 * window} tokens, and it "
            f"has {len(tokens)}; give a longer text, or a smaller window (--ctx)"
        )
    count = len(tokens) // window
    windows = np.array(tokens[: count * window], np.int32).reshape(count, window)
    if bos is not None:
        windows[:, 0] = bos
    return windows


def scored_part(window: NDArray[np.int32]) -> NDArray[np.int32]:
    """The tokens of a window that are scored: those after its middle one."""
    return window[len(window) // 2 + 1 :]


def negative_log_likelihoods(
    logits: NDArray[np.float32], targets: NDArray[np.int32]
) -> NDArray[np.float64]:
    """log(sum(exp(logits))) - logit of the target, for each row; in float64.

    Shapes: logits (n, vocab) and targets (n,) to (n,).
    """
    result = np.empty(len(targets))
    for row, target in enumerate(targets):
        check_finite(float(logits[row].max()))
        values = logits[row].astype(np.float64)
        highest = values.max()
        result[row] = highest + math.log(np.exp(values - highest).sum()) - values[target]
    return result


def estimate(
    nlls: NDArray[np.float64], num_bytes: int, *, windows: int, total_windows: int, window: int
) -> Perplexity:
    """The estimate from negative log-likelihoods of tokens whose text has ``num_bytes`` bytes."""
    mean = float(nlls.mean())
    variance = float(np.mean(nlls**2)) - mean**2
    error = math.sqrt(max(variance, 0.0) / (len(nlls) - 1)) if len(nlls) > 1 else 0.0
    perplexity = math.exp(mean) if mean < 700 else math.inf
    return Perplexity(
        perplexity,
        error * perplexity,
        float(nlls.sum()) / math.log(2) / max(num_bytes, 1),
        len(nlls),
        windows,
        total_windows,
        window,
    )
