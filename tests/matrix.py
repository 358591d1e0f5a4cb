"""Selects the cases that `make test` runs; `make test-all` runs every case.

Where parameters are crossed (types by levels by shapes), `make test` runs cases until each value of
each parameter has occurred. Of the levels of this machine it takes the best one and ``portable``.
Of the cases it runs ``MOST`` at most, or n of a test marked ``few(n)``, spread over them all. What
is marked ``full`` is left to `make test-all`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pytest

from trinity.formats.gguf_types import is_type_of_gguf
from trinity_kernels import quants
from trinity_kernels.isa import available_levels

FULL = pytest.mark.full
MOST = 5  # cases of a test that `make test` runs
BETWEEN = frozenset(available_levels()[1:-1])  # levels that `make test` leaves out
Value = tuple[tuple[str, ...], tuple[int, ...]]

# The first type that products support in each file of trinity_kernels/quants.
KINDS = frozenset(
    next(iter(module.READERS)) for module in vars(quants).values() if hasattr(module, "READERS")
)
# Types that products support and GGUF files can contain.
IN_FILES = tuple(name for name in quants.READERS if is_type_of_gguf(name))
# A type of each layout and reader, for tests with many shapes.
PACKED = ("F32", "I2_S", "Q4_0", "Q8_0", "Q4_K", "IQ2_XXS")


def some(values: Iterable[Any], kept: Collection[Any]) -> list[Any]:
    """Return all values for parametrize; `make test` runs only those in ``kept``.

    A tuple is a row of values for several names.
    """
    return [value if value in kept else _left(value) for value in values]


def _left(value: Any) -> Any:
    return pytest.param(*value if isinstance(value, tuple) else (value,), marks=FULL)


def types(names: Iterable[str]) -> list[Any]:
    """Return quantization types for parametrize; `make test` runs one type of each file."""
    return some(names, KINDS)


def each_value_once(items: Sequence[pytest.Item]) -> None:
    """Mark cases as ``full`` that have no new value of any parameter of their test."""
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and item.get_closest_marker("full") is None:
            tests[item.nodeid.partition("[")[0]].append(item)
    for every in tests.values():
        cases = [(item, frozenset(values_of(item))) for item in without_levels_between(every)]
        # First the cases whose values are all new: types by levels give a diagonal.
        seen: set[Value] = set()
        left, kept = [], []
        for item, values in cases:
            if seen.isdisjoint(values):
                seen |= values
                kept.append(item)
            else:
                left.append((item, values))
        for item, values in left:
            if values <= seen:
                item.add_marker(FULL)
            else:
                kept.append(item)
            seen |= values
        leave_few(kept)


def without_levels_between(items: list[pytest.Item]) -> list[pytest.Item]:
    """Mark the cases of the levels in BETWEEN as ``full``, unless the test has no others."""
    left = [item for item in items if not BETWEEN.isdisjoint(texts_of(item))]
    if len(left) == len(items):
        return items
    for item in left:
        item.add_marker(FULL)
    return [item for item in items if item.get_closest_marker("full") is None]


def texts_of(item: Any) -> Iterator[str]:
    """Return the values of a case that are texts; names of levels are among them."""
    return (value for value in item.callspec.params.values() if isinstance(value, str))


def leave_few(items: Sequence[pytest.Item]) -> None:
    """Mark all but ``MOST`` cases of a test as ``full``; a mark ``few(n)`` sets another number."""
    few = items[0].get_closest_marker("few") if items else None
    number = min(MOST if few is None else few.args[0], len(items))
    chosen = {i * len(items) // number for i in range(number)}
    for place, item in enumerate(items):
        if place not in chosen:
            item.add_marker(FULL)


def values_of(item: Any) -> Iterator[Value]:
    """Return the values of a case by name; names that are parametrized together are one."""
    params = item.callspec.params
    groups = [mark.args[0] for mark in item.iter_markers("parametrize")]
    groups = [g.replace(" ", "").split(",") if isinstance(g, str) else g for g in groups]
    fixtures = params.keys() - {name for group in groups for name in group}
    for names in (*groups, *([name] for name in fixtures)):
        # Cases share the objects that the test lists.
        yield tuple(names), tuple(id(params[name]) for name in names if name in params)
