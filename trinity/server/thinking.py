"""Reasoning effort as variables of chat templates."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from trinity.server.ignored import Ignored

# Names of templates' own switches, which are true or false.
_SWITCHES = ("enable_thinking", "thinking")
_DEGREE = "reasoning_effort"
_MARKS = ("<think>", "<|channel>", "<|START_THINKING|>", "[THINK]", "<seed:think>", ".Think")
NONE, SOME = "none", "some"
# Efforts that only some templates support, and their replacements for other templates.
_NEAREST = {NONE: "low", "minimal": "low", "xhigh": "high", "max": "high"}


@lru_cache(maxsize=16)
def can_think(template: str) -> bool:
    """Whether a model with this chat template thinks, or can be told to."""
    return (
        bool(_switches(template)) or _DEGREE in template or any(mark in template for mark in _MARKS)
    )


def effort_variables(ignored: Ignored, effort: str, param: str, template: str) -> dict[str, Any]:
    """Return the chat template's variables for an effort: "none", "some" or a degree.

    A degree such as "low" only turns thinking on if the model has no degrees. Two efforts are noted
    as ignored under the name ``param``: any effort for a model that cannot think, and "none" for
    one that always thinks, which then thinks as little as possible.
    """
    switches, thinks = _switches(template), can_think(template)
    if not thinks:
        if effort != NONE:
            ignored.add(param)
        return {}
    if effort == NONE and not switches:
        ignored.add(param)
    variables: dict[str, Any] = dict.fromkeys(switches, effort != NONE)
    if _DEGREE in template and effort != SOME and not (switches and effort == NONE):
        variables[_DEGREE] = effort if _names(template, effort) else _NEAREST.get(effort, effort)
    return variables


@lru_cache(maxsize=16)
def _switches(template: str) -> tuple[str, ...]:
    """The one switch that counts, if there is one."""
    return tuple(name for name in _SWITCHES if re.search(rf"\b{name}\b(?!_)", template))[:1]


def _names(template: str, degree: str) -> bool:
    """Whether a template compares its effort with this word."""
    return re.search(rf"""(["']){degree}\1""", template) is not None
