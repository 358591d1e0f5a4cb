"""JSON in and out: bodies become Structs, or an error that names the JSON path.

Decoding takes time and memory per value, not per byte, and holds the interpreter's lock: 4 MB of
empty lists take 1 s and 90 MB, the same bytes in one string 8 ms. So values are counted first.
"""

from __future__ import annotations

import re
import time
from codecs import BOM_UTF8
from collections.abc import Hashable, Iterable, Iterator
from itertools import islice
from mmap import mmap
from threading import Lock
from typing import Any, TypeVar, cast

import msgspec
import numpy as np

from trinity.server.errors import ApiError
from trinity.server.ignored import Ignored, pruned

T = TypeVar("T")
encode = msgspec.json.Encoder().encode
_PLACE = re.compile(r"(?:key` in `)?\$?\.?(?P<path>[^`]*)`")
_AT_ONCE, _CHARACTERS = 4096, 1 << 18  # which take about a millisecond
_MOST_TOLD = 1000  # characters of msgspec's words
_FIELD = re.compile(r"(?:unknown|required) field `(?P<name>[^`]*)`")
# Commas, colons and opening brackets outside of strings; a list of n numbers has n of them.
MOST_VALUES = 300_000
# Colons and opening brackets among them. They cost ten times as much as numbers: a decoder makes
# objects of them, which the garbage collector visits.
MOST_MEMBERS = 1 << 16
# Texts and names. Like members they are objects, but the garbage collector does not visit them.
MOST_TEXTS = 1 << 17
# A JSON text within both limits is decoded in about a millisecond.
FEW_VALUES, FEW_BYTES = 1000, 128 << 10
# Seconds between two calls that hold the interpreter's lock, for bodies above FEW_BYTES, which
# threads decode: a call may take 20 ms, and the event loop needs the lock several times a request.
_REST = 0.005
_SLICE = 1 << 16  # bytes that are looked at together
# Half of a surrogate pair, as JavaScript writes a text that was cut within a character, or none.
# The quantifiers are possessive, so that a search takes linear time, and bounded, because the
# interpreter's lock is held during a match.
_LONE = re.compile(
    rb"(?P<before>(?:[^\\]{1,512}+|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|\\u(?![dD][89a-fA-F][0-9a-fA-F]{2})|\\(?:[^u]|\Z)){0,512}+)"
    rb"(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})?",
    re.DOTALL,
)


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """Base of all request bodies. Unless the server is strict, undeclared fields are ignored."""


class ModelQuery(Body):
    """The query of a GET request to one of several models, as to llama.cpp's router."""

    model: str | None = None


def encoded(part: object) -> Any:
    """Encode a part of a long response early, because encoding all of it at once takes too long."""
    return msgspec.Raw(encode(part))


def encoded_list(parts: Iterable[object]) -> Any:
    """Encode a list in parts; not for the event loop.

    msgspec holds the interpreter's lock while it encodes.
    """
    left, encoded_parts = iter(parts), list[bytes]()
    while some := list(islice(left, _AT_ONCE)):
        encoded_parts.append(encode(some)[1:-1])
    return msgspec.Raw(b"[%b]" % b",".join(encoded_parts))


def encoded_text(text: str) -> Any:
    """Encode a text; as ``encoded_list``."""
    some = (encode(text[i : i + _CHARACTERS])[1:-1] for i in range(0, len(text), _CHARACTERS))
    return msgspec.Raw(b'"%b"' % b"".join(some))


_decoders: dict[Hashable, msgspec.json.Decoder[Any]] = {}
_making = Lock()


def decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    """The decoder of a type, made once.

    It must be made before the type is used elsewhere: while msgspec prepares a Struct, another
    thread would see it half prepared, which crashes the process.
    """
    known = _decoders.get(kind)
    if known is None:
        with _making:
            known = _decoders.setdefault(kind, msgspec.json.Decoder(cast(Any, kind)))
    return known


def decoded(ignored: Ignored, data: bytes, kind: type[T]) -> T:
    """Decode the body of a request, without the fields that it does not declare (see ``ignored``).

    Raises: ApiError 400 whose ``param`` is the JSON path, 413 for too many values.
    """
    data = data.removeprefix(BOM_UTF8)
    if not data:
        raise ApiError(400, "the body is empty; send a JSON object", code="invalid_json")
    check_values(data)
    try:
        return _decoded(ignored, data, kind)
    except RecursionError:
        raise ApiError(400, "the JSON is nested too deeply", code="invalid_json") from None
    except (msgspec.DecodeError, ValueError) as error:
        whole = _LONE.sub(_whole, data) if _may_be_half(error) else data
        if whole != data:
            return decoded(ignored, whole, kind)
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from None


def _may_be_half(error: Exception) -> bool:
    """Whether an error may mean half of a surrogate pair; "truncated": in the last six bytes."""
    return any(word in str(error) for word in ("surrogate", "truncated"))


