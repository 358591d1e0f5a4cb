"""Looks a configuration's numbers up in metadata, and checks each one by itself.

Keys are tried in the order: architecture-prefixed GGUF key, the same unprefixed, Hugging Face's
name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import FIELDS, checked_integer, checked_real


class ConfigReader:
    """The numbers of one file's metadata, by the names of the table's fields."""

    def __init__(self, metadata: Mapping[str, object], architecture: str, source: str) -> None:
        self.metadata = metadata
        self._architecture = architecture
        self.source = source

    def key(self, name: str) -> str:
        """The key that gives field ``name``: the first that exists, else the preferred one."""
        field = FIELDS[name]
        prefix = f"{self._architecture}."
        keys = [prefix + key for key in field.keys] + [*field.keys, *field.hf]
        keys += [prefix + key for key in field.hf]
        return next((key for key in keys if key in self.metadata), keys[0])

    def error(self, name: str, what: str) -> ConfigError:
        """A ConfigError about field ``name``."""
        return ConfigError(f"{self._where(name)} {what}")

    def clash(
        self, name: str, value: object, other: str, other_value: object, relation: str
    ) -> ConfigError:
        """A ConfigError about two fields that exclude each other."""
        return self.error(
            name,
            f"is {value}, but {relation} {self.key(other)} ({other}), which is {other_value}; "
            "the file's metadata is wrong: convert the model again",
        )

    def text(self, key: str) -> str:
        """A string under exactly ``key``, or an empty one."""
        value = self.metadata.get(key, "")
        return value if isinstance(value, str) else ""

    def integer(self, name: str, *, default: int | None = None, smallest: int | None = None) -> int:
        """A whole number from ``smallest``, or the field's, to the field's largest."""
        return checked_integer(name, self.value(name, default), self._where(name), smallest)

    def plain(self, name: str, default: Any) -> Any:
        """The field as the file has it, else ``default``; 0 where that means that there is none."""
        if not self.is_set(name):
            return default
        if isinstance(default, bool):
            return self.boolean(name)
        if default is None or isinstance(default, float):
            return self.real(name) if default else self.real_or_none(name)
        return self.integer(name)

    def by_layer(
        self, name: str, num_layers: int, default: int | None = None
    ) -> tuple[int, tuple[int, ...]]:
        """A whole number, or an array of one for each layer.

        Returns: the largest, and those of all layers where they differ, else nothing. A layer's 0
        says that the layer is of another kind.
        """
        values = self.value(name, default)
        if not isinstance(values, np.ndarray):
            return checked_integer(name, values, self._where(name), 1), ()
        if len(values) != num_layers:
            raise self.error(
                name, f"has {len(values)} values, but {self.key('num_layers')} is {num_layers}"
            )
        numbers = tuple(
            checked_integer(name, value, self._where(name), 0) for value in values.tolist()
        )
        return max(numbers), numbers if len(set(numbers)) > 1 else ()

    def of_all_layers(self, name: str, num_layers: int) -> int:
        """A whole number, or an array of one for each layer, all equal."""
        value, different = self.by_layer(name, num_layers)
        checked_integer(name, value, self._where(name), 1)
        if different:
            raise UnsupportedError(
                f"{self.source}: {self.key(name)} ({name}) varies by layer (an array of "
                f"{num_layers}); trinity runs models in which it is the same for all"
            )
        return value

    def real(self, name: str, *, default: float | None = None) -> float:
        """A number within the field's range."""
        return checked_real(name, self.value(name, default), self._where(name))

    def real_or_none(self, name: str) -> float:
        """A number within the field's range; 0 where the file has none, or 0 itself."""
        value = self.value(name, 0.0)
        if not isinstance(value, bool) and isinstance(value, int | float) and value == 0:
            return 0.0
        return self.real(name)

    def boolean(self, name: str) -> bool | None:
        """True or False; None where the file has neither."""
        if not self.is_set(name):
            return None
        value = self.value(name)
        if not isinstance(value, bool):
            raise self.error(name, f"is {shown(value)}; true or false is expected")
        return value

    def is_set(self, name: str) -> bool:
        """True where any of the field's keys exists."""
        return self.key(name) in self.metadata

    def value(self, name: str, default: float | None = None) -> object:
        """What the file has for field ``name``, unchecked, or ``default``."""
        key = self.key(name)
        if key in self.metadata:
            return self.metadata[key]
        if default is None:
            field = FIELDS[name]
            others = ", ".join([*field.keys, *field.hf])
            raise self.error(name, f"is missing, and so is each of {others}; convert again")
        return default

    def _where(self, name: str) -> str:
        return f"{self.source}: {self.key(name)} ({name})"


def shown(value: object) -> str:
    """A value for a message, shortened."""
    if isinstance(value, np.ndarray | list):
        return f"an array of {len(value)}"
    return f"{value[:60]!r}" if isinstance(value, str) else f"{value!r:.60}"
