from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.conversation.transcripts import TOOLS
from trinity.conversation.rendering import Rendered, render_conversation
from trinity.conversation.tools import chosen, read_tools
from trinity.conversation.traits import Traits, traits_of
from trinity.errors import InputError
from trinity.formats.defaults import ChatTemplate

PLAIN = ChatTemplate("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")
HERMES = ChatTemplate(
    "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content or '' }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}"
    "</tool_call>{% endfor %}{% endfor %}"
    "{% if enable_thinking %}<think>{% endif %}"
)
AS_TEXT = ChatTemplate(
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
    "[TOOL_CALLS]{{ c.id + c.function.name + c.function.arguments }}{% endfor %}{% endfor %}"
)
USER = {"role": "user", "content": "Hi"}
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "function": {"name": "get_time", "arguments": '{"a": "é"}'}}],
}
RESULT = {"role": "tool", "content": "noon", "tool_call_id": "c1"}


def render(template: ChatTemplate, messages: Sequence[dict[str, Any]], **names: Any) -> Rendered:
    return render_conversation((template,), messages, **names)


def test_traits_of_templates() -> None:
    assert traits_of(PLAIN) == Traits(tools=False, calls=False, results=True)
    assert traits_of(HERMES) == Traits(tools=True, calls=True, results=True)
    assert traits_of(AS_TEXT) == Traits(
        tools=False, calls=True, results=True, arguments_as_text=True, empty_content=True
    )


def test_tools_that_a_template_lists() -> None:
    found = render(HERMES, [USER, CALLED, RESULT], tools=TOOLS)
    assert json.dumps(TOOLS) in found.text
    assert '<tool_call>{"name": "get_time", "arguments": {"a": "é"}}</tool_call>' in found.text
    assert found.dialect.name == "hermes"


def test_tools_without_description_and_parameters() -> None:
    """Templates as gpt-oss's and Hermes' fail for them; others get the tools as they are."""
    needs = ChatTemplate(
        "{% for t in tools %}{{ t.function.name + t.function.description }}"
        "{{ t.function.parameters.properties | length }}{% endfor %}"
    )
    bare = [{"type": "function", "function": {"name": "get_time", "description": None}}]
    assert render(needs, [USER], tools=bare).text == "get_time0"
    assert json.dumps(bare) in render(HERMES, [USER], tools=bare).text


def test_tools_that_a_template_does_not_list() -> None:
    with pytest.raises(InputError, match="does not list tools"):
        render(PLAIN, [USER], tools=TOOLS)
    found = render(PLAIN, [USER, CALLED, RESULT], tools=TOOLS, general=True)
    assert found.dialect.name == "general"
    assert found.text.startswith("[system]You may call functions")
    assert '"name": "weather"' in found.text
    assert '[assistant]<tool_call>\n{"name": "get_time", "arguments": {"a": "é"}}' in found.text
    assert "[user]<tool_response>\nnoon\n</tool_response>" in found.text


def test_tools_join_the_system_text_that_there_is() -> None:
    system = {"role": "system", "content": "Be brief."}
    found = render(PLAIN, [system, USER], tools=TOOLS, general=True)
    assert found.text.startswith("[system]Be brief.\n\nYou may call")
    assert found.text.count("[system]") == 1


def test_tools_for_templates_that_refuse_system_messages() -> None:
    refusing = ChatTemplate(
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
        "{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    )
    found = render(refusing, [USER], tools=TOOLS, general=True)
    assert found.text.startswith("[user]You may call functions")
    assert found.text.endswith("\n\nHi")


def test_arguments_as_the_template_wants_them_and_ids_that_it_takes() -> None:
    found = render(AS_TEXT, [USER, CALLED])
    call_id, _, rest = found.text.partition("[TOOL_CALLS]")[2].partition("get_time")
    assert rest == '{"a": "é"}'
    assert len(call_id) == 9
    assert call_id.isalnum()


def test_go_templates() -> None:
    template = ChatTemplate(
        "{{ if .Tools }}<tools>{{ range .Tools }}{{ . }}{{ end }}</tools>{{ end }}"
        "{{ range .Messages }}<{{ .Role }}>{{ .Content }}{{ range .ToolCalls }}<tool_call>"
        '{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}</tool_call>'
        "{{ end }}{{ end }}{{ if .Think }}<think>{{ end }}",
        "go",
    )
    found = render(
        template, [USER, CALLED, RESULT], tools=TOOLS, variables={"enable_thinking": True}
    )
    assert found.dialect.name == "hermes"
    assert '<tools>{"type":"function","function":{"name":"weather"' in found.text
    assert '<tool_call>{"name": "get_time", "arguments": {"a":"é"}}</tool_call>' in found.text
    assert found.text.endswith("<tool>noon<think>")
    with pytest.raises(InputError, match="no variable 'Think'"):
        render(template, [USER], variables={"Think": True})


def test_variables() -> None:
    assert render(HERMES, [USER], variables={"enable_thinking": True}).text.endswith("<think>")
    with pytest.raises(InputError, match="no variable 'effort'"):
        render(HERMES, [USER], variables={"effort": 1})
    with pytest.raises(InputError, match="messages is set by trinity"):
        render(HERMES, [USER], variables={"messages": []})
    assert render(HERMES, [USER], variables={"effort": None}).text == render(HERMES, [USER]).text


def test_roles_and_reasoning_that_a_template_knows() -> None:
    assert render(PLAIN, [{"role": "developer", "content": "x"}]).text == "[system]x"
    said = {"role": "assistant", "content": "x", "thinking": "hm"}
    assert render(HERMES, [said]).text == "<|assistant|><think>hm</think>x"


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ([{"type": "web_search"}], r"tools\[0\].type is 'web_search'"),
        ([{"type": "function"}], 'has no "function"'),
        ([{"function": {"name": "a b"}}], "name is 'a b'"),
        ([{"function": {"name": "f", "parameters": []}}], "not a JSON schema"),
        ([{"function": {"name": "f", "description": 1}}], "is not text"),
        ([{"function": {"name": "f"}}] * 2, "two tools"),
        ("f", "must be a list"),
        (["f"], r"tools\[0\] is str"),
    ],
)
def test_malformed_tools(tools: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_tools(tools)


def test_choices() -> None:
    tools = read_tools(TOOLS)
    assert chosen(tools, "none") == ()
    assert chosen(tools, "auto") == chosen(tools, "required") == tools
    assert [tool.name for tool in chosen(tools, "get_time")] == ["get_time"]
    with pytest.raises(InputError, match="not one of the tools"):
        chosen(tools, "nope")
    with pytest.raises(InputError, match="there are no tools"):
        chosen((), "required")


def test_a_role_is_usual_or_named_in_the_template() -> None:
    with pytest.raises(InputError, match="message 1 has the role 'asistant'; it must be one of"):
        render(PLAIN, [USER, {"role": "asistant", "content": "x"}])
    critic = ChatTemplate("{% for m in messages %}{{ m.role if m.role == 'critic' }}{% endfor %}")
    assert render(critic, [{"role": "critic", "content": "x"}]).text == "critic"