def _whole(match: re.Match[bytes]) -> bytes:
    """A part of a text, with U+FFFD in place of half of a surrogate pair at its end."""
    return match["before"] + (b"\\ufffd" if match["half"] else b"")


def _decoded(ignored: Ignored, data: bytes, kind: type[T]) -> T:
    """The body. Raises: as ``decoded``; DecodeError, ValueError, RecursionError for no JSON."""
    try:
        body: T = decoder(cast(Hashable, kind)).decode(data)
        return body
    except msgspec.ValidationError as error:
        if ignored.strict:
            raise _refusal(str(error)) from None
        _rest(data)
        try:
            plain = msgspec.json.decode(data)
        except (msgspec.DecodeError, ValueError, RecursionError) as fault:
            if _may_be_half(fault):
                raise  # ``decoded`` repairs it
            # Such as a number beyond every float: the error about the field says where.
            raise _refusal(str(error)) from None
        _rest(data)
        return _pruned(plain, kind, "", ignored)


def _rest(data: bytes) -> None:
    if len(data) > FEW_BYTES:
        time.sleep(_REST)


def converted(ignored: Ignored, value: Any, kind: type[T], where: str, *, strict: bool = True) -> T:
    """Convert a decoded part of a body, at the path ``where``. Raises: as ``decoded``.

    If not ``strict``, texts may stand for numbers.
    """
    decoder(cast(Hashable, kind))
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        if ignored.strict:
            raise _refusal(str(error), where) from None
        return _pruned(value, kind, where, ignored)


def _pruned(value: Any, kind: type[T], where: str, dropped: Ignored) -> T:
    """Drop undeclared fields, then convert; numbers and booleans may be texts."""
    try:
        return msgspec.convert(pruned(value, kind, where, dropped), kind, strict=False)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), where) from None


def _refusal(message: str, where: str = "") -> ApiError:
    """msgspec's words, and the path in them, below ``where``."""
    if len(message) > _MOST_TOLD:  # it repeats a value or a name of the request
        message = f"{message[: _MOST_TOLD // 2]}...{message[-_MOST_TOLD // 2 :]}"
    told, at, rest = message.rpartition(" - at `")
    place = _PLACE.fullmatch(rest) if at else None
    path = where if place is None else ".".join(filter(None, (where, place["path"])))
    field = _FIELD.search(message)
    if field is not None:
        path = f"{path}.{field['name']}".lstrip(".")
    unknown = field is not None and "unknown" in message
    if unknown:
        told = f"{path or repr(path)} is not a parameter of this endpoint"
        return ApiError(400, told, path, "unknown_parameter")
    if field is not None:
        return ApiError(400, f"{path} is missing", path)
    text = message if place is None else told
    if path.endswith(".role"):
        text = f"{text}; expected a role such as user or assistant"
    named = f"{path or 'the body'}: {text}"
    return ApiError(400, named, path or None)


def check_values(data: bytes) -> None:
    """Raises: ApiError 413 for a text with more values or members than may be."""
    if len(data) <= MOST_MEMBERS:
        return
    values, members, texts = values_in(data)
    for count, most, what in (
        (values, MOST_VALUES, "values: names, numbers, texts, lists and objects"),
        (members, MOST_MEMBERS, "names, lists and objects"),
        (texts, MOST_TEXTS, "names and texts"),
    ):
        if count > most:
            raise ApiError(413, f"the JSON has more than {most} {what}", code="too_many_values")


def has_few_values(data: bytes | mmap) -> bool:
    """Whether a JSON text can be decoded in the event loop."""
    return isinstance(data, bytes) and len(data) <= FEW_BYTES and values_in(data)[0] <= FEW_VALUES


def values_in(data: bytes) -> tuple[int, int, int]:
    """Count the values of a JSON text, its members (names, lists and objects), and its texts."""
    commas, members, quotes, inside = 0, 0, 0, False
    for plain in _unescaped(data):
        part = np.frombuffer(plain, np.uint8)
        quote = part == ord('"')
        quotes += int(np.count_nonzero(quote))
        outside = ~np.logical_xor.accumulate(quote)
        if inside:
            outside = ~outside
        # "[" and "{" differ in one bit.
        member = (part == ord(":")) | (part | 0x20 == ord("{"))
        commas += int(np.count_nonzero((part == ord(",")) & outside))
        members += int(np.count_nonzero(member & outside))
        inside = not outside[-1]
    return commas + members, members, quotes // 2


def _unescaped(data: bytes) -> Iterator[bytes]:
    """Yield a JSON text in parts, without escaped quotes, which do not end a string."""
    start = 0
    while start < len(data):
        part = data[start : start + _SLICE]
        if b"\\" in part:
            backslashes = len(part) - len(part.rstrip(b"\\"))
            if backslashes % 2 and start + len(part) < len(data):
                part = part[:-1]  # it escapes the next part's first byte
            start += len(part)
            part = part.replace(b"\\\\", b"").replace(b'\\"', b"")
        else:
            start += len(part)
        if part:
            yield part
