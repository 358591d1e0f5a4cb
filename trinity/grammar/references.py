"""References within a JSON schema: JSON pointers and anchors, and their targets."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

from trinity.errors import InputError
from trinity.grammar.cycles import cycle_from, told
from trinity.grammar.limits import DEEPEST
from trinity.grammar.plain_keywords import RefusedError, kind_of

# Keywords whose values are not schemas.
DATA = ("const", "enum", "default", "examples")


class References:
    """The anchors of a schema, and the parts that references mean.

    Raises: InputError if the schema is too deep.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        own = root.get("$id", root.get("id")) if isinstance(root, dict) else None
        self._id = own.removesuffix("#") if isinstance(own, str) else None
        self._anchors: dict[str, str] = {}
        self._bases: list[str] = []  # parts whose references have another base
        self.into_cases = False  # whether a reference leads into a oneOf
        self._look(root, "#", 0)

    def read(self, value: object, path: str) -> str:
        """The JSON pointer from the root, without "#", that the reference at ``path`` means.

        Raises: RefusedError for one that cannot be followed.
        """
        if not isinstance(value, str):
            raise RefusedError(f"expected text, found {kind_of(value)}")
        if any(path.startswith(f"{base}/") for base in self._bases):
            raise RefusedError("references within a part that has an $id are not followed")
        fragment = self._fragment(value)
        cycle = cycle_from(value, self.resolved)
        if cycle:
            raise RefusedError(told(cycle))
        return fragment

    def resolved(self, reference: str) -> Any:
        """The target of a reference, or None."""
        if self._bases:
            return None
        try:
            return self.at(self._fragment(reference))
        except RefusedError:
            return None

    def at(self, pointer: str) -> Any:
        """The part at a JSON pointer. Raises: RefusedError."""
        node: Any = self._root
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(name) if isinstance(node, list) else name]
            except (KeyError, IndexError, ValueError, TypeError):
                raise RefusedError(f"there is nothing at #{pointer[:80]}") from None
        return node

    def _fragment(self, value: str) -> str:
        """The JSON pointer of a reference, from the root."""
        if self._id and value.startswith((f"{self._id}#", self._id)):
            value = value.removeprefix(self._id) or "#"
        if not value.startswith("#"):
            raise RefusedError(
                f"{value[:80]!r} is outside of the document; such references are not followed"
            )
        fragment = unquote(value[1:])
        if fragment and not fragment.startswith("/"):
            if fragment not in self._anchors:
                raise RefusedError(f"the document has no anchor {fragment[:80]!r}")
            fragment = self._anchors[fragment][1:]
        return fragment

    def _look(self, node: Any, path: str, depth: int, is_data: bool = False) -> None:
        """Find anchors and bases. Raises: InputError if the schema is too deep."""
        if depth > DEEPEST:
            raise InputError(f"the JSON schema is more than {DEEPEST} levels deep: {path[:80]}")
        parts: Any = ()
        if isinstance(node, dict):
            for key in ("$anchor", "$dynamicAnchor"):
                if isinstance(node.get(key), str) and not is_data:
                    self._anchors.setdefault(node[key], path)
            reference = node.get("$ref")
            self.into_cases |= isinstance(reference, str) and "/oneOf/" in reference
            if path != "#" and isinstance(node.get("$id", node.get("id")), str):
                self._bases.append(path)
            parts = node.items()
        elif isinstance(node, list):
            parts = enumerate(node)
        for key, part in parts:
            self._look(part, below(path, key), depth + 1, is_data or key in DATA)


def pointer(fragment: str) -> str:
    """A JSON pointer as the value of a reference."""
    return "#" + quote(fragment, safe="/~!$&'()*+,;=:@-._")


def below(path: str, key: object) -> str:
    """The JSON pointer to a part of the value at ``path``."""
    return f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"
