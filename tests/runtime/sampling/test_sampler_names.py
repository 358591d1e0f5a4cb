"""Samplers and sequence breakers as users write them."""

from __future__ import annotations

from typing import Any

import pytest

from trinity.errors import InputError
from trinity.runtime.sampling.sampler_names import (
    DEFAULT_ORDER,
    SAMPLERS,
    read_breakers,
    read_samplers,
)
from trinity.runtime.sampling.sampling_params import SamplingParams


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("top_k;temperature", ("top_k", "temperature")),
        (" Top-K ; TEMP;nucleus; typ ;minp", ("top_k", "temperature", "top_p", "typ_p", "min_p")),
        ("edskypmxt", DEFAULT_ORDER),
        ("edskypmxta", SAMPLERS),
        ("k", ("top_k",)),
        ("temp", ("temperature",)),
        ("", ()),
    ],
)
def test_samplers_have_names_and_letters(text: str, expected: tuple[str, ...]) -> None:
    assert read_samplers("--samplers", text) == expected


@pytest.mark.parametrize("text", ["top_k;infill", "kz", "top_k,top_p"])
def test_an_unknown_sampler_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--samplers has .*; it must be of penalties, dry"):
        read_samplers("--samplers", text)


def test_breakers_of_the_command_line() -> None:
    assert read_breakers("--dry-sequence-breaker", ["a", "b c"]) == ("a", "b c")
    assert read_breakers("--dry-sequence-breaker", ["a", "none", "b"]) == ("b",)
    assert read_breakers("--dry-sequence-breaker", ["none"]) == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samplers": "top_k"}, "samplers is 'top_k' .*; it must be a list of names"),
        ({"samplers": ["top_k"] * 65}, "samplers has 65 samplers; at most 64"),
        ({"samplers": [3]}, "samplers has 3; it must be of"),
        ({"dry_sequence_breakers": "x"}, "must be a list of texts"),
        ({"dry_sequence_breakers": [1]}, "dry_sequence_breakers has 1 .int.; it must be text"),
        ({"dry_sequence_breakers": ["x"] * 65}, "has 65 texts; at most 64"),
        ({"dry_sequence_breakers": ["x" * 9000]}, "8192 characters"),
        ({"mirostat": 3}, "mirostat is 3; it must be an integer from 0 to 2"),
        ({"dry_base": 0.5}, "dry_base is 0.5"),
        ({"adaptive_decay": 1}, "adaptive_decay is 1; it must be a number from 0 to 0.99"),
    ],
)
def test_bad_values_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SamplingParams(**options)


def test_empty_breakers_are_left_out() -> None:
    assert SamplingParams(dry_sequence_breakers=["", "x"]).dry_sequence_breakers == ("x",)
