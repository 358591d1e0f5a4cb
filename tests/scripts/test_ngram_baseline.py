"""The n-gram model of the model card is a probability distribution."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from scripts.ngram_baseline import KneserNey

TEXT = Path(__file__).parents[2].joinpath("CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("context", ["the", "mak", "zqj"])
@pytest.mark.parametrize("order", [1, 2, 4])
def test_probabilities_add_up_to_one(order: int, context: str) -> None:
    """After contexts that are seen often, seldom and never."""
    model = KneserNey(TEXT, order)
    before = context[len(context) - order + 1 :]
    found = [model.probability(before, character) for character in set(TEXT)]
    assert math.fsum(found) == pytest.approx(1)
    assert min(found) > 0


def test_a_longer_context_helps() -> None:
    text = "abcabcabd" * 50
    assert KneserNey(text, 3).probability("ab", "c") > KneserNey(text, 1).probability("", "c")
