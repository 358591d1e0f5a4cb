"""Untrusted Go templates end soon, with text or a TrinityError."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress

import pytest

from tests.processor_time import within
from trinity.errors import TrinityError
from trinity.tokenizers.go_template import GoTemplate

LONG = [{"role": "user", "content": "é" * 100_000}]
MANY = [{"role": ("user", "assistant")[i % 2], "content": "hello"} for i in range(1000)]

ATTACKS = {
    "ranges in ranges": "{{ range 1000 }}" * 8 + "x" + "{{ end }}" * 8,
    "messages by messages": "{{ range $.Messages }}" * 20 + "{{ .Role }}" + "{{ end }}" * 20,
    "a long range": "{{ range 999999999999999999 }}{{ end }}",
    "width": '{{ range 100000 }}{{ printf "%999999d" 1 }}{{ end }}',
    "doubled text": "{{ $x := print .Prompt 1 }}" + '{{ $x = printf "%s%s" $x $x }}' * 60,
    "printed text": "{{ $x := print .Prompt 1 }}" + "{{ $x = print $x $x $x $x }}" * 60,
    "a template of itself": '{{ define "t" }}{{ template "t" . }}{{ end }}{{ template "t" . }}',
    "two that double": (
        '{{ define "t" }}{{ template "u" . }}{{ template "u" . }}{{ end }}'
        '{{ define "u" }}{{ template "t" . }}{{ template "t" . }}{{ end }}{{ template "t" . }}'
    ),
    "many variables": "{{ $x := 1 }}" * 10_000 + "{{ range 100000 }}{{ $ }}{{ end }}",
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "actions": "{{ if 1 }}" * 5000 + "{{ end }}" * 5000,
    "else if": "{{ if .A }}" + "{{ else if .A }}" * 5000 + "{{ end }}",
    "bytes of a long text": "{{ range 200000 }}{{ len $.Prompt }}{{ slice $.Prompt 0 2 }}{{ end }}",
    "long texts compared": (
        "{{ $x := print .Prompt }}{{ range 200000 }}{{ eq $.Prompt $x }}{{ end }}"
    ),
    "quoted": '{{ range 200000 }}{{ if printf "%q" $.Prompt }}{{ end }}{{ end }}',
    "JSON by messages": "{{ range .Messages }}{{ json $.Messages }}{{ end }}",
    "arguments": "{{ range 100000 }}{{ eq " + "1 " * 50_000 + "}}{{ end }}",
    "digits": "{{ " + "9" * 131_000 + " }}",
    "verbs": "{{ range 1000 }}{{ printf `" + "%%" * 60_000 + "` }}{{ end }}",
    "length": "x" * 200_000,
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_stopped(name: str) -> None:
    template = ATTACKS[name] + ("" if ".Prompt" in ATTACKS[name] else "{{ if .Messages }}{{ end }}")

    def test() -> None:
        for messages in (MANY,) if "Messages }}" in ATTACKS[name] else (LONG, MANY):
            with pytest.raises(TrinityError):
                GoTemplate(template).render(messages)

    within(10.0, test)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["width", "doubled text", "printed text", "quoted"])
def test_attack_on_memory_is_stopped(name: str) -> None:
    tracemalloc.start()
    with pytest.raises(TrinityError):
        GoTemplate(ATTACKS[name]).render(LONG)
    assert tracemalloc.get_traced_memory()[1] < 30_000_000
    tracemalloc.stop()


def test_long_conversations_are_no_attack() -> None:
    template = GoTemplate(
        "{{ range $i, $m := .Messages }}{{ $last := eq (len (slice $.Messages $i)) 1 }}"
        '{{ if or (eq .Role "user") (eq .Role "system") }}<u>{{ .Content }}</u>{{ else }}'
        "<a>{{ .Content }}{{ if not $last }}</a>{{ end }}{{ end }}{{ end }}"
    )
    assert len(template.render(MANY * 5)) > 50_000


@pytest.mark.parametrize("seed", range(8))
def test_mutated_templates_end_in_text_or_an_error(seed: int) -> None:
    rng = random.Random(seed)
    pieces = ["{{", "}}", "-", "(", ")", "|", ".", "$", '"', "`", " ", "end", "range ", ":=", "é"]
    for _ in range(100):
        template = rng.choice(["{{ range $i, $m := .Messages }}{{ .Role }}{{ end }}", *SOURCES])
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(template) + 1)
            cut = at + rng.choice((0, 0, 1, 3))
            template = template[:at] + rng.choice(pieces) + template[cut:]
        with suppress(TrinityError):
            assert isinstance(GoTemplate(template).render(MANY[:3]), str)


SOURCES = (
    "{{- if .System }}{{ .System }}{{ else if .Tools }}{{ json .Tools }}{{ end }}"
    '{{ with .Prompt }}{{ printf "%-5s|%q" . "a" }}{{ end }}{{ .Response }}',
    '{{ define "t" }}<{{ . }}>{{ end }}{{ template "t" (index .Messages 0).Role }}'
    "{{ $x := 1.5 }}{{ $x = len (slice .Messages 1) }}{{ not (and $x `raw` nil) }}",
)
