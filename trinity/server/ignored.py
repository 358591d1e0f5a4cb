"""Request fields without effect: dropped and named, or refused under ``--strict``.

Clients send more fields than any one server implements. A field that no endpoint declares, and a
value that an ``Ignorable`` field does not have, are dropped. The answer's ``X-Trinity-Ignored``
header and the log name them. A declared field with a wrong value stays an error, since it would
change the answer.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec

from trinity.server.errors import ApiError

T = TypeVar("T")
IGNORABLE = "ignorable"
# A field whose unsupported values change nothing that the client relies on.
Ignorable = Annotated[T, msgspec.Meta(extra={IGNORABLE: True}, extra_json_schema={IGNORABLE: True})]
_MOST_NAMES = 32
_LONGEST_NAME = 64


@dataclass(slots=True)
class Ignored:
    """The fields of one request that have no effect. ``strict``: they are refused."""

    strict: bool = False
    names: list[str] = field(default_factory=list)
    more: int = 0

    def add(self, name: str) -> None:
        """Add a field by its JSON path. Raises: ApiError 400 under ``--strict``."""
        if self.strict:
            raise ApiError(
                400,
                f"{name} has no effect here, and the server is strict (--strict)",
                name,
                "unknown_parameter",
            )
        if len(self.names) == _MOST_NAMES:
            self.more += 1
        else:
            self.names.append(name)

    @property
    def header(self) -> str:
        """The value of ``X-Trinity-Ignored``, in printable ASCII; empty if nothing was dropped."""
        names = [
            "".join(c if " " < c <= "~" and c != "," else "?" for c in name[:_LONGEST_NAME]) or '""'
            for name in dict.fromkeys(self.names)
        ]
        return ", ".join([*names, *([f"and {self.more} more"] if self.more else [])])


def pruned(value: Any, kind: Any, where: str, dropped: Ignored) -> Any:
    """Return ``value`` without what ``kind`` does not declare; ``where`` is its JSON path.

    The result need not be valid. Null in an optional field counts as absent.
    """
    kind = _bare(kind)
    if value == [] and _element(kind) is None and _takes_object(kind):
        value = {}  # as PHP writes an empty object
    if isinstance(value, dict):
        struct = _struct_for(kind, value)
        return value if struct is None else _pruned_struct(value, struct, where, dropped)
    if isinstance(value, list):
        element = _element(kind)
        if element is None:
            return value
        return [pruned(item, element, f"{where}[{i}]", dropped) for i, item in enumerate(value)]
    return value


def _pruned_struct(
    value: dict[str, Any], struct: type[msgspec.Struct], where: str, dropped: Ignored
) -> dict[str, Any]:
    kept, fields = {}, _fields(struct)
    for key, given in value.items():
        path = f"{where}.{key}" if where else key
        if key == struct.__struct_config__.tag_field:
            kept[key] = given
        elif key not in fields:
            if given is not None:
                dropped.add(path)
        elif given is not None or not fields[key].optional:
            item = pruned(given, fields[key].kind, path, dropped)
            if fields[key].ignorable and not _valid(item, fields[key].kind):
                dropped.add(path)
            else:
                kept[key] = item
    return kept


def _valid(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Field:
    kind: Any
    optional: bool  # it has a default, so requests may omit it
    ignorable: bool


@cache
def _fields(struct: type[msgspec.Struct]) -> Mapping[str, _Field]:
    return {
        member.encode_name: _Field(member.type, not member.required, _is_ignorable(member.type))
        for member in msgspec.structs.fields(struct)
    }


def _is_ignorable(kind: Any) -> bool:
    if get_origin(kind) is not Annotated:
        return False
    metas = kind.__metadata__
    return any(isinstance(m, msgspec.Meta) and m.extra and IGNORABLE in m.extra for m in metas)


def _bare(kind: Any) -> Any:
    return kind.__origin__ if get_origin(kind) is Annotated else kind


def _choices(kind: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    members = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return tuple(_bare(member) for member in members)


def _struct_for(kind: Any, value: dict[str, Any]) -> type[msgspec.Struct] | None:
    """The Struct for a JSON object: if there are several, the one with its tag."""
    structs = [
        choice
        for choice in _choices(kind)
        if isinstance(choice, type) and issubclass(choice, msgspec.Struct)
    ]
    for choice in structs:
        config = choice.__struct_config__
        if config.tag_field is not None and value.get(config.tag_field) == config.tag:
            return choice
    return structs[0] if len(structs) == 1 else None


def _takes_object(kind: Any) -> bool:
    """Whether a JSON object is allowed here."""
    return any(
        get_origin(choice) is dict
        or (isinstance(choice, type) and issubclass(choice, msgspec.Struct))
        for choice in _choices(kind)
    )


def _element(kind: Any) -> Any | None:
    """The type of a list's elements, if a list is allowed here."""
    for choice in _choices(kind):
        if get_origin(choice) is list:
            return get_args(choice)[0]
    return None
