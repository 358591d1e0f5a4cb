from __future__ import annotations

import pytest

from trinity.speech.windows import pieces_of

T = 100  # the id of 0.00 s; a time is two frames


@pytest.mark.parametrize(
    ("ids", "pieces", "done"),
    [
        # A pair ends a piece and begins the next; what follows the last one comes again.
        ([T, 5, T + 50, T + 50, 6, T + 90, T + 90], [(0, 100), (100, 180)], 180),
        ([T, 5, T + 50, T + 60, 6], [(0, 100)], 100),
        # One time at the end: the rest of the window has nothing.
        ([T, 5, T + 50, T + 60, 6, T + 90], [(0, 100), (120, 180)], 3000),
        ([T + 3, 5, T + 50], [(6, 100)], 3000),
        ([T + 3, 5, 6], [(6, 3000)], 3000),
        # No pair and no end: the whole window.
        ([T, 5, 6], [(0, 3000)], 3000),
        ([5, 6], [(0, 3000)], 3000),
        ([], [(0, 3000)], 3000),
    ],
)
def test_pieces(ids: list[int], pieces: list[tuple[int, int]], done: int) -> None:
    found, end = pieces_of(ids, T, 3000)
    assert [(first, last) for first, last, _ in found] == pieces
    assert end == done
    assert [one for *_, part in found for one in part] == ids[: sum(len(p) for *_, p in found)]
