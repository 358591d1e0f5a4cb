"""How many threads compute."""

from __future__ import annotations

import pytest

from trinity.runtime import thread_count
from trinity.runtime.thread_count import usable_threads


@pytest.mark.parametrize(
    ("wanted", "used"), [(None, 2), (1, 1), (2, 2), (3, 3), (8, 8), (9, 2), (1000, 2)]
)
def test_threads_of_two_cores(
    monkeypatch: pytest.MonkeyPatch, wanted: int | None, used: int
) -> None:
    monkeypatch.setattr(thread_count, "default_threads", lambda: 2)
    lines: list[str] = []
    assert usable_threads(wanted, lines.append) == used
    assert usable_threads(wanted, None) == used
    assert [f"using {used};" in line for line in lines] == [True] * ((wanted or 0) > 2)
