"""Requests of Anthropic's API: their prompts, ignored fields, and errors."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from anthropic.types import beta
from starlette.testclient import TestClient

from tests.server.anthropic_calls import GREEDY, HELLO, PATH, post
from tests.server.asgi import strict
from trinity.model import Model
from trinity.server.endpoints.anthropic.blocks import FAILED
from trinity.server.endpoints.anthropic.request import MessagesRequest
from trinity.server.ignored import Ignored
from trinity.server.schemas import decoded

TEXT = {"type": "text", "text": "a"}
BASH = {"type": "bash_20250124", "name": "bash"}


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": "I"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "content[0].source"),
        ({"messages": [{"role": "user", "content": [{"type": "film"}]}]}, "content[0].type"),
        (
            {"messages": [*HELLO, {"role": "assistant", "content": [
                {"type": "tool_use", "id": "a", "name": "f", "input": {}}]}]},
            "messages[1]",
        ),
        (
            {"messages": [{"role": "user", "content": [
                {"type": "document", "source": {"type": "base64", "data": "JVBERi0="}}]}]},
            "messages[0].content[0].source.type",
        ),
        (
            {"messages": [{"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]}]}]},
            "messages[0].content[0].content[0].source",
        ),
        (
            {"messages": [{"role": "user", "content": [
                {"type": "tool_use", "id": "a", "name": "f", "input": {}}]}]},
            "messages[0].content[0]",
        ),
        ({"tools": [{"name": "w"}]}, "tools[0].input_schema"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"type": "computer_20250124", "name": "computer"}]}, "tools[0].type"),
        (
            {"tools": [{"type": "web_search_20250305", "name": "w"}],
             "tool_choice": {"type": "any"}},
            "tool_choice",
        ),
        ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice"),
        ({"thinking": {"type": "enabled", "budget_tokens": 50}}, "thinking.budget_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_refused_by_its_name(
    client: TestClient, body: dict[str, Any], word: str
) -> None:
    response = client.post(PATH, json={"messages": HELLO, **GREEDY, **body})
    assert response.status_code == 400, response.text
    found = strict(response.text)
    assert (found["type"], found["error"]["type"]) == ("error", "invalid_request_error")
    assert word in found["error"]["message"]


def job_of(**body: Any) -> Any:
    data = msgspec.json.encode({"messages": HELLO, **GREEDY, **body})
    return decoded(Ignored(), data, MessagesRequest).whole_job(Ignored())


def test_messages_become_those_of_templates() -> None:
    job = job_of(
        system=[{"type": "text", "text": "A", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "B"}],
        messages=[
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "text", "text": "I ask."},
                {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Paris"}},
                {"type": "tool_use", "id": "b", "name": "clock", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "rain"},
                {"type": "tool_result", "tool_use_id": "b", "is_error": True,
                 "content": [{"type": "text", "text": "broken"}]},
                {"type": "text", "text": "So?"},
            ]},
        ],
    )  # fmt: skip
    system, asked, called, *rest = job.messages
    assert system == {"role": "system", "content": "A\nB"}
    assert asked == {"role": "user", "content": "Weather?"}
    assert (called["content"], called["reasoning_content"]) == ("I ask.", "Hm.")
    assert called["tool_calls"][0]["function"] == {
        "name": "weather",
        "arguments": '{"city":"Paris"}',
    }
    assert rest == [
        {"role": "tool", "tool_call_id": "a", "content": "rain"},
        {"role": "tool", "tool_call_id": "b", "content": FAILED + "broken"},
        {"role": "user", "content": "So?"},
    ]


def test_tools_choices_and_thinking() -> None:
    tools = [{"name": "f", "input_schema": {"type": "object"}, "description": "F"}]
    job = job_of(tools=tools, tool_choice={"type": "any", "disable_parallel_tool_use": True})
    assert job.tools == [
        {
            "type": "function",
            "function": {"name": "f", "description": "F", "parameters": {"type": "object"}},
        }
    ]
    assert (job.tool_choice, job.parallel_tool_calls) == ("required", False)
    assert job_of(tools=tools, tool_choice={"type": "none"}).tool_choice == "none"
    assert job_of(tools=tools, tool_choice={"type": "tool", "name": "f"}).tool_choice == "f"
    job = job_of(thinking={"type": "enabled", "budget_tokens": 5}, output_config={"effort": "low"})
    assert job.effort == "low"
    assert job.reasoning_budget == 5
    assert job_of(thinking={"type": "disabled"}).effort == "none"
    assert job_of(thinking={"type": "adaptive"}).effort is None
    assert job_of().effort is None
    assert job_of(top_k=3, top_p=0.5, stop_sequences=["x"]).options == {
        "max_tokens": 12, "temperature": 0, "top_k": 3, "top_p": 0.5, "stop": ["x"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "thinking"),
        ({"thinking": {"type": "adaptive"}}, ""),
        ({"output_config": {"effort": "low"}}, "output_config.effort"),
        (  # what Claude Code sends
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"},
             "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
             "metadata": {"user_id": "u"},
             "system": [{"type": "text", "text": "x-anthropic-billing-header: a"}, TEXT]},
            "context_management, system[0], output_config.effort",
        ),
        ({"system": [{**TEXT, "cache_control": {"type": "ephemeral", "scope": "global"}}]}, ""),
        ({"service_tier": "flex", "speed": "fast"}, "service_tier, speed"),
        ({"mcp_servers": []}, ""),
        ({"mcp_servers": [{"type": "url"}]}, "mcp_servers"),
        ({"inference_geo": "us", "container": "c", "metadata": None}, "inference_geo, container"),
        ({"tools": [{"name": "f", "input_schema": {}, "defer_loading": True}],
          "tool_choice": {"type": "none"}}, "tools[0].defer_loading"),
        ({"tools": [{"type": "web_search_20260318", "name": "web_search", "max_uses": 3}]},
         "tools[0].max_uses, tools[0]"),
        ({"messages": [*HELLO, {"role": "assistant", "content": [
            {"type": "redacted_thinking", "data": "x"}, TEXT]}, *HELLO]},
         "messages[1].content[0]"),
        ({"messages": [{"role": "user", "content": [{**TEXT, "citations": None}, {
            "type": "document", "source": {"type": "text", "data": "b"},
            "citations": {"enabled": True}}]}]},
         "messages[0].content[1].citations.enabled"),
    ],
)  # fmt: skip
def test_what_changes_nothing_is_accepted_and_named(
    client: TestClient, body: dict[str, Any], names: str
) -> None:
    response = client.post(PATH, json={"messages": HELLO, **GREEDY, "max_tokens": 6, **body})
    assert response.status_code == 200, response.text
    assert response.headers.get("x-trinity-ignored", "") == names


def test_thinking_that_the_model_cannot_do_leaves_the_answer_alone(client: TestClient) -> None:
    thinking = {"type": "enabled", "budget_tokens": 5}
    assert post(client, thinking=thinking)["content"] == post(client)["content"]


def test_an_assistants_last_message_is_continued(client: TestClient, model: Model) -> None:
    prompt = "<|im_start|>user\nWho was Pierre?<|im_end|>\n<|im_start|>assistant\nPierre was a"
    alone = model.generate(prompt, parse_special=True, temperature=0, max_tokens=12)
    for content in ("Pierre was a", [{"type": "text", "text": "Pierre was a"}]):
        found = post(client, messages=[*HELLO, {"role": "assistant", "content": content}])
        assert found["content"] == [{"type": "text", "text": alone.text}]
        usage = found["usage"]
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] == alone.prompt_tokens


def test_what_is_for_anthropics_billing_is_not_told_the_model() -> None:
    billing = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1;"}
    assert job_of(system=[billing, TEXT]).messages[0] == {"role": "system", "content": "a"}


def test_blocks_that_other_servers_wrote_into_a_history() -> None:
    ignored = Ignored()
    tabs = [{"tab_id": 1, "title": "News", "url": "https://example.org", "active": True}]
    messages: list[Any] = [
        *HELLO,
        {"role": "assistant", "content": [
            {"type": "compaction", "content": "They spoke of Pierre."},
            {"type": "compaction", "content": None},
            {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}, "trigger": None},
            {"type": "advisor_tool_result", "tool_use_id": "s", "content": {"type": "x"}},
            {"type": "text_editor_code_execution_tool_result", "tool_use_id": "s", "content": {}},
            {"type": "mcp_tool_listing", "mcp_server_name": "m", "tools": []},
            TEXT,
            {"type": "tool_use", "id": "t", "name": "browse", "input": {}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [
            {"type": "browser_state", "tabs": tabs}]}]},
    ]  # fmt: skip
    request = decoded(
        ignored, msgspec.json.encode({"messages": messages, "max_tokens": 5}), MessagesRequest
    )
    found = request.whole_job(ignored).messages
    assert found[1]["content"] == "They spoke of Pierre.\na"
    assert strict(str(found[2]["content"])) == {"tabs": tabs}
    assert ignored.names == [f"messages[1].content[{place}]" for place in (1, 2, 3, 4, 5)]


def test_plain_messages_of_one_role_are_joined() -> None:
    twice = [*HELLO, {"role": "user", "content": "Or Andrew?"}]
    assert job_of(messages=twice).messages == [
        {"role": "user", "content": "Who was Pierre?\nOr Andrew?"}
    ]


def test_documents_and_search_results_become_text() -> None:
    source = {"type": "content", "content": [TEXT, {"type": "text", "text": "b"}]}
    (asked,) = job_of(messages=[{"role": "user", "content": [
        {"type": "document", "title": "T", "context": "C",
         "source": {"type": "text", "media_type": "text/plain", "data": "D"}},
        {"type": "document", "source": source},
        {"type": "search_result", "source": "S", "title": "T", "content": [TEXT]},
        {"type": "text", "text": "So?"},
    ]}]).messages  # fmt: skip
    assert asked["content"] == (
        "<document>\n<title>T</title>\n<context>C</context>\nD\n</document>\n"
        "<document>\na\nb\n</document>\n"
        "<search_result>\n<source>S</source>\n<title>T</title>\na\n</search_result>\nSo?"
    )


@pytest.mark.parametrize(
    ("tool", "properties", "required"),
    [
        (BASH, {"command", "restart"}, []),
        (
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
            {"command", "path", "view_range", "file_text", "old_str", "new_str", "insert_line",
             "insert_text"},
            ["command", "path"],
        ),
        (
            {"type": "text_editor_20250124", "name": "str_replace_editor"},
            {"command", "path", "view_range", "file_text", "old_str", "new_str", "insert_line"},
            ["command", "path"],
        ),
    ],
)  # fmt: skip
def test_anthropics_client_tools_have_their_documented_arguments(
    tool: dict[str, Any], properties: set[str], required: list[str]
) -> None:
    (found,) = job_of(tools=[tool]).tools
    assert found["function"]["name"] == tool["name"]
    assert set(found["function"]["parameters"]["properties"]) == properties
    assert found["function"]["parameters"]["required"] == required


def test_memorys_arguments_are_those_of_the_clients_commands() -> None:
    """The official package declares the commands that it supports."""
    commands = (
        beta.BetaMemoryTool20250818CreateCommand,
        beta.BetaMemoryTool20250818DeleteCommand,
        beta.BetaMemoryTool20250818InsertCommand,
        beta.BetaMemoryTool20250818RenameCommand,
        beta.BetaMemoryTool20250818StrReplaceCommand,
        beta.BetaMemoryTool20250818ViewCommand,
    )
    (found,) = job_of(tools=[{"type": "memory_20250818", "name": "memory"}]).tools
    properties = found["function"]["parameters"]["properties"]
    assert set(properties) == {name for one in commands for name in one.model_fields}
    names = {one.model_fields["command"].annotation.__args__[0] for one in commands}  # type: ignore[union-attr]
    assert set(properties["command"]["enum"]) == names


def test_examples_of_a_tools_input_are_told() -> None:
    tool = {"name": "f", "input_schema": {}, "description": "F", "input_examples": [{"a": 1}]}
    (found,) = job_of(tools=[tool]).tools
    assert found["function"]["description"] == 'F\nExample: {"a":1}'


def test_the_earlier_name_of_the_output_format(client: TestClient) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"],
              "additionalProperties": False}  # fmt: skip
    form = {"type": "json_schema", "schema": schema}
    for body in ({"output_format": form}, {"output_config": {"format": form}}):
        text = post(client, **body)["content"][0]["text"]
        assert strict(text) == {"a": 1}
