"""Anthropic's messages: judged by the types of its client, and by what it makes of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message, MessageTokensCount, RawMessageStreamEvent, beta
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from tests.server.asgi import strict
from tests.server.named_events import named_events
from trinity.conversation.parts import CallArguments, CallStart, Reasoning, Text
from trinity.model import Model
from trinity.runtime.generation import Timings
from trinity.server.endpoints.anthropic.answer import MessageWriter
from trinity.server.endpoints.anthropic.blocks import FAILED
from trinity.server.endpoints.anthropic.request import MessagesRequest
from trinity.server.errors import ApiError
from trinity.server.job import End, Piece
from trinity.server.schemas import decoded, encode

PATH = "/v1/messages"
HELLO = [{"role": "user", "content": "Who was Pierre?"}]
GREEDY = {"temperature": 0, "max_tokens": 12}
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
PIECES = (
    Piece(0, (Reasoning("I think"),)),
    Piece(0, (Reasoning(" so."), Text("Let me"))),
    Piece(0, (Text(" see."), CallStart(0, "call1", "weather"), CallArguments(0, '{"ci'))),
    Piece(0, (CallArguments(0, 'ty": "Paris"}'), CallStart(1, "call2", "clock"))),
    Piece(0, (CallArguments(1, "{}"),)),
)
TIMINGS = Timings(prompt_tokens=20, cached_tokens=5, completion_tokens=9)
CALLED = End(0, "stop", TIMINGS, called=True)


def post(client: TestClient, **body: Any) -> Any:
    response = client.post(PATH, json={"messages": HELLO, **GREEDY, **body})
    assert response.status_code == 200, response.text
    Message.model_validate(strict(response.text))
    return strict(response.text)


def written(
    pieces: Sequence[Piece], end: End, *, most: int = 9, **options: Any
) -> tuple[Any, list[Any]]:
    writer = MessageWriter("m", 20, most, **options)
    found = [strict(encode(event)) for event in writer.begin()]
    for piece in pieces:
        found += [strict(encode(event)) for event in writer.add(piece)]
    found += [strict(encode(event)) for event in writer.end(end)]
    return strict(encode(writer.message)), found


def accumulated(events: Sequence[Any]) -> Any:
    snapshot, buffers = None, dict[int, bytes]()
    for event in events:
        if event["type"] != "ping":
            snapshot = accumulate_event(
                event=EVENT.validate_python(event), current_snapshot=snapshot, json_bufs=buffers
            )
    return snapshot


def test_answer_is_the_models(client: TestClient, model: Model) -> None:
    answer = post(client, system="Be short.")
    prompt = (
        "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nWho was Pierre?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    alone = model.generate(prompt, parse_special=True, temperature=0, max_tokens=12)
    assert answer["content"] == [{"type": "text", "text": alone.text}]
    assert answer["stop_reason"] == "max_tokens"
    usage = answer["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == alone.prompt_tokens
    assert usage["output_tokens"] == 12


def test_stream_is_the_answer(client: TestClient) -> None:
    response = client.post(PATH, json={"messages": HELLO, "stream": True, **GREEDY})
    events = named_events(response.content)
    assert [event["type"] for event in events[:3]] == [
        "message_start", "ping", "content_block_start",
    ]  # fmt: skip
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    whole, found = post(client), accumulated(events)
    assert found.content[0].text == whole["content"][0]["text"]
    assert found.stop_reason == whole["stop_reason"]
    assert found.usage.output_tokens == 12


def test_thinking_text_and_calls_are_blocks() -> None:
    message, events = written(PIECES, CALLED)
    Message.model_validate(message)
    assert message["content"] == [
        {"type": "thinking", "thinking": "I think so.", "signature": ""},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "call1", "name": "weather", "input": {"city": "Paris"}},
        {"type": "tool_use", "id": "call2", "name": "clock", "input": {}},
    ]
    assert message["stop_reason"] == "tool_use"
    assert message["usage"] == {
        "input_tokens": 15, "output_tokens": 9, "cache_read_input_tokens": 5,
        "cache_creation_input_tokens": 0,
    }  # fmt: skip
    snapshot = accumulated(events)
    dumped = snapshot.model_dump(mode="json")
    assert [block["type"] for block in dumped["content"]] == [b["type"] for b in message["content"]]
    assert dumped["content"][0]["thinking"] == "I think so."
    assert dumped["content"][2]["input"] == {"city": "Paris"}
    assert dumped["usage"]["cache_read_input_tokens"] == 5
    indices = [event["index"] for event in events if "index" in event]
    assert indices == sorted(indices)
    # Blocks begin empty.
    starts = [e["content_block"] for e in events if e["type"] == "content_block_start"]
    assert [start.get("text", start.get("thinking", "")) for start in starts] == [""] * 4


def test_thinking_may_be_left_out() -> None:
    message, events = written(PIECES, CALLED, shows_thinking=False)
    assert message["content"][0] == {"type": "thinking", "thinking": "", "signature": ""}
    assert not [e for e in events if e.get("delta", {}).get("type") == "thinking_delta"]


@pytest.mark.parametrize(
    ("end", "most", "reason", "stop"),
    [
        (End(0, "stop", TIMINGS), 50, "end_turn", None),
        (End(0, "stop", TIMINGS, stop="x"), 50, "stop_sequence", "x"),
        (End(0, "length", TIMINGS), 9, "max_tokens", None),
        (End(0, "length", TIMINGS), 50, "model_context_window_exceeded", None),
        (CALLED, 50, "tool_use", None),
    ],
)
def test_why_it_stopped(end: End, most: int, reason: str, stop: str | None) -> None:
    message, events = written([Piece(0, (Text("a"),))], end, most=most)
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, stop)
    own = {"token_hash": end.token_hash}
    assert events[-2]["delta"] == {"stop_reason": reason, "stop_sequence": stop} | own


def test_a_call_that_was_cut_has_no_input() -> None:
    message, _ = written(PIECES[:3], End(0, "length", TIMINGS))
    assert message["content"][-1]["input"] == {}
    assert message["stop_reason"] == "max_tokens"


def test_stop_sequences(client: TestClient) -> None:
    whole = post(client)["content"][0]["text"]
    word = whole.split()[1]
    answer = post(client, stop_sequences=[word])
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", word)
    assert answer["content"][0]["text"] == whole.partition(word)[0]


def test_count_tokens_counts_what_is_evaluated(client: TestClient) -> None:
    response = client.post(f"{PATH}/count_tokens", json={"messages": HELLO, "system": "a b"})
    count = MessageTokensCount.model_validate(strict(response.text)).input_tokens
    usage = post(client, system="a b")["usage"]
    assert count == usage["input_tokens"] + usage["cache_read_input_tokens"]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "images"),
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
            "messages[0].content[0].content[0].type: images",
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


def test_errors_have_anthropics_form_everywhere(client: TestClient) -> None:
    body = {"messages": HELLO, **GREEDY}
    for path, kwargs, kind in (
        (PATH, {"json": {**body, "model": "nope"}}, "not_found_error"),
        (PATH, {"content": b"{"}, "invalid_request_error"),
        (f"{PATH}/nothing", {"json": {}}, "not_found_error"),
        (PATH, {"json": body, "headers": {"host": "evil.example"}}, "permission_error"),
    ):
        found = strict(client.post(path, **kwargs).text)  # type: ignore[arg-type]
        assert (found["type"], found["error"]["type"]) == ("error", kind)
    long = client.post(PATH, json={**body, "messages": [{"role": "user", "content": "a " * 2000}]})
    assert "512" in strict(long.text)["error"]["message"]


def job_of(**body: Any) -> Any:
    data = msgspec.json.encode({"messages": HELLO, **GREEDY, **body})
    return decoded(data, MessagesRequest).whole_job()


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
        "name": "weather", "arguments": '{"city":"Paris"}',
    }  # fmt: skip
    assert rest == [
        {"role": "tool", "tool_call_id": "a", "content": "rain"},
        {"role": "tool", "tool_call_id": "b", "content": FAILED + "broken"},
        {"role": "user", "content": "So?"},
    ]


def test_tools_choices_and_thinking() -> None:
    tools = [{"name": "f", "input_schema": {"type": "object"}, "description": "F"}]
    job = job_of(tools=tools, tool_choice={"type": "any", "disable_parallel_tool_use": True})
    assert job.tools == [
        {"type": "function",
         "function": {"name": "f", "description": "F", "parameters": {"type": "object"}}}
    ]  # fmt: skip
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


TEXT = {"type": "text", "text": "a"}
BASH = {"type": "bash_20250124", "name": "bash"}


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
    """The official package declares the commands that it runs."""
    commands = (
        beta.BetaMemoryTool20250818CreateCommand, beta.BetaMemoryTool20250818DeleteCommand,
        beta.BetaMemoryTool20250818InsertCommand, beta.BetaMemoryTool20250818RenameCommand,
        beta.BetaMemoryTool20250818StrReplaceCommand, beta.BetaMemoryTool20250818ViewCommand,
    )  # fmt: skip
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


def test_a_failure_ends_a_stream_with_an_error(client: TestClient) -> None:
    from trinity.server.service import Answers

    def break_down(*arguments: Any) -> Any:
        raise ApiError(503, "the server is being stopped")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Answers, "_read", break_down)
        response = client.post(PATH, json={"messages": HELLO, "stream": True, **GREEDY})
    assert named_events(response.content)[-1] == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "the server is being stopped"},
    }
