"""Read JSON objects of untrusted files: strictly, with errors that name the file."""

from __future__ import annotations

import json

from trinity.errors import FormatError
from trinity.formats.mapping import read_whole

MAX_JSON_BYTES = 48 << 20  # far above any tokenizer.json
MAX_CONFIG_BYTES = 4 << 20
# Python objects may take three times the file's length plus this many bytes.
_MEMORY, _CONFIG_MEMORY = 280_000_000, 40_000_000


def read_json_object(path: str, *, is_config: bool = True) -> dict[str, object]:
    """Return the object in the JSON file at ``path``.

    ``is_config`` selects the limit for a configuration, which is small, instead of that for a
    vocabulary or an index. Raises InputError if the file cannot be opened, FormatError if it
    contains anything but one object, or is too large.
    """
    raw = _content(path, MAX_CONFIG_BYTES if is_config else MAX_JSON_BYTES)
    return parse_json_object(raw, path, _CONFIG_MEMORY if is_config else _MEMORY)


def read_json_list(path: str) -> list[object]:
    """Return the list in a small JSON file; raises as ``read_json_object``."""
    return parse_json_list(_content(path, MAX_CONFIG_BYTES), path, _CONFIG_MEMORY)


def _content(path: str, longest: int) -> bytes:
    """Return the bytes of a file, without a byte order mark. Raises as ``read_json_object``."""
    return read_whole(path, longest).removeprefix(b"\xef\xbb\xbf")


def parse_json_object(raw: bytes, source: str, memory: int = _MEMORY) -> dict[str, object]:
    """Return the object in the JSON text ``raw``. Raises FormatError that begins with ``source``.

    Stricter than Python's reader: a name may occur once per object, NaN is not a number, every
    string must be encodable as UTF-8, and the parsed objects may take at most three times the
    text's length plus ``memory`` bytes. Infinity is allowed, and so are numbers too large for a
    float: configurations of Nemotron-H use Infinity for "no limit".
    """
    value = _parsed(raw, source, memory)
    if not isinstance(value, dict):
        raise FormatError(f"{source}: it contains a {type(value).__name__}; expected a JSON object")
    return value


def parse_json_list(raw: bytes, source: str, memory: int = _MEMORY) -> list[object]:
    """Return the list in the JSON text ``raw``; raises as ``parse_json_object``."""
    value = _parsed(raw, source, memory)
    if not isinstance(value, list):
        raise FormatError(f"{source}: it contains a {type(value).__name__}; expected a JSON list")
    return value


def _parsed(raw: bytes, source: str, memory: int) -> object:
    escaped = b"\\ud" in raw or b"\\uD" in raw  # only these can produce a lone surrogate
    if _object_bytes(raw, escaped) > memory + 3 * len(raw):
        raise FormatError(
            f"{source}: its {len(raw)} bytes contain more values than such a file has"
        )
    try:
        value: object = json.loads(
            raw.decode(), object_pairs_hook=_unique_names, parse_constant=_constant
        )
        if escaped:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise FormatError(f"{source}: its JSON is nested too deeply; download it again") from None
    except ValueError as error:  # includes JSONDecodeError, UnicodeError and our own errors
        reason = " ".join(str(error).split())[:200]
        raise FormatError(f"{source}: not valid JSON: {reason}; download it again") from None
    return value


def _object_bytes(raw: bytes, escaped: bool) -> int:
    """Estimate the bytes that Python needs at most to read ``raw``, as measured per character."""
    # such text takes 4 bytes per character
    wide = any(bytes((lead,)) in raw for lead in range(0xF0, 0xF5))
    texts = (5 if wide else 2) * (2 if escaped else 1) * len(raw)
    objects = 85 * (raw.count(b"[") + raw.count(b"{")) + 130 * raw.count(b":")
    return texts + objects + 25 * raw.count(b'"') + 40 * raw.count(b",")


def _unique_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the name {name[:80]!r} occurs twice in one object")
            seen.add(name)
    return members


def _constant(name: str) -> float:
    if name == "NaN":
        raise ValueError(f"{name} is not a JSON number")
    return float(name)
