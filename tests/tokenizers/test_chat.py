"""Chat templates: features that published ones use, and attacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from tests.tokenizers.conftest import TokenizerOf
from trinity.errors import InputError, TokenizerError
from trinity.tokenizers.chat import render_chat

MESSAGES = [
    {"role": "user", "content": "Hi é"},
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": " <b> "},
]
LLAMA_3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content ="
    " '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim"
    " + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
    "{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant"
    "<|end_header_id|>\n\n' }}{% endif %}"
)


def test_llama_3() -> None:
    text = render_chat(LLAMA_3, MESSAGES, bos_token="<|begin_of_text|>")
    assert text == (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi é<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nYes?<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\n<b><|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    without = render_chat(LLAMA_3, MESSAGES, add_generation_prompt=False)
    assert without.endswith("<b><|eot_id|>")


@pytest.mark.full
def test_llama_3_is_encoded_with_one_bos(tokenizer_of: TokenizerOf) -> None:
    tokenizer = tokenizer_of("llama-bpe")
    text = render_chat(LLAMA_3, MESSAGES, bos_token="<|begin_of_text|>")
    ids = tokenizer.encode(text, parse_special=True)
    assert ids[:3] == [128000, 128006, 882]
    assert ids.count(128000) == 1
    assert ids.count(128009) == 3
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("phi-3", "<s><|user|>\nHi é<|end|>\n<|assistant|>\nYes?<|end|>\n"),
        ("qwen2", "<|im_start|>system\nYou are a helpful assistant<|im_end|>\n<|im_start|>user\n"),
    ],
)
def test_templates_of_real_files(name: str, start: str, tokenizer_of: TokenizerOf) -> None:
    template = tokenizer_of(name).chat_template
    assert template is not None
    assert render_chat(template, MESSAGES, bos_token="<s>").startswith(start)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{% if true %}\n  a\n{% endif %}\nb", "  a\nb"),  # trimmed as transformers does
        ("  {% if true %}x{% endif %}", "x"),
        (
            "{% for m in messages %}{% generation %}{{ m.role[0] }}{% endgeneration %}{% endfor %}",
            "uau",
        ),
        ("{% for i in 'abc' %}{% if loop.last %}{% break %}{% endif %}{{ i }}{% endfor %}", "ab"),
        ("{% for m in messages if m.role == 'user' %}{{ loop.length }}{% endfor %}", "22"),
        ("{% for m in [] %}x{% else %}none{% endfor %}", "none"),
        ("{{ messages[-1]['content'] | trim }}{{ messages[1:] | length }}", "<b>2"),
        (
            "{% set n = namespace(i=0) %}{% for m in [2, 3] %}{% set n.i = n.i + m %}{% endfor %}"
            "{{ n.i }}",
            "5",
        ),
        ("{{ {'é': '<', 'a': [1, none, true]} | tojson }}", '{"é": "<", "a": [1, null, true]}'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=2, sort_keys=True) }}", '{\n  "a": 2,\n  "b": 1\n}'),
        ("{% macro f(a, b=2) %}{{ a * b }}{% endmacro %}{{ f(3) }}{{ f('x', b=3) }}", "6xxx"),
        ("{{ messages | map(attribute='role') | join(', ') }}", "user, assistant, user"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "2"),
        (
            "{{ '%s-%03d' % ('a', 7) }}{{ '{}{:>3}'.format(1, 2) }}{{ '%s' | format(3) }}",
            "a-0071  23",
        ),
        (
            "{{ 'a,b'.split(',') | last }}{{ 'abab'.replace('a', '') }}{{ 'x' ~ 1 ~ none }}",
            "bbbx1None",
        ),
        (
            "{{ 'ab' | replace('b', 'c') }}{{ 'a\nb' | indent(2) }}{{ [3, 1] | sort | first }}",
            "aca\n  b1",
        ),
        (
            "{{ 'Title case'.title() }}{{ 'x'.startswith('x') }}{{ ' q '.strip() }}",
            "Title CaseTrueq",
        ),
        (
            "{% for k, v in {'p': 1}.items() %}{{ k }}{{ v }}{% endfor %}{{ 2 ** 10 // 3 % 7 }}",
            "p15",
        ),
        ("{{ tools is none }}{{ missing }}{{ missing is defined }}{{ x }}", "TrueFalse7"),
        ("{{ strftime_now('%Y') | length }}{{ range(3) | list }}", "4[0, 1, 2]"),
        ("{% set x %}a{{ 1 }}{% endset %}{% filter upper %}{{ x }}{% endfilter %}", "A1"),
        (
            "{{ dict(a=1, **{'b': 2}) }}{{ dict.fromkeys('ab', 1) }}",
            "{'a': 1, 'b': 2}{'a': 1, 'b': 1}",
        ),
        (
            "{% set n = namespace({'a': 1}, self=2) %}{% set n.b = 3 %}{{ n.a ~ n.self ~ n.b }}",
            "123",
        ),
        ("{{ eos_token }}{{ bos_token }}{{ 'a' if add_generation_prompt else 'b' }}", "ESa"),
    ],
)
def test_what_templates_use(template: str, text: str) -> None:
    assert render_chat(template, MESSAGES, bos_token="S", eos_token="E", x=7) == text


def test_tools_and_nested_content_arrive() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"a": [1, 2]}}}]
    messages = [{"role": "user", "content": [{"type": "text", "text": "T"}], "tool_calls": None}]
    template = "{{ tools | tojson }}|{{ messages[0].content[0].text }}|{{ tools[0].function.name }}"
    expected = f"{json.dumps(tools)}|T|f"
    assert render_chat(template, messages, tools=tools) == expected


def test_a_broken_template_is_told_when_used() -> None:
    with pytest.raises(TokenizerError, match=r"broken at line 2: .*Expected an expression"):
        render_chat("a\n{% for %}", MESSAGES)
    with pytest.raises(TokenizerError, match="No filter named 'nosuch'"):
        render_chat("{{ 1 | nosuch }}", MESSAGES)


def test_a_template_may_refuse() -> None:
    with pytest.raises(TokenizerError, match="refuses these messages: roles must alternate"):
        render_chat("{{ raise_exception('roles must alternate') }}", MESSAGES)


@pytest.mark.parametrize(
    "template",
    [
        "{{ 1 / 0 }}",
        "{{ missing.name }}",
        "{{ messages[0].content.a.b }}",
        "{{ missing() }}",
        "{{ undefined_thing | tojson }}",
        "{% include 'x' %}",
        "{% extends 'x' %}",
        "{% import 'x' as x %}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ (''|attr('__class__')).__mro__ }}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ '{a.__init__.__globals__}'.format_map({'a': cycler}) }}",
        "{{ raise_exception.__globals__.x }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ self.__init__.__globals__ }}",
        "{{ lipsum.__globals__.os }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ " + "1+" * 5000 + "1 }}",
        "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
        "{% for i in [1] %}" * 30 + "{% endfor %}" * 30,
        "{{ 9" + "9" * 5000 + " }}",
        "x" * 1_000_000,
    ],
)
def test_failing_templates_are_tokenizer_errors(template: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        render_chat(template, MESSAGES)
    assert len(str(caught.value)) < 1000


def test_what_is_set_for_training_is_not_seen_outside() -> None:
    """As with transformers' tag, which is a call block."""
    template = "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}"
    assert render_chat(template, MESSAGES) == "21"


