"""Word times: when each token of a window's text was spoken.

Source: openai/whisper, timing.py, find_alignment. Some heads of the decoder's cross-attention
attend to the frames of the token that comes next. Their probabilities, normalized over the tokens
for each frame and smoothed over time, score a monotonic path through tokens and frames (dynamic
time warping). A token begins where the path reaches it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError
from trinity.formats.speech_config import SpeechConfig
from trinity.speech.decoder import SpeechDecoder
from trinity.speech.encoder import SpeechEncoder
from trinity.speech.tokens import SECONDS, SpeechTokens
from trinity.speech.weights import SpeechWeights
from trinity_kernels.team import Team

SMOOTHED = 7  # width of the median filter, in frames of 0.02 s
_BOTH, _TOKEN, _FRAME = 0, 1, 2  # steps of a path: what each advances


class Alignment:
    """Finds times in the window that the encoder has computed last."""

    def __init__(
        self,
        config: SpeechConfig,
        encoder: SpeechEncoder,
        decoder: SpeechDecoder,
        weights: SpeechWeights,
        tokens: SpeechTokens,
        team: Team,
    ) -> None:
        self._config, self._encoder, self._decoder = config, encoder, decoder
        self._weights, self._tokens, self._team = weights, tokens, team
        self._keys: dict[tuple[int, int], NDArray[np.float32]] = {}

    def times(self, prompt: Sequence[int], ids: Sequence[int], frames: int) -> list[float]:
        """The seconds from the window's beginning at which each of ``ids`` begins, then their end.

        ``prompt``: the tokens before them, without times; ``frames``: the number of mel frames with
        sound.
        """
        begin = list(prompt)
        if begin[-1] != self._tokens.without_times:
            begin.append(self._tokens.without_times)
        text = [*begin, *ids, self._tokens.end]
        weights = self._looks(text, max(1, frames // 2))
        # The row before a token predicts it, so that row has the token's attention.
        matrix = smoothed(normalized(weights)).mean(0)[len(begin) - 1 : -1]
        return [round(float(frame) * SECONDS, 2) for frame in jumps(matrix)]

    def _looks(self, text: Sequence[int], count: int) -> NDArray[np.float32]:
        """Attention probabilities (heads, tokens, frames) over the first ``count`` encoder states.

        Raises: FormatError if the weights give values that are not numbers.
        """
        queries = self._decoder.queries(self._team, text)
        states, dim = self._encoder.states[:count], self._config.width // self._config.decoder.heads
        probabilities = []
        for layer, head in self._config.alignment_heads:
            with np.errstate(over="ignore", invalid="ignore"):
                keys = states @ self._key(layer, head, dim).T  # key projections have no bias
                scores = queries[layer][:, head * dim : (head + 1) * dim] @ keys.T
                scores *= np.float32(dim**-0.5)
                scores = np.exp(scores - scores.max(-1, keepdims=True))
                probabilities.append(scores / scores.sum(-1, keepdims=True))
        looks = np.stack(probabilities)
        if not np.isfinite(looks).all():
            raise FormatError(
                f"{self._config.source}: cross-attention gives NaN, so words have no "
                "times: the weights are damaged; convert the model again"
            )
        return looks

    def _key(self, layer: int, head: int, dim: int) -> NDArray[np.float32]:
        if (layer, head) not in self._keys:
            d, name = self._config.width, f"dec.blk.{layer}.cross_attn_k.weight"
            first = head * dim
            self._keys[layer, head] = self._weights.part(name, d, d, first, first + dim)
        return self._keys[layer, head]


def normalized(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Weights (heads, tokens, frames) with mean 0 and deviation 1 over the tokens of each frame."""
    mean, deviation = weights.mean(-2, keepdims=True), weights.std(-2, keepdims=True)
    scores: NDArray[np.float32] = (weights - mean) / np.maximum(deviation, np.float32(1e-30))
    return scores


def smoothed(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """The median of the SMOOTHED frames around each frame, mirrored at the ends."""
    half = SMOOTHED // 2
    if weights.shape[-1] <= half:
        return weights
    wide = np.pad(weights, ((0, 0), (0, 0), (half, half)), "reflect")
    views = np.lib.stride_tricks.sliding_window_view(wide, SMOOTHED, -1)
    medians: NDArray[np.float32] = np.partition(views, half, -1)[..., half]
    return medians


def jumps(matrix: NDArray[np.float32]) -> NDArray[np.intp]:
    """The frame where each row begins on the path of the largest sum through (rows, frames)."""
    trace = _trace(-matrix)
    row, frame = matrix.shape[0] - 1, matrix.shape[1] - 1
    begins = np.zeros(matrix.shape[0], np.intp)
    while row > 0 and frame > 0:
        step = trace[row, frame]
        if step != _FRAME:
            begins[row] = frame
            row -= 1
        if step != _TOKEN:
            frame -= 1
    begins[1 : row + 1] = 0
    return begins


def _trace(costs: NDArray[np.float32]) -> NDArray[np.int8]:
    """The best step to each place of (rows, frames), computed one diagonal at a time."""
    rows, frames = costs.shape
    least = np.full((rows + 1, frames + 1), np.inf, np.float32)
    least[0, 0] = 0
    trace = np.zeros((rows, frames), np.int8)
    for diagonal in range(rows + frames - 1):
        i = np.arange(max(0, diagonal - frames + 1), min(rows, diagonal + 1))
        j = diagonal - i
        both, token, frame = least[i, j], least[i, j + 1], least[i + 1, j]
        step = np.where(
            (both < token) & (both < frame),
            _BOTH,
            np.where((token < both) & (token < frame), _TOKEN, _FRAME),
        )
        before = np.choose(step, (both, token, frame))
        least[i + 1, j + 1] = costs[i, j] + before
        trace[i, j] = step
    return trace
