"""Histories that a chat template rejects or drops are rendered from an equivalent history.

The expected text is what jinja2 renders, with transformers' settings, for a history that the
template accepts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tests.conversation.transcripts import TOOLS
from trinity.conversation.rendering import render_conversation
from trinity.errors import TokenizerError
from trinity.formats.defaults import ChatTemplate

ALTERNATE = (
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/...') }}{% endif %}"
)
# As Gemma 2 and the first Mistral Instruct have it.
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    f"{{% for message in messages %}}{ALTERNATE}"
    "<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}\n"
    "{{ message['content'] | trim }}<end_of_turn>\n{% endfor %}"
)
MISTRAL = (
    f"{{{{ bos_token }}}}{{% for message in messages %}}{ALTERNATE}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}"
    "{% endfor %}"
)
# Drops what it does not know; takes a system message only at the beginning, then alternation.
SILENT = (
    "{% for message in messages %}{% if message.role in ('user', 'assistant') %}"
    "<{{ message.role }}>{{ message.content }}{% endif %}{% endfor %}"
)
FIRST = (
    "{% if messages[0].role == 'system' %}<sys>{{ messages[0].content }}</sys>"
    "{% set messages = messages[1:] %}{% endif %}{% for message in messages %}"
    f"{ALTERNATE}<{{{{ message.role }}}}>{{{{ message.content }}}}{{% endfor %}}"
)
# One call a message, as Llama 3.1 to 3.3.
LLAMA = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for message in messages %}"
    "{% if message.tool_calls %}{% if not message.tool_calls|length == 1 %}"
    '{{ raise_exception("This model only supports single tool-calls at once!") }}{% endif %}'
    '<assistant>{{ message.content or \'\' }}{"name": "{{ message.tool_calls[0].function.name }}",'
    ' "parameters": {{ message.tool_calls[0].function.arguments | tojson }}}'
    "{% elif message.role == 'tool' %}<ipython>{{ message.content }}"
    "{% else %}<{{ message.role }}>{{ message.content }}{% endif %}{% endfor %}"
)
TYPED = (
    "{% for m in messages %}<{{ m.role }}>"
    "{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
)
LISTED = "{% for tool in tools %}{{ tool.function.name }}{% endfor %}" + SILENT


def system(text: str) -> dict[str, str]:
    return {"role": "system", "content": text}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def call(*cities: str, content: str | None = None, text: bool = True) -> dict[str, Any]:
    calls = []
    for city in cities:
        arguments: object = {"city": city}
        function = {"name": "weather", "arguments": json.dumps(arguments) if text else arguments}
        calls.append({"id": f"id{city}", "type": "function", "function": function})
    return {"role": "assistant", "content": content, "tool_calls": calls}


def result(city: str) -> dict[str, str]:
    return {"role": "tool", "tool_call_id": f"id{city}", "content": f"sun in {city}"}


def by_jinja(template: str, messages: Sequence[dict[str, Any]], **names: Any) -> str:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    made = environment.from_string(template)
    return made.render(messages=messages, bos_token="<s>", eos_token="</s>", **names)


def by_trinity(template: str, messages: Sequence[dict[str, Any]], **names: Any) -> str:
    found = render_conversation(
        (ChatTemplate(template),), messages, bos_token="<s>", eos_token="</s>", **names
    )
    return found.text


@pytest.mark.parametrize("template", [GEMMA, MISTRAL, SILENT], ids=["gemma", "mistral", "silent"])
@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_system_text_goes_into_the_user_message_that_follows(template: str, role: str) -> None:
    """The texts are joined by a line feed, as in llama.cpp."""
    told = {"role": role, "content": "Be brief."}
    expected = by_jinja(template, [user("Be brief.\nHi"), answer("Hello"), user("Bye")])
    assert by_trinity(template, [told, user("Hi"), answer("Hello"), user("Bye")]) == expected
    late = by_jinja(template, [user("Hi"), answer("Hello"), user("Be brief.\nBye")])
    assert by_trinity(template, [user("Hi"), answer("Hello"), told, user("Bye")]) == late
    assert by_trinity(template, [told]) == by_jinja(template, [user("Be brief.")])


def test_a_system_text_that_the_template_takes_stays() -> None:
    expected = by_jinja(FIRST, [system("A"), user("Hi"), answer("Yes"), user("B\nBye")])
    assert by_trinity(
        FIRST, [system("A"), user("Hi"), answer("Yes"), system("B"), user("Bye")]
    ) == (expected)
    assert by_trinity(FIRST, [system("A"), system("B"), user("Hi")]) == by_jinja(
        FIRST, [system("A\nB"), user("Hi")]
    )


@pytest.mark.parametrize("template", [GEMMA, MISTRAL, FIRST], ids=["gemma", "mistral", "first"])
def test_roles_that_do_not_alternate(template: str) -> None:
    assert by_trinity(template, [user("a"), user("b")]) == by_jinja(template, [user("a\n\nb")])
    assert by_trinity(template, [answer("Hello"), user("Hi")]) == by_jinja(
        template, [user(""), answer("Hello"), user("Hi")]
    )
    assert by_trinity(template, [user("a"), answer("b"), answer("c"), user("d")]) == by_jinja(
        template, [user("a"), answer("b\n\nc"), user("d")]
    )
    assert by_trinity(template, [user("a"), answer(""), user("b")]) in (
        by_jinja(template, [user("a"), answer(""), user("b")]),
        by_jinja(template, [user("a\n\nb")]),
    )


def test_calls_and_results_for_templates_without_tools() -> None:
    text = by_trinity(MISTRAL, [user("a"), call("Rome"), result("Rome"), answer("b"), user("c")])
    written = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    answered = "<tool_response>\nsun in Rome\n</tool_response>"
    assert text == by_jinja(
        MISTRAL, [user("a"), answer(written), user(answered), answer("b"), user("c")]
    )


@pytest.mark.parametrize("listed", [(), TOOLS], ids=["no tools", "tools"])
def test_several_calls_for_a_template_of_one(listed: Sequence[dict[str, Any]]) -> None:
    """Each call is followed by its result, in the order of the calls."""
    history = [
        system("A"), user("Hi"), call("Rome", "Oslo", "Bern", content="Well"), result("Oslo"),
        result("Rome"), result("Bern"), answer("Fine."), user("Bye"),
    ]  # fmt: skip
    expected = by_jinja(
        LLAMA,
        [
            system("A"), user("Hi"), call("Rome", content="Well", text=False), result("Rome"),
            call("Oslo", text=False), result("Oslo"), call("Bern", text=False), result("Bern"),
            answer("Fine."), user("Bye"),
        ],
        tools=list(listed) or None,
    )  # fmt: skip
    assert by_trinity(LLAMA, history, tools=listed) == expected


@pytest.mark.parametrize("template", [LLAMA, LLAMA.replace("{{ message.content or '' }}", "")],
                         ids=["kept", "dropped"])  # fmt: skip
def test_text_beside_a_call_is_what_the_template_makes_of_it(template: str) -> None:
    """Llama 3, Hermes and Mistral were trained without such text: their templates drop it."""
    history = [user("Hi"), call("Rome", content="I look it up."), result("Rome")]
    given = [user("Hi"), call("Rome", content="I look it up.", text=False), result("Rome")]
    assert by_trinity(template, history) == by_jinja(template, given)


def test_text_and_calls_for_a_template_of_either() -> None:
    """As DeepSeek R1's: a message with a text is written without its calls."""
    either = (
        "{% for message in messages %}{% if message.content is none %}"
        "<call>{{ message.tool_calls[0].function.arguments | tojson }}"
        "{% else %}<{{ message.role }}>{{ message.content }}{% endif %}{% endfor %}"
    )
    given = [user("Hi"), answer("I look."), call("Rome", text=False), result("Rome")]
    history = [user("Hi"), call("Rome", content="I look."), result("Rome")]
    assert by_trinity(either, history) == by_jinja(either, given)


def test_contents_as_parts_and_tools_as_a_list() -> None:
    assert by_trinity(TYPED, [user("Hi")]) == "<user>Hi"
    assert by_trinity(LISTED, [user("Hi")]) == "<user>Hi"


def test_what_no_form_helps_is_the_first_refusal() -> None:
    with pytest.raises(TokenizerError, match="never, system"):
        by_trinity("{{ raise_exception('never, ' ~ messages[0].role) }}", [system("A"), user("b")])
