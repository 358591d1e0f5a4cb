"""Fixtures of the kernels: instruction-set levels and teams of threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trinity_kernels.isa import available_levels
from trinity_kernels.team import Team


@pytest.fixture(params=available_levels())
def level(request: pytest.FixtureRequest) -> str:
    """Every level of this machine."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def two() -> Iterator[Team]:
    """A team of two threads."""
    team = Team(2)
    yield team
    team.close()
