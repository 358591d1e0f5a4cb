"""What templates of models that think are told of how much they shall."""

from __future__ import annotations

from typing import Any


def effort_variables(effort: str | None) -> dict[str, Any]:
    """The names that templates have for an effort: a word, and whether to think at all."""
    if effort is None:
        return {}
    return {"reasoning_effort": effort, **thinking_variables(effort != "none")}


def thinking_variables(thinks: bool) -> dict[str, Any]:
    """The names that templates have for whether to think at all."""
    return {"enable_thinking": thinks}
