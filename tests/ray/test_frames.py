"""Chunks that pass through a frame are the same, in whatever pieces its bytes arrive."""

from __future__ import annotations

import math

import pytest

from trinity.ray.frames import LARGEST, Frames, frame
from trinity.runtime.generation import Chunk, Timings
from trinity.runtime.sampling.logprobs import TokenLogprob

TOP = (TokenLogprob(3, -0.1, "a"), TokenLogprob(4, -math.inf, "\ufffd"))
CHUNKS = [
    (0, Chunk("é\ud800\n", (1, 2))),
    (7, Chunk("", (), None, None, Timings(5, 2, 0.1), None, 3)),
    (7, Chunk("b", (9,), (TokenLogprob(9, -1 / 3, "b", TOP),))),
    (1, Chunk("end", (5,), None, "stop", Timings(3, cpu_seconds=0.25), "\nUser:")),
]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_chunks_are_the_same(size: int) -> None:
    sent = frame(CHUNKS[:1]) + frame(CHUNKS[1:]) + frame([])
    frames = Frames()
    pieces = [sent[start : start + size] for start in range(0, len(sent), size)]
    assert [chunk for piece in pieces for chunk in frames.read(piece)] == CHUNKS


def test_a_frame_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="frame"):
        Frames().read((LARGEST + 1).to_bytes(4, "big"))