def test_values_that_are_no_json_are_named() -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "user", "content": {1, 2}}]
    with pytest.raises(InputError, match=r"^messages\[1\]\.content is of type set; expected"):
        render_chat("x", messages)
    with pytest.raises(InputError, match=r"^date is of type object"):
        render_chat("x", MESSAGES, date=object())


def test_characters_that_have_no_utf8_form() -> None:
    assert render_chat("{{ messages[0].content }}", [{"content": "\ud800\x00"}]) == "\ud800\x00"


def test_a_templates_words_do_not_reach_the_terminal() -> None:
    words = "'\\x1b[2Jé\\n\\x07\\u202e'"
    for template in (f"{{{{ raise_exception({words}) }}}}", f"{{{{ {{}}[{words}].x }}}}"):
        with pytest.raises(TokenizerError, match=r"\\x1b\[2Jé\\n\\x07\\u202e") as caught:
            render_chat(template, MESSAGES)
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("template", ["{{ raise_exception(w) }}", "{{ {}[w].x }}", "{% WORDS %}"])
def test_a_templates_words_are_cut(template: str) -> None:
    """The shown form is cut: an escape has up to ten characters."""
    words = "\U000e0001" * 1000
    with pytest.raises(TokenizerError) as caught:
        render_chat(template.replace("WORDS", words), MESSAGES, w=words)
    assert len(str(caught.value)) < 700


