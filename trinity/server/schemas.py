"""JSON in and out: bodies become Structs, or an error that names the JSON path."""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from trinity.server.errors import ApiError
from trinity.server.ignored import Ignored, ignored, pruned

T = TypeVar("T")
encode = msgspec.json.Encoder().encode
_PLACE = re.compile(r" - at `(?:key` in `)?\$?\.?(?P<path>.*)`$")
_FIELD = re.compile(r"(?:unknown|required) field `(?P<name>[^`]*)`")


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """Base of all request bodies. Unless the server is strict, undeclared fields are ignored."""


@cache
def decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    """The decoder of a type, made once."""
    return msgspec.json.Decoder(cast(Any, kind))


def decoded(data: bytes, kind: type[T]) -> T:
    """The body of a request, without the fields that it does not declare (see ``ignored``).

    Raises: ApiError 400 whose ``param`` is the JSON path.
    """
    try:
        found: T = decoder(cast(Hashable, kind)).decode(data)
        return found
    except msgspec.ValidationError as error:
        dropped = ignored.get(None) or Ignored()
        if dropped.strict:
            raise _refusal(str(error)) from None
        try:
            plain = msgspec.json.decode(data)
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise _refusal(str(error)) from None
        return _pruned(plain, kind, "", dropped)
    except RecursionError:
        raise ApiError(400, "the JSON is nested too deeply", code="invalid_json") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from None


def converted(value: Any, kind: type[T], where: str, *, strict: bool = True) -> T:
    """A part of a body, decoded already, that lies at ``where``. Raises: as ``decoded``.

    Where it is not ``strict``, texts may stand for numbers.
    """
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        dropped = ignored.get(None) or Ignored()
        if dropped.strict:
            raise _refusal(str(error), where) from None
        return _pruned(value, kind, where, dropped)


def _pruned(value: Any, kind: type[T], where: str, dropped: Ignored) -> T:
    """What is left once undeclared fields are dropped; numbers and truths may come as texts."""
    try:
        return msgspec.convert(pruned(value, kind, where, dropped), kind, strict=False)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), where) from None


def _refusal(message: str, where: str = "") -> ApiError:
    """msgspec's words, and the path in them, below ``where``."""
    place = _PLACE.search(message)
    path = where if place is None else ".".join(filter(None, (where, place["path"])))
    field = _FIELD.search(message)
    if field is not None:
        path = f"{path}.{field['name']}".lstrip(".")
    unknown = field is not None and "unknown" in message
    if unknown:
        told = f"{path or repr(path)} is no parameter of this endpoint"
        return ApiError(400, told, path, "unknown_parameter")
    text = message if place is None else message[: place.start()]
    named = f"{path or 'the body'}: {text}"
    return ApiError(400, named, path or None)
