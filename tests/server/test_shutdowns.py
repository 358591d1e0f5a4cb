"""A server ends in time, whatever its clients do."""

from __future__ import annotations

import random

import pytest

from tests.matrix import some
from tests.processor_time import check_least
from tests.soak import shutdowns
from trinity.model import Model


@pytest.mark.few(1)
@pytest.mark.parametrize("name", shutdowns.BEHAVIOURS)
@pytest.mark.parametrize("part", some(range(5), [0]))
def test_a_server_ends_in_time(name: str, part: int, model: Model) -> None:
    chance, act = random.Random(f"{part} {name}"), shutdowns.BEHAVIOURS[name]
    check_least(shutdowns.DRAIN + shutdowns.MORE, lambda: shutdowns.ended_in(model, act, chance))
