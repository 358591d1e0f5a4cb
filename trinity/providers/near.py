"""Find names similar to one that does not exist."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

MOST = 3
_MOST_LISTED = 2000


def near(name: str, names: Iterable[str]) -> list[str]:
    """Return those of ``names`` that are most similar to ``name``, ignoring case."""
    from difflib import get_close_matches

    by_folded = {known.casefold(): known for known in names}
    return [
        by_folded[folded] for folded in get_close_matches(name.casefold(), by_folded, MOST, 0.6)
    ]


def near_files(path: str, endings: tuple[str, ...]) -> list[str]:
    """Return paths in the folder of ``path`` that have one of the endings and a similar name."""
    folder, name = os.path.split(path)
    names: list[str] = []
    with suppress(OSError, ValueError), os.scandir(folder or ".") as entries:
        for entry in entries:
            if entry.name.endswith(endings):
                names.append(entry.name)
            if len(names) == _MOST_LISTED:
                break
    return [os.path.join(folder, match) for match in near(name, names)]
