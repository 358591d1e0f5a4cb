"""Unique random names of responses and of calls of tools."""

from __future__ import annotations

import secrets

HEX = "0123456789abcdef"


def random_name(letters: str = HEX, length: int = 32) -> str:
    """A new name of so many letters."""
    return "".join(secrets.choice(letters) for _ in range(length))
