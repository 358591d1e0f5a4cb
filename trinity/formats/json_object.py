"""JSON objects from files that anybody may have written: strict, with errors that name the file."""

from __future__ import annotations

import json
from typing import NoReturn

from trinity.errors import FormatError
from trinity.formats.mapping import MappedFile

MAX_JSON_BYTES = 256 << 20  # far above any tokenizer.json


def read_json_object(path: str) -> dict[str, object]:
    """The object that the JSON file at ``path`` holds.

    Raises InputError where the file cannot be opened, FormatError where it holds anything else
    than one object.
    """
    file = MappedFile(path)
    try:
        raw = bytes(file.buffer()[: MAX_JSON_BYTES + 1])
    finally:
        file.close()
    if len(raw) > MAX_JSON_BYTES:
        raise FormatError(f"{path}: larger than {MAX_JSON_BYTES} bytes, too large for such a file")
    return parse_json_object(raw.removeprefix(b"\xef\xbb\xbf"), path)


def parse_json_object(raw: bytes, source: str) -> dict[str, object]:
    """The object of the JSON text ``raw``. Raises FormatError that begins with ``source``.

    Stricter than Python's own reader: a name may occur once in each object, numbers are finite,
    and every string is text that UTF-8 can hold.
    """
    try:
        value = json.loads(
            raw.decode(), object_pairs_hook=_unique_names, parse_constant=_no_constant
        )
        json.dumps(value, ensure_ascii=False).encode()  # finds lone surrogates
    except RecursionError:
        raise FormatError(f"{source}: its JSON is nested too deeply; download it again") from None
    except ValueError as error:  # also JSONDecodeError, UnicodeError and our own two
        reason = " ".join(str(error).split())[:200]
        raise FormatError(f"{source}: no valid JSON: {reason}; download it again") from None
    if not isinstance(value, dict):
        raise FormatError(f"{source}: holds a {type(value).__name__}, not a JSON object")
    return value


def _unique_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the name {name[:80]!r} occurs twice in one object")
            seen.add(name)
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
