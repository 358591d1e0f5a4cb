"""Keys of a GGUF file's metadata that a user replaces."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence

from trinity.errors import InputError
from trinity.options.checks import check_number

KeyValue = bool | int | float | str

# llama.cpp's limits.
LONGEST_KEY, LONGEST_TEXT = 127, 127
LARGEST_INTEGER = 1 << 63


def check_overrides(name: str, value: object) -> dict[str, KeyValue]:
    """Return a private copy of overrides. Raises InputError for anything else."""
    if not isinstance(value, Mapping):
        raise InputError(
            f"{name} is {value!r:.80} ({type(value).__name__}); it must be a dict of keys and "
            "values"
        )
    overrides: dict[str, KeyValue] = {}
    for key, given in value.items():
        if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY:
            raise InputError(
                f"{name} has the key {key!r:.80}; a key is text of at most {LONGEST_KEY} characters"
            )
        if isinstance(given, float):
            check_number(f"{name}[{key!r}]", given)
        small = isinstance(given, int) and -LARGEST_INTEGER <= given < LARGEST_INTEGER
        short = isinstance(given, str) and len(given) <= LONGEST_TEXT
        if not (isinstance(given, float) or small or short):
            raise InputError(
                f"{name}[{key!r}] is {given!r:.80}; a value is True or False, an integer of 64 "
                f"bits, a number, or text of at most {LONGEST_TEXT} characters"
            )
        overrides[key] = given
    return overrides


def read_overrides(flag: str, texts: Sequence[str]) -> dict[str, KeyValue]:
    """Overrides of texts such as "a.b=int:3,a.c=str:x". Raises InputError."""
    overrides: dict[str, KeyValue] = {}
    for text in texts:
        for part in next(csv.reader([text]), []):
            key, _, typed = part.partition("=")
            kind, _, value = typed.partition(":")
            try:
                overrides[key] = _VALUES[kind](value)
            except (KeyError, ValueError):
                raise InputError(
                    f"{flag} {part!r:.100}: write it as KEY=TYPE:VALUE, where TYPE is int, float, "
                    "bool (true or false) or str"
                ) from None
    return check_overrides(flag, overrides)


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError
    return text == "true"


_VALUES: dict[str, Callable[[str], KeyValue]] = {
    "int": int,
    "float": float,
    "bool": _switch,
    "str": str,
}
