"""llguidance, which does the work: the one place that imports it, when it is first needed."""

from __future__ import annotations

from types import ModuleType

from trinity.errors import InputError


def llguidance() -> ModuleType:
    """The library. Raises: InputError where it is not installed."""
    try:
        import llguidance as library
    except ImportError as error:
        raise InputError(
            "grammars need the llguidance library, which is not installed: "
            'pip install "trinity-llm[grammar]"'
        ) from error
    return library
