"""Reasoning effort in the terms of chat templates; unsupported ones are named as ignored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from trinity.formats.defaults import ChatTemplate
from trinity.server.endpoints.chat_request import ChatRequest
from trinity.server.endpoints.responses.request import ResponsesRequest
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignored
from trinity.server.job import ChatJob
from trinity.server.prepared import variables_of
from trinity.server.thinking import effort_variables

QWEN = "{% if enable_thinking is defined and enable_thinking is false %}<think>{% endif %}"
GRANITE = "{%- if thinking %}Respond with <think>{% endif %}"
HARMONY = "{% if reasoning_effort is not defined %}medium{% endif %}<|channel|>"
XHIGH = "{% if reasoning_effort == 'xhigh' %}more{% endif %}"
ALWAYS = "<|assistant|><think>\n"
NEVER = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "effort", "expected"),
    [
        (QWEN, "none", {"enable_thinking": False}),
        (QWEN, "some", {"enable_thinking": True}),
        (QWEN, "high", {"enable_thinking": True}),
        (GRANITE, "none", {"thinking": False}),
        (HARMONY, "low", {"reasoning_effort": "low"}),
        (HARMONY, "some", {}),
        (HARMONY, "minimal", {"reasoning_effort": "low"}),
        (HARMONY, "max", {"reasoning_effort": "high"}),
        (XHIGH, "xhigh", {"reasoning_effort": "xhigh"}),
        (QWEN + HARMONY, "none", {"enable_thinking": False}),
        (ALWAYS, "high", {}),
        (NEVER, "none", {}),
        (QWEN + HARMONY, "low", {"enable_thinking": True, "reasoning_effort": "low"}),
    ],
)
def test_efforts(template: str, effort: str, expected: dict[str, Any]) -> None:
    assert effort_variables(Ignored(), effort, "p", template) == expected


@pytest.mark.parametrize(
    ("template", "effort", "expected"),
    [
        (HARMONY, "none", {"reasoning_effort": "low"}),
        (ALWAYS, "none", {}),
        (NEVER, "low", {}),
        (NEVER, "some", {}),
    ],
)
def test_what_a_model_cannot_do_is_ignored(
    template: str, effort: str, expected: dict[str, Any]
) -> None:
    found = Ignored()
    assert effort_variables(found, effort, "reasoning.effort", template) == expected
    assert found.names == ["reasoning.effort"]
    with pytest.raises(ApiError) as refused:
        effort_variables(Ignored(strict=True), effort, "reasoning.effort", template)
    assert (refused.value.status, refused.value.param) == (400, "reasoning.effort")


def test_the_servers_names_reach_templates_that_have_them() -> None:
    """A template gets only the names that it uses, not even part of such a name."""
    model: Any = SimpleNamespace(chat_templates=(ChatTemplate(QWEN),))
    names = {"enable_thinking": False, "thinking": True, "date": "today"}
    assert variables_of(Ignored(), model, ChatJob([]), names) == {"enable_thinking": False}
    asked = ChatJob([], effort="some")
    assert variables_of(Ignored(), model, asked, names) == {"enable_thinking": True}
    given = ChatJob([], variables={"enable_thinking": 1})
    assert variables_of(Ignored(), model, given, names) == {"enable_thinking": 1}


@pytest.mark.parametrize(
    "name",
    [
        "thinking_budget_tokens",
        "reasoning_budget_tokens",
        "thinking_token_budget",
        "thinking_budget",
    ],
)
def test_budgets_under_other_servers_names(name: str) -> None:
    def budget(**fields: object) -> int | None:
        body = msgspec.convert(
            {"messages": [{"role": "user", "content": "a"}], **fields}, ChatRequest
        )
        return body.job(Ignored(), body.box(Ignored()), whole=True).reasoning_budget

    assert budget(**{name: 7}) == budget(**{name: 7, "reasoning": {"max_tokens": 7}}) == 7
    assert budget(**{name: 0}) == 0
    assert budget(**{name: -1}) is None
    with pytest.raises(ApiError, match="differ; give one of them"):
        budget(**{name: 7, "reasoning": {"max_tokens": 8}})


def test_a_budget_of_responses() -> None:
    body = msgspec.convert({"input": "a", "reasoning": {"max_tokens": 7}}, ResponsesRequest)
    assert body.reasoning is not None
    assert body.reasoning.max_tokens == 7
