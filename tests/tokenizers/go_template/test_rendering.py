"""Go templates compared with Go's own package and Ollama."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trinity.errors import InputError, TokenizerError, TrinityError, UnsupportedError
from trinity.tokenizers.go_template import GoTemplate
from trinity.tokenizers.go_template.rendering import render_go

DATA = json.loads((Path(__file__).parents[2] / "data" / "go_templates.json").read_text())
CASES: list[tuple[str, str | None]] = [(template, output) for template, output in DATA["cases"]]


def conversation(template: str) -> list[dict[str, Any]]:
    """One with calls of tools for templates of the whole list, one of turns for the others."""
    in_turns = ".Prompt" in template or ".Response" in template
    found: list[dict[str, Any]] = DATA["turns" if in_turns else "messages"]
    return found


@pytest.mark.parametrize(("template", "output"), CASES, ids=range(len(CASES)))
def test_as_go_renders_it(template: str, output: str | None) -> None:
    if output is None:
        with pytest.raises(TokenizerError, match="the Go template failed: "):
            GoTemplate(template).render(conversation(template))
    else:
        assert GoTemplate(template).render(conversation(template)) == output


@pytest.mark.parametrize(
    "name",
    [
        "alpaca-legacy", "bad-func", "chatml-legacy", "features", "features-err", "gemma",
        "llama3", "mistral", "no-response", "plain", "qwen3-tools",
    ],
)  # fmt: skip
def test_as_ollama_renders_it(shared_data: Path, name: str) -> None:
    golden = json.loads((shared_data / "formats/ollama/go_templates.json").read_text())
    cases = [case for case in golden["cases"] if case["name"].startswith(f"{name}/")]
    assert cases
    for case in cases:
        gap = {key: case.get(key, "") for key in ("prompt", "suffix")}
        try:
            template = GoTemplate(golden["templates"][name])
            text = template.render(case["messages"], **gap, think=case["think"] or None)
        except TrinityError:
            assert "error" in case
        else:
            assert "error" not in case
            assert text == case["output"]
            assert sorted(template.names) == case["vars"]


@pytest.mark.parametrize(
    "template",
    [
        "{{ break_me }}",
        '{{ block "x" . }}{{ end }}',
        "{{ printf `%x` 1 }}",
        "{{ printf `%d` `x` }}",
        "{{ printf `%s` }}",
        "{{ printf `` 1 }}",
        "{{ index `abc` 1 }}",
        '{{ slice "é" 1 }}',
        "{{ if true }}{{ .Response }}{{ else }}x{{ end }}",
        "{{ .Messages }}",
    ],
)
def test_outside_of_the_subset(template: str) -> None:
    with pytest.raises(UnsupportedError, match="the Go template "):
        GoTemplate(template).render([{"role": "user", "content": "x"}])


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ("a\n{{", "line 2: an action is not closed"),
        ("{{ (1 }}", "a parenthesis is not closed"),
        ("{{ 1) }}", "a parenthesis is closed"),
        ("{{ /* a */ 1 }}", "'/' has no meaning"),
        ("{{/* a */ 1 }}", "a comment must be alone"),
        ("{{/* a }}", "a comment has no end"),
        ('{{ "a }}', "a string has no end"),
        ("{{ `a }}", "a raw string has no end"),
        ("{{ $x }}", r"the variable \$x is not declared"),
        ("{{ $x, $y := 1 }}", "only a range declares two variables"),
        ("{{ if }}{{ end }}", "found '}}', expected a value"),
        ("{{ if 1 }}", "found 'the end of the template', expected"),
        ("{{ end }}", "found '}}', expected {{end}}"),
        ("{{ if 1 }}{{ else }}{{ else }}{{ end }}", "a second {{else}}"),
        ("{{ range 1 }}{{ end }}{{ break }}", "outside of a range"),
        ("{{ 1 | 2 }}", "must be a function or a field"),
        ("{{ 1.A }}", "is not a number"),
        ('{{ "a".B }}', "a field of what has none"),
        ("{{ 089 }}", "089 cannot be read"),
        ("{{ 9223372036854775808 }}", "cannot be read"),
        (r'{{ "\q" }}', "cannot be read"),
        ('{{ define "a" }}1{{ end }}{{ define "a" }}2{{ end }}', "defined twice"),
        ('{{ template "a" }}', "is called without a value"),
        ("{{ .a}b }}", "'}' follows a name"),
    ],
)
def test_malformed_templates_say_where(template: str, what: str) -> None:
    with pytest.raises(TokenizerError, match=r"the Go template is broken at line \d") as info:
        GoTemplate(template)
    assert info.match(what)


def test_jinjas_names_mean_nothing_to_it() -> None:
    text = render_go("{{ .Prompt }}!", [{"role": "user", "content": "x"}], bos_token="<s>")
    assert text == "x!"


def test_what_ollama_does_not_do() -> None:
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(InputError, match="add_generation_prompt"):
        render_go("{{ .Prompt }}", messages, add_generation_prompt=False)
    with pytest.raises(InputError, match='no "function"'):
        render_go("{{ range .Messages }}{{ .Content }}{{ end }}", messages, tools=[{}])


def test_tools_print_as_ollamas_do() -> None:
    properties = {
        "b": {"description": "Which", "type": "string", "enum": ["x"], "minLength": 1},
        "a": {"type": ["string", "null"]},
    }
    schema = {"properties": properties, "required": ["b"], "type": "object"}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    template = (
        "{{ range .Messages }}{{ range $.Tools }}{{ . }}|{{ .Function.Name }}|"
        "{{ range $name, $one := .Function.Parameters.Properties }}{{ $name }}:{{ $one.Type }};"
        "{{ end }}{{ end }}{{ end }}{{ if .Think }}!{{ end }}"
    )
    messages = [{"role": "user", "content": "x"}]
    assert render_go(template, messages, tools=[tool], enable_thinking=True) == (
        '{"type":"function","function":{"name":"f","parameters":{"type":"object","required":["b"],'
        '"properties":{"a":{"type":["string","null"]},"b":{"type":"string","description":"Which",'
        '"enum":["x"],"minLength":1}}}}}|f|a:[string null];b:string;!'
    )
    assert render_go(template, messages) == ""


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
        {"role": "user", "content": "x", "thinking": 1},
        {"role": "assistant", "content": "", "tool_calls": [1]},
        {"role": "assistant", "content": "", "tool_calls": [{"function": None}]},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"arguments": "{}"}}]},
        {"role": "a", "content": "", "tool_calls": [{"function": {"arguments": {"x": {1}}}}]},
        {"role": "a", "content": "", "tool_calls": [{"function": {"arguments": {"x": 10**400}}}]},
    ],
)
def test_malformed_messages(message: dict[str, object]) -> None:
    with pytest.raises(InputError):
        GoTemplate("{{ .Prompt }}").render([message])
