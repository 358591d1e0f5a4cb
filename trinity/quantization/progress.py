"""Lines of progress where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable


def each_tenth(say: Callable[[str], None], title: str) -> Callable[[int, int, str], None]:
    """Return a function of (done, total, name) that says a line for each tenth of the total."""
    said = -1

    def progress(done: int, total: int, name: str) -> None:
        nonlocal said
        tenth = 10 * done // max(total, 1)
        if tenth > said:
            said = tenth
            say(f"{title}: {10 * tenth}%")

    return progress
