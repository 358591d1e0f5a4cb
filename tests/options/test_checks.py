from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trinity.errors import InputError
from trinity.options.checks import (
    check_bool,
    check_choice,
    check_integer,
    check_number,
    check_text,
    parse_bytes,
)

HUGE = 10**400


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("16GB", 16e9),
        ("16GiB", 2**34),
        ("500MB", 5e8),
        ("16g", 2**34),
        ("1T", 2**40),
        ("64K", 2**16),
        (" 1.5m ", 3 * 2**19),
        ("4096", 4096),
    ],
)
def test_bytes(text: str, expected: float) -> None:
    assert parse_bytes("--ram", text) == expected


@pytest.mark.parametrize("text", ["1e3", "", "G", "-1G", "0", "much", "1 G B", "9" * 400, "1GIG"])
def test_bad_bytes(text: str) -> None:
    with pytest.raises(InputError, match=r"--ram is .*expected a size such as 16GB"):
        parse_bytes("--ram", text)


def test_bytes_below_the_least() -> None:
    assert parse_bytes("--ram", "1MB", least=1e6) == 10**6
    with pytest.raises(InputError, match="--ram"):
        parse_bytes("--ram", "16", least=1e6)


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (lambda v: check_number("x", v, 0, 1), np.float32(0.5), 0.5),
        (lambda v: check_number("x", v, above=0), 3, 3.0),
        (lambda v: check_integer("x", v, 0, 5), np.int64(5), 5),
        (lambda v: check_integer("x", v, None), -(10**30), -(10**30)),
        (lambda v: check_bool("x", v), np.bool_(True), True),
        (lambda v: check_bool("x", v), 0, False),
        (lambda v: check_choice("x", v, ("f16", "f32")), "F32", "f32"),
        (lambda v: check_text("x", v), "", ""),
    ],
)
def test_values_come_back_in_pythons_types(
    check: Callable[[object], Any], value: object, expected: object
) -> None:
    found = check(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (lambda v: check_number("x", v, 0, 1), 1.5, "x is 1.5; it must be a number from 0 to 1"),
        (lambda v: check_number("x", v), "1", "it must be a finite number"),
        (lambda v: check_number("x", v), math.nan, "it must be a finite number"),
        (lambda v: check_number("x", v), HUGE, "it must be a finite number"),
        (lambda v: check_number("x", v, 0), -1, "it must be a finite number of at least 0"),
        (lambda v: check_number("x", v, above=0), 0, "x is 0; it must be a finite number above 0"),
        (lambda v: check_integer("x", v, 1), 0, "x is 0; it must be an integer of at least 1"),
        (lambda v: check_integer("x", v, 1, 9), 10, "it must be an integer from 1 to 9"),
        (lambda v: check_integer("x", v, None, 9), 10, "it must be an integer of at most 9"),
        (lambda v: check_integer("x", v, None), 1.0, "x is 1.0 (float); it must be an integer"),
        (lambda v: check_integer("x", v, 0), True, "x is True (bool)"),
        (lambda v: check_bool("x", v), "no", "x is 'no' (str); it must be True or False"),
        (lambda v: check_bool("x", v), np.zeros(2), "it must be True or False"),
        (lambda v: check_choice("x", v, ("a", "b")), "c", "x is 'c'; it must be a or b"),
        (lambda v: check_choice("x", v, ("a", "b")), None, "x is None; it must be a or b"),
        (lambda v: check_text("x", v), b"a", "x is b'a' (bytes); it must be text"),
    ],
)
def test_refusals_say_what_it_must_be(
    check: Callable[[object], Any], value: object, expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        check(value)
    assert expected in str(caught.value)
