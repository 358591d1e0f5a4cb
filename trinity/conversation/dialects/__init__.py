"""The forms in which models write calls of tools, a file for each."""

from __future__ import annotations

from trinity.conversation.dialects.dialect import Dialect
from trinity.conversation.dialects.general import General
from trinity.conversation.dialects.hermes import Hermes

GENERAL = General()
# The first that claims a template has it: those with rarer words come first.
DIALECTS: tuple[Dialect, ...] = (Hermes(),)


def dialect_of(template: str) -> Dialect:
    """The form of a chat template; the general one where it has none that is known."""
    return next((one for one in DIALECTS if one.claims(template)), GENERAL)
