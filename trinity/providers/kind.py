"""The interface of a kind of model source, such as GGUF files or the hub."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from trinity.formats.defaults import Defaults
from trinity.formats.provider import WeightProvider
from trinity.options.load_options import LoadOptions

Notice = Callable[[str], None]


class Described(Protocol):
    """A description of a model without its weights; every WeightProvider is one."""

    @property
    def metadata(self) -> Mapping[str, object]:
        """Keys and values, including the tokenizer's."""
        ...

    @property
    def defaults(self) -> Defaults:
        """The defaults in the model's files."""
        ...

    def close(self) -> None:
        """Close all files."""
        ...


class Kind(NamedTuple):
    """A kind of model source."""

    what: str  # for errors, such as "a GGUF file"
    # Whether a name is of this kind, by its prefix or by what is at that path; never raises.
    claims: Callable[[str], bool]
    # Opens the model of a name with options, or raises TrinityError. The last argument is called
    # with lines for the user.
    open: Callable[[str, LoadOptions, Notice], WeightProvider]
    # Describes a model without weights, if that needs fewer files; None: it has to be opened.
    describe: Callable[[str, Notice], Described] | None = None
    # Existing names that are similar to one that no kind claims.
    close_names: Callable[[str], Iterable[str]] = lambda name: ()
