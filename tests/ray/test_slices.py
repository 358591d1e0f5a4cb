"""Chunks are joined within time slices; the first and the last are not delayed."""

from __future__ import annotations

import asyncio

import pytest

from trinity.ray import slices
from trinity.runtime.generation import Chunk


def test_chunks_of_a_slice_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 10.0
    monkeypatch.setattr(slices, "monotonic", lambda: now)

    async def received() -> list[Chunk]:
        nonlocal now
        inbox = slices.SlicedInbox(lambda: 0.5)
        for number, seconds in enumerate((0, 0.2, 0.2, 0.2, 0.1, 0.1)):
            now += seconds
            inbox.put((0, Chunk(str(number), (number,))))
        inbox.put((0, Chunk("", finish_reason="length")))
        await asyncio.sleep(0)  # the loop takes what was put
        return [(await inbox.get())[1] for _ in range(3)]

    found = asyncio.run(received())
    assert [chunk.text for chunk in found] == ["0", "123", "45"]
    assert [chunk.token_ids for chunk in found] == [(0,), (1, 2, 3), (4, 5)]
    assert [chunk.finish_reason for chunk in found] == [None, None, "length"]


def test_an_exception_passes() -> None:
    async def received() -> None:
        inbox = slices.SlicedInbox(lambda: 0.5)
        inbox.put(ValueError("wrong"))
        await inbox.get()

    with pytest.raises(ValueError, match="wrong"):
        asyncio.run(received())
