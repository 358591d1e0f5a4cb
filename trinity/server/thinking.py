"""How much a model shall think, in the words of its chat template."""

from __future__ import annotations

import re
from typing import Any

from trinity.server.errors import ApiError

# Names of templates' own switches, which are true or false.
_SWITCHES = ("enable_thinking", "thinking")
_DEGREE = "reasoning_effort"
_MARKS = ("<think>", "<|channel>", "<|START_THINKING|>", "[THINK]", "<seed:think>", ".Think")
NONE, SOME = "none", "some"


def can_think(template: str) -> bool:
    """Whether a model with this chat template thinks, or can be told to."""
    return (
        bool(_switches(template)) or _DEGREE in template or any(mark in template for mark in _MARKS)
    )


def effort_variables(effort: str | None, param: str, template: str) -> dict[str, Any]:
    """What a template is told of an effort: "none", "some" or a degree such as "low".

    A model that cannot think less or more than it does thinks as it does for any degree. Raises:
    ApiError where it cannot do without, or cannot think at all; ``param`` said the effort.
    """
    if effort is None:
        return {}
    switches, thinks = _switches(template), can_think(template)
    if effort == NONE:
        if thinks and not switches:
            raise ApiError(400, f"{param}: the model cannot do without thinking", param)
        return dict.fromkeys(switches, False)
    if not thinks:
        raise ApiError(400, f"{param}: the model's chat template knows no thinking", param)
    found: dict[str, Any] = dict.fromkeys(switches, True)
    if _DEGREE in template and effort != SOME:
        found[_DEGREE] = effort
    return found


def _switches(template: str) -> list[str]:
    """The one switch that counts, if there is one."""
    return [name for name in _SWITCHES if re.search(rf"\b{name}\b(?!_)", template)][:1]
