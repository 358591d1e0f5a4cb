"""Architectures, one file per family; a file's ``ARCHITECTURES`` is all its registration."""

from __future__ import annotations

import importlib
import pkgutil

from trinity.errors import UnsupportedError
from trinity.models.architecture import Architecture


def _discover() -> dict[str, Architecture]:
    found: dict[str, Architecture] = {}
    for module in pkgutil.iter_modules(__path__):
        family = importlib.import_module(f"{__name__}.{module.name}")
        for architecture in getattr(family, "ARCHITECTURES", ()):
            for name in architecture.names:
                found[name] = architecture
    return found


ARCHITECTURES: dict[str, Architecture] = _discover()


def find_architecture(name: str, source: str) -> Architecture:
    """The architecture that a file names. Raises UnsupportedError, listing those there are."""
    if name not in ARCHITECTURES:
        raise UnsupportedError(
            f"{source}: architecture {name!r} is not supported; trinity runs "
            f"{', '.join(sorted(ARCHITECTURES))}"
        )
    return ARCHITECTURES[name]
