"""Values of a JSON object that anybody may have written, checked one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trinity.errors import ConfigError
from trinity.formats.config_limits import FIELDS, checked_integer, checked_real


@dataclass(frozen=True, slots=True)
class Values:
    """The ``values`` of an object; ``source`` says where it is. null counts as missing.

    A ``field`` is a name of FIELDS, which define its range. A missing value is ``default``, or an
    error without one: every method raises ConfigError that names the key.
    """

    values: Mapping[str, object]
    source: str

    def error(self, key: str, what: str) -> ConfigError:
        """Return a ConfigError that shows the key's value."""
        return ConfigError(f"{self.source}: {key} is {shown(self.values.get(key))}; it {what}")

    def has(self, key: str) -> bool:
        """Whether the key has a value."""
        return self.values.get(key) is not None

    def first_of(self, keys: tuple[str, ...]) -> str:
        """Return the first of the keys that has a value, else the first key."""
        return next((key for key in keys if self.has(key)), keys[0])

    def size(
        self, key: str, field: str, default: int | None = None, *, smallest: int | None = None
    ) -> int:
        """Return a whole number from ``smallest``, or the field's, to the field's largest."""
        return checked_integer(field, self._value(key, default), f"{self.source}: {key}", smallest)

    def real(self, key: str, field: str, default: float | None = None) -> float:
        """Return a number within the field's range."""
        return checked_real(field, self._value(key, default), f"{self.source}: {key}")

    def of_field(self, key: str, field: str) -> float:
        """Return a number of a field, a whole one if the field's range is."""
        return (self.real if isinstance(FIELDS[field].low, float) else self.size)(key, field)

    def reals(self, key: str, field: str, count: int) -> tuple[float, ...]:
        """Return a list of ``count`` such numbers."""
        value = self._value(key, None)
        if not isinstance(value, list) or len(value) != count:
            state = f"{len(value)} values" if isinstance(value, list) else shown(value)
            raise ConfigError(f"{self.source}: {key} has {state}; expected a list of {count}")
        return tuple(checked_real(field, item, f"{self.source}: {key}") for item in value)

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a boolean."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.error(key, "must be true or false")
        return value

    def text(self, key: str, default: str) -> str:
        """Return a string."""
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self.error(key, "must be a string")
        return value

    def inner(self, key: str) -> Values:
        """Return an object within this one, or an empty one if it is missing."""
        value = self._value(key, {})
        if not isinstance(value, dict):
            raise self.error(key, "must be an object")
        return Values(value, f"{self.source}: {key}")

    def _value(self, key: str, default: object) -> object:
        value = self.values.get(key)
        if value is None and default is None:
            raise ConfigError(f"{self.source}: {key} is missing; download the file again")
        return default if value is None else value


def shown(value: object) -> str:
    """Format a value for an error."""
    return f"{value!r:.80}"
