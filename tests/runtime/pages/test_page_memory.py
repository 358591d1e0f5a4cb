"""Memory for parts of pages: its limit, its kinds, and what is returned to the system."""

from __future__ import annotations

import sys

import pytest

from trinity.errors import TrinityError
from trinity.runtime.pages import page_memory
from trinity.runtime.pages.page import Kind, Part
from trinity.runtime.pages.page_memory import PageMemory

FULL: Kind = ("F16", False)
WINDOWED: Kind = ("F16", True)
SIZES = {FULL: 1 << 16, WINDOWED: 3 << 16}


def taken(memory: PageMemory, kind: Kind) -> Part:
    part = memory.take(kind)
    assert part is not None
    assert part.data.nbytes == SIZES[kind]
    assert part.address == part.data.ctypes.data
    return part


def test_the_limit_is_of_all_kinds_together() -> None:
    memory = PageMemory(SIZES, 7 << 16)
    full, windowed = [taken(memory, FULL)], [taken(memory, WINDOWED), taken(memory, WINDOWED)]
    assert memory.take(FULL) is None
    assert memory.take(WINDOWED) is None
    assert memory.nbytes == 7 << 16
    memory.give_back(windowed.pop())
    assert memory.spare_bytes == 3 << 16
    full += [taken(memory, FULL) for _ in range(3)]  # three for one
    assert memory.nbytes == 7 << 16
    assert memory.take(FULL) is None
    assert len({part.address for part in full + windowed}) == 5


def test_what_is_given_back_serves_again() -> None:
    memory = PageMemory(SIZES, 10 << 16)
    part = taken(memory, FULL)
    part.data[:] = 7
    memory.give_back(part)
    assert taken(memory, FULL) is part
    assert memory.nbytes == 1 << 16


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's madvise")
def test_the_system_has_back_what_becomes_another_kind() -> None:
    """Other parts of its mapping stay in use."""
    memory = PageMemory(SIZES, 6 << 16)
    parts = [taken(memory, FULL) for _ in range(6)]
    for part in parts:
        part.data[:] = 7
    for part in parts[1:4]:
        memory.give_back(part)
    windowed = taken(memory, WINDOWED)
    assert memory.nbytes == 6 << 16
    assert not any(part.data.any() for part in parts[1:4])
    assert all((part.data == 7).all() for part in (parts[0], *parts[4:]))
    memory.give_back(windowed)
    again = taken(memory, FULL)  # the same addresses: mappings do not become more
    assert again.address in {part.address for part in parts[1:4]}


def test_what_the_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_memory, "SLAB_BYTES", 0)
    memory = PageMemory(SIZES, 10 << 16)
    windowed = taken(memory, WINDOWED)

    def refused(nbytes: int, what: str) -> None:
        raise TrinityError(f"no {nbytes} bytes for {what}")

    mapped = page_memory.mapped
    monkeypatch.setattr(page_memory, "mapped", refused)
    with pytest.raises(TrinityError, match="keys and values in F16"):
        memory.take(FULL)
    memory.give_back(windowed)
    with pytest.raises(TrinityError):
        memory.take(FULL)  # what was spare is given up before
    assert memory.nbytes == 0
    monkeypatch.setattr(page_memory, "mapped", mapped)
    assert memory.take(FULL) is not None


def test_new_memory_is_prepared() -> None:
    seen: list[tuple[int, int]] = []
    memory = PageMemory(SIZES, 100 << 16, lambda address, nbytes: seen.append((address, nbytes)))
    part = taken(memory, FULL)
    ((address, nbytes),) = seen
    assert nbytes == 100 << 16  # one mapping for many parts
    assert address <= part.address < address + nbytes
