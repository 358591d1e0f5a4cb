"""Clients that disconnect in every phase of a request, with and without further bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.soak import leaving

CLIENTS = 8


@pytest.fixture(scope="module")
def demo() -> Iterator[tuple[leaving.Watched, int]]:
    """A server whose steps are long enough for a busy machine."""
    with leaving.watched_demo(4, 0.1) as watched, leaving.served(watched.model) as port:
        yield watched, port


@pytest.mark.few(1)
@pytest.mark.parametrize("name", leaving.PHASES)
def test_work_ends_within_two_steps(name: str, demo: tuple[leaving.Watched, int]) -> None:
    watched, port = demo
    phase = leaving.PHASES[name]
    assert leaving.left(watched, port, phase, random.Random(name), CLIENTS) <= leaving.STEPS
