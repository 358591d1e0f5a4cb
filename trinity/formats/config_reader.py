"""Read numbers of a configuration from metadata, and check each one separately.

Keys are tried in this order: GGUF's with the architecture as prefix, the same without the prefix,
Hugging Face's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import FIELDS, checked_integer, checked_real


class ConfigReader:
    """The numbers in one file's metadata, by the field names of config_limits.FIELDS."""

    def __init__(self, metadata: Mapping[str, object], architecture: str, source: str) -> None:
        self.metadata = metadata
        self.architecture = architecture
        self.source = source

    def key(self, name: str) -> str:
        """Return the key for a field: the first that the file has, or the preferred one."""
        field = FIELDS[name]
        prefix = f"{self.architecture}."
        keys = [prefix + key for key in field.keys] + [*field.keys, *field.hf]
        keys += [prefix + key for key in field.hf]
        return next((key for key in keys if key in self.metadata), keys[0])

    def error(self, name: str, what: str) -> ConfigError:
        """Return a ConfigError about a field."""
        return ConfigError(f"{self._where(name)} {what}")

    def clash(
        self, name: str, value: object, other: str, other_value: object, relation: str
    ) -> ConfigError:
        """Return a ConfigError about two fields that contradict each other."""
        return self.error(
            name,
            f"is {value}, but {relation} {self.key(other)} ({other}), which is {other_value}; "
            "the file's metadata is wrong: convert the model again",
        )

    def text(self, key: str) -> str:
        """Return the string under exactly ``key``, or an empty one."""
        value = self.metadata.get(key, "")
        return value if isinstance(value, str) else ""

    def integer(self, name: str, *, default: int | None = None, smallest: int | None = None) -> int:
        """Return a whole number in the field's range, or from ``smallest``."""
        return checked_integer(name, self.value(name, default), self._where(name), smallest)

    def plain(self, name: str, default: Any) -> Any:
        """Return the field as the file has it, or ``default``; 0 if that means none."""
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
        """Read a whole number, or an array with one per layer.

        Returns the largest, and those of all layers if they differ (otherwise an empty tuple). A
        layer's 0 means that the layer is of another kind.
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
        """Read a whole number, or an array with one per layer, all equal."""
        value, different = self.by_layer(name, num_layers)
        checked_integer(name, value, self._where(name), 1)
        if different:
            raise UnsupportedError(
                f"{self.source}: {self.key(name)} ({name}) varies by layer (an array of "
                f"{num_layers}), which is not supported"
            )
        return value

    def reals_of_layers(self, name: str, num_layers: int) -> tuple[float, ...]:
        """Return the numbers of an array with one for each layer; () if there is none."""
        if not self.is_set(name):
            return ()
        values = self.value(name)
        if not isinstance(values, np.ndarray) or len(values) != num_layers:
            raise self.error(
                name,
                f"is {shown(values)}; expected an array with one number for each of {num_layers} "
                f"layers ({self.key('num_layers')})",
            )
        return tuple(checked_real(name, number, self._where(name)) for number in values.tolist())

    def real(self, name: str, *, default: float | None = None) -> float:
        """Return a number in the field's range."""
        return checked_real(name, self.value(name, default), self._where(name))

    def real_or_none(self, name: str) -> float:
        """Return a number in the field's range; 0 if the file has none, or has 0."""
        value = self.value(name, 0.0)
        if not isinstance(value, bool) and isinstance(value, int | float) and value == 0:
            return 0.0
        return self.real(name)

    def boolean(self, name: str) -> bool | None:
        """Return a boolean, or None if the file has none."""
        if not self.is_set(name):
            return None
        value = self.value(name)
        if not isinstance(value, bool):
            raise self.error(name, f"is {shown(value)}; expected true or false")
        return value

    def is_set(self, name: str) -> bool:
        """Whether the file has any of the field's keys."""
        return self.key(name) in self.metadata

    def value(self, name: str, default: float | None = None) -> object:
        """Return the file's value of a field, unchecked, or ``default``."""
        key = self.key(name)
        if key in self.metadata:
            return self.metadata[key]
        if default is None:
            field = FIELDS[name]
            others = ", ".join([*field.keys, *field.hf])
            raise self.error(
                name, f"is missing, and so is each of {others}; convert the model again"
            )
        return default

    def _where(self, name: str) -> str:
        return f"{self.source}: {self.key(name)} ({name})"


def shown(value: object) -> str:
    """Return a value for a message, shortened."""
    if isinstance(value, np.ndarray | list):
        return f"an array of {len(value)}"
    return f"{value[:60]!r}" if isinstance(value, str) else f"{value!r:.60}"
