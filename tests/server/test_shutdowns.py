"""A server ends in time whatever its clients do."""

from __future__ import annotations

import random

import pytest

from tests.matrix import some
from tests.soak import shutdowns
from trinity.model import Model


@pytest.mark.parametrize("name", shutdowns.BEHAVIOURS)
@pytest.mark.parametrize("part", some(range(5), [0]))
def test_a_server_ends_in_time(name: str, part: int, model: Model) -> None:
    chance = random.Random(f"{part} {name}")
    seconds = shutdowns.ended_in(model, shutdowns.BEHAVIOURS[name], chance)
    assert seconds <= shutdowns.DRAIN + shutdowns.MORE
