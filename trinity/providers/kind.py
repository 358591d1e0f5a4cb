"""What a kind of place where models lie declares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trinity.formats.provider import WeightProvider
from trinity.load_options import LoadOptions

Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of place.

    ``what`` is said in errors ("a GGUF file"). ``claims(name)``: whether the name is one of this
    kind, by a prefix or by what lies there; it raises nothing. ``open(name, options, notice)`` then
    gives the model or raises TrinityError; ``notice`` takes a line that the user should see.
    ``close_names(name)``: names that exist and are like one that nobody claimed.
    """

    what: str
    claims: Callable[[str], bool]
    open: Callable[[str, LoadOptions, Notice], WeightProvider]
    close_names: Callable[[str], Iterable[str]] = lambda name: ()
