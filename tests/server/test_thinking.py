"""Efforts in the words of templates; what a model cannot do is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trinity.formats.defaults import ChatTemplate
from trinity.server.errors import ApiError
from trinity.server.job import ChatJob
from trinity.server.prepared import variables_of
from trinity.server.thinking import effort_variables

QWEN = "{% if enable_thinking is defined and enable_thinking is false %}<think>{% endif %}"
GRANITE = "{%- if thinking %}Respond with <think>{% endif %}"
HARMONY = "{% if reasoning_effort is not defined %}medium{% endif %}<|channel|>"
ALWAYS = "<|assistant|><think>\n"
NEVER = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "effort", "expected"),
    [
        (QWEN, None, {}),
        (QWEN, "none", {"enable_thinking": False}),
        (QWEN, "some", {"enable_thinking": True}),
        (QWEN, "high", {"enable_thinking": True}),
        (GRANITE, "none", {"thinking": False}),
        (HARMONY, "low", {"reasoning_effort": "low"}),
        (HARMONY, "some", {}),
        (ALWAYS, "high", {}),
        (NEVER, "none", {}),
        (QWEN + HARMONY, "low", {"enable_thinking": True, "reasoning_effort": "low"}),
    ],
)
def test_efforts(template: str, effort: str | None, expected: dict[str, Any]) -> None:
    assert effort_variables(effort, "p", template) == expected


@pytest.mark.parametrize(
    ("template", "effort"), [(HARMONY, "none"), (ALWAYS, "none"), (NEVER, "low"), (NEVER, "some")]
)
def test_what_a_model_cannot_do_is_refused(template: str, effort: str) -> None:
    with pytest.raises(ApiError) as found:
        effort_variables(effort, "reasoning.effort", template)
    assert (found.value.status, found.value.param) == (400, "reasoning.effort")


def test_the_servers_names_reach_templates_that_have_them() -> None:
    """A template is told no name that it does not look at, not even a part of one that it does."""
    model: Any = SimpleNamespace(chat_templates=(ChatTemplate(QWEN),))
    names = {"enable_thinking": False, "thinking": True, "date": "today"}
    assert variables_of(model, ChatJob([]), names) == {"enable_thinking": False}
    asked = ChatJob([], effort="some")
    assert variables_of(model, asked, names) == {"enable_thinking": True}
    given = ChatJob([], variables={"enable_thinking": 1})
    assert variables_of(model, given, names) == {"enable_thinking": 1}
