"""Imports llguidance when it is first needed; no other module imports it."""

from __future__ import annotations

from types import ModuleType

from trinity.errors import InputError


def llguidance() -> ModuleType:
    """Return the package ``llguidance``. Raises InputError if it is not installed."""
    try:
        import llguidance as library
    except ImportError as error:
        raise InputError(
            "grammars need the llguidance library, which is not installed: "
            'pip install "trinity-llm[grammar]"'
        ) from error
    return library
