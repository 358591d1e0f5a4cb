"""What a kind of place where models lie declares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from trinity.formats.defaults import Defaults
from trinity.formats.provider import WeightProvider
from trinity.options.load_options import LoadOptions

Notice = Callable[[str], None]


class Described(Protocol):
    """What a model's files say of it beside its weights; every WeightProvider is one."""

    @property
    def metadata(self) -> Mapping[str, object]:
        """Key to value, the tokenizer's among them."""
        ...

    @property
    def defaults(self) -> Defaults:
        """What the model's files say of its use."""
        ...

    def close(self) -> None:
        """Release what is open."""
        ...


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of place.

    ``what`` is said in errors ("a GGUF file"). ``claims(name)``: whether the name is one of this
    kind, by a prefix or by what lies there; it raises nothing. ``open(name, options, notice)`` then
    gives the model or raises TrinityError; ``notice`` takes a line that the user should see.
    ``describe(name, notice)``: what is known without the weights, where less must be there or be
    brought for that; None: the opened model. ``close_names(name)``: names that exist and are like
    one that nobody claimed.
    """

    what: str
    claims: Callable[[str], bool]
    open: Callable[[str, LoadOptions, Notice], WeightProvider]
    describe: Callable[[str, Notice], Described] | None = None
    close_names: Callable[[str], Iterable[str]] = lambda name: ()