def test_the_time_zone_is_the_callers() -> None:
    code = """
from datetime import datetime
from trinity.tokenizers.chat import render_chat
times = [f"{datetime.now():%d %H}"]
text = render_chat("{{ strftime_now('%d %H') }}", [])
times.append(f"{datetime.now():%d %H}")
print(text in times)
"""
    environment = {**os.environ, "TZ": "XYZ-5"}
    out = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert out.strip() == "True"


def test_nothing_is_imported_while_rendering() -> None:
    """The process that renders cannot open files."""
    code = r"""
import sys
from trinity.processes.template_sandbox import answer
before = set(sys.modules)
for expression in (
    "lipsum()", "[1]|pprint", "1/0", "x.y.z", "'a b'|wordwrap(1)", "'a.com'|urlize", "[1]|random",
    "'%s' % 1", "strftime_now('%c %Z')", "'<a>'|striptags", "1|filesizeformat", "{'a': 1}|xmlattr",
    "'é'|urlencode", "1.5|round", "[2,1]|sort", "'\N{EM DASH}'", "''.__class__", "(",
    "raise_exception(1)", "'é'.encode()", "1()", "'a'|tojson", "range(9)|batch(2)|list",
    "''|attr('__class__')", "dict(a=1)|dictsort", "'a'|indent", "1|int(base=3)", "cycler(1).next()",
):
    answer({"": "{{ " + expression + " }}"})
print(*sorted(set(sys.modules) - before))
"""
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert out.split() == []


GROWN = (  # as in Reka-Edge's template
    "{% set ns = namespace(out='') %}{% for m in messages %}"
    "{% set ns.out = ns.out ~ m.role ~ ': ' ~ m.content ~ '<sep>' %}{% endfor %}{{ ns.out }}"
)
SQUARE = (  # as in Gemma 4's: each message looks at all
    "{% for m in messages %}{% set ns = namespace(n=0) %}{% for o in messages %}"
    "{% if o.role == 'user' and o.content %}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}"
    "{{ ns.n }}{% endfor %}"
)


@pytest.mark.full
def test_texts_grown_over_many_messages_are_no_attack() -> None:
    messages = [{"role": "user", "content": "word " * 145}] * 401
    expected = f"user: {messages[0]['content']}<sep>" * 401
    assert len(expected) > 290_000
    assert render_chat(GROWN, messages) == expected
    assert render_chat(SQUARE, messages) == "401" * 401


def test_much_text_of_little_is_refused() -> None:
    with pytest.raises(TokenizerError, match="to 300000 characters; at most"):
        render_chat("{{ 'a' * 300000 }}", MESSAGES)


def test_long_conversations_are_no_attack() -> None:
    messages = [{"role": "user", "content": "word " * 20_000}] * 100
    text = render_chat(LLAMA_3, messages, bos_token="<s>")
    assert len(text) > 9_000_000


def test_renderings_in_threads() -> None:
    results: list[str] = []

    def work(i: int) -> None:
        for _ in range(20):
            results.append(render_chat("{{ messages[0].content }}", [{"content": str(i)}]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted(str(i) for i in range(6) for _ in range(20))


def test_the_callers_messages_stay_as_they_are() -> None:
    messages = [{"role": "user", "content": "x"}]
    render_chat("{% set messages = [] %}{{ messages }}", messages)
    assert messages == [{"role": "user", "content": "x"}]
