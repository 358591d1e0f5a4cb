"""Selects the cases that `make test` and .ci/run run; `make test-all` runs every case.

`make test` runs ``MOST`` cases of a test, or n of a test marked ``few(n)``, spread over cases that
have each value of each parameter. They have the best level of this machine, and types whose kernels
are compiled before the tests. What is marked ``full`` is left to .ci/run and `make test-all`.

.ci/run runs cases until each value has occurred on any level, in tests/kernels each pair of values.
The others are marked ``crossed`` and left to `make test-all`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from trinity.formats.gguf_types import is_type_of_gguf
from trinity_kernels import quants
from trinity_kernels.isa import available_levels

FULL, CROSSED = pytest.mark.full, pytest.mark.crossed
# Levels and types have code of their own in the kernels: .ci/run crosses each two parameters there.
CROSSED_FOLDER = Path(__file__).resolve().parent / "kernels"
MOST = 2  # cases of a test that `make test` runs
LEFT_LEVELS = available_levels()[1:]  # levels that `make test` leaves out
# For a fixture: the levels whose results a test compares.
COMPARED = [pytest.param(available_levels(), marks=FULL) if LEFT_LEVELS else available_levels()]
Value = tuple[tuple[str, ...], tuple[int, ...]]

# A type of each layout, reader and form of activations.
KINDS = ("F32", "I2_S", "Q4_0", "Q8_0", "Q4_K", "IQ2_XXS", "AFFINE4_BF16")
# Types whose kernels are compiled before `make test`: also those of embeddings, routers, encoders
# and ternary models.
COMPILED = frozenset({*KINDS, "F16", "BF16", "TQ2_0"})
# Types that products support and GGUF files can contain.
IN_FILES = tuple(name for name in quants.READERS if is_type_of_gguf(name))


def some(
    values: Iterable[Any], kept: Collection[Any], of_ci: Collection[Any] | None = None
) -> list[Any]:
    """Return all values for parametrize; `make test` runs only those in ``kept``.

    With ``of_ci``, .ci/run runs only those of the others. A tuple is a row of values for several
    names.
    """
    found: list[Any] = []
    for value in values:
        marks = [] if value in kept else [FULL]
        if marks and of_ci is not None and value not in of_ci:
            marks.append(CROSSED)
        row = value if isinstance(value, tuple) else (value,)
        found.append(pytest.param(*row, marks=marks) if marks else value)
    return found


def parts(count: int) -> list[Any]:
    """Return numbers of parts of random cases: `make test` runs the first, .ci/run two."""
    return some(range(count), [0], [1])


def types(names: Iterable[str]) -> list[Any]:
    """Return quantization types for parametrize; `make test` runs those of KINDS."""
    return some(names, KINDS)


def select_cases(items: Iterable[pytest.Item]) -> None:
    """Mark cases that `make test` omits as ``full``, and what .ci/run omits as ``crossed``."""
    tests: dict[str, list[Any]] = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        short = leave_few(covering(of_compiled_types(of_the_best_level(cases)), values_of))
        parts = pairs_of if CROSSED_FOLDER in cases[0].path.parents else values_of
        rest = [item for item in cases if item.get_closest_marker("crossed") is None]
        whole = covering(rest, parts, [item for item in short if item in rest])
        for item in cases:
            if item not in short:
                item.add_marker(FULL)
            if item not in whole:
                item.add_marker(CROSSED)


def covering(
    cases: Sequence[pytest.Item],
    parts: Callable[[pytest.Item], Iterable[Any]],
    chosen: Collection[pytest.Item] = (),
) -> list[pytest.Item]:
    """Return cases that have each part of any case, with ``chosen``, in their order.

    Each part takes the case whose parts were chosen least: types by levels give a diagonal that
    starts again at its end.
    """
    parts_of = {item: tuple(parts(item)) for item in cases}
    having: dict[Any, list[pytest.Item]] = defaultdict(list)
    for item in cases:
        for part in parts_of[item]:
            having[part].append(item)
    times = Counter(part for item in chosen for part in parts_of[item])
    found = set(chosen)
    for part, items in having.items():
        if not times[part]:
            item = min(items, key=lambda item: sum(times[part] for part in parts_of[item]))
            found.add(item)
            times.update(parts_of[item])
    return [item for item in cases if item in found]


def of_the_best_level(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Return the cases not marked ``full``, of several levels those of the best one."""
    cases = [item for item in cases if item.get_closest_marker("full") is None]
    for first in range(len(LEFT_LEVELS)):
        left = {*LEFT_LEVELS[first:]}
        if kept := [item for item in cases if not left.intersection(texts_of(item))]:
            return kept
    return cases


def of_compiled_types(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Return the cases without a type whose kernels are not COMPILED, if others remain."""
    left = quants.READERS.keys() - COMPILED
    return [item for item in cases if not left.intersection(texts_of(item))] or cases


def texts_of(item: Any) -> Iterator[str]:
    """Return the values of a case that are strings, such as names of levels and types."""
    return (value for value in item.callspec.params.values() if isinstance(value, str))


def leave_few(cases: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return ``MOST`` of the cases, spread over them; a mark ``few(n)`` sets another number."""
    few = cases[0].get_closest_marker("few") if cases else None
    number = min(MOST if few is None else few.args[0], len(cases))
    return [cases[i * len(cases) // number] for i in range(number)]


def pairs_of(item: pytest.Item) -> Iterable[tuple[Value, ...]]:
    """Return each pair of values of a case, or its only value."""
    values = tuple(values_of(item))
    return combinations(values, 2) if len(values) > 1 else (values,)


def values_of(item: Any) -> Iterator[Value]:
    """Return the values of a case by name; names that are parametrized together are one."""
    params = item.callspec.params
    groups = [mark.args[0] for mark in item.iter_markers("parametrize")]
    groups = [g.replace(" ", "").split(",") if isinstance(g, str) else g for g in groups]
    fixtures = [name for name in params if not any(name in group for group in groups)]
    for names in (*groups, *([name] for name in fixtures)):
        # Cases share the objects that the test lists.
        yield tuple(names), tuple(id(params[name]) for name in names if name in params)
