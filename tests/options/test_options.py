"""Copies of the option declarations, for type checkers and readers, agree with them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import pytest
import typer.main

import trinity
from scripts.documents.options_table import DOCUMENT, TABLES, tables
from trinity.cli.application import application, for_typer
from trinity.cli.options import GENERATION, LOADING, Given, only, takes, without
from trinity.cli.parameters import Argument
from trinity.cli.serve import DEFAULTS, SERVING
from trinity.cli.transcribe import SPEECH
from trinity.errors import InputError
from trinity.options.load_options import LoadKeywords, LoadOptions
from trinity.options.option import API_ONLY, Declared, Option, check_option, check_options, declared
from trinity.runtime.limits import GenerationLimits
from trinity.runtime.options import (
    LIMITS,
    SAMPLING,
    GenerationOptions,
    Request,
    generation_options,
)
from trinity.runtime.sampling.sampling_params import SamplingParams

ROOT = Path(__file__).resolve().parents[2]
LOAD = declared(LoadOptions)
ALL = [*generation_options(), *LOAD, *SERVING, *SPEECH]
COMMANDS: dict[str, Any] = typer.main.get_command(application()).commands  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Sample:
    """Options of every kind."""

    share: Annotated[float, Option("A share.", low=0, high=1)] = 0.5
    count: Annotated[int | None, Option("A count.", ("--count", "-c"), low=1)] = None
    offset: Annotated[int, Option("Any integer.", API_ONLY)] = 0
    kind: Annotated[str, Option("A kind.", API_ONLY, choices=("one", "two"))] = "one"
    on: Annotated[bool, Option("A switch.", ("--on/--off",))] = True
    text: Annotated[str | None, Option("A text.")] = None
    undeclared: int = 0

    def __post_init__(self) -> None:
        check_options(self)


def names(options: Sequence[Declared]) -> list[str]:
    return [one.name for one in options]


def label(value: object) -> str:
    return value.name if isinstance(value, Declared) else str(value)


def test_declaration_is_read_from_the_field() -> None:
    share, count, offset, kind, on, text = declared(Sample)
    assert (share.name, share.kind, share.default, share.optional) == ("share", float, 0.5, False)
    assert (count.kind, count.default, count.optional) == (int, None, True)
    assert [one.values for one in (share, count, offset, kind, on, text)] == [
        "a number from 0 to 1", "an integer of at least 1", "an integer", "one or two",
        "True or False", "text",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("share", 2, "share is 2; it must be a number from 0 to 1"),
        ("share", None, r"share is None \(NoneType\)"),
        ("count", 0, "count is 0; it must be an integer of at least 1"),
        ("offset", "1", "an integer"),
        ("kind", "three", "kind is 'three'; it must be one or two"),
        ("on", "yes", "on is 'yes'"),
        ("text", 3, "text is 3"),
    ],
)
def test_value_is_checked_by_its_declaration(name: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sample(**{name: value})
    with pytest.raises(InputError, match=message):
        check_option(Sample, name, value)


def test_checked_values_take_their_place() -> None:
    sample = Sample(share=1, kind="TWO", on=1)  # type: ignore[arg-type]
    assert (sample.share, sample.kind, sample.on) == (1.0, "two", True)
    assert type(sample.share) is float
    assert check_option(Sample, "count", None) is None


@pytest.mark.parametrize("one", ALL, ids=label)
def test_default_passes_its_own_check(one: Declared) -> None:
    assert one.checked(one.default) == one.default


@pytest.mark.parametrize("one", ALL, ids=label)
def test_help_is_one_line(one: Declared) -> None:
    assert re.fullmatch(r"[^\n|]+\.", one.option.help)


def test_names_and_flags_are_used_once() -> None:
    for options in (generation_options(), LOAD):
        assert len(set(names(options))) == len(options)
    flags = [part for one in ALL for flag in one.option.flags for part in flag.split("/")]
    assert len(set(flags)) == len(flags)


def test_every_field_is_declared() -> None:
    for _, holder in TABLES:
        rest = {"sampling", "limits"} if holder is Request else set()
        assert {field.name for field in fields(holder)} - rest == {*names(declared(holder))}


def test_typed_dict_has_the_declared_names_and_types() -> None:
    hints = get_type_hints(trinity.GenerationOptions)
    expected = {one.name: one.type for one in generation_options()}
    # A request holds the strings as a sequence, whichever way they are given.
    assert expected.pop("stop") == Sequence[str]
    assert hints.pop("stop") == str | Sequence[str] | None
    assert hints == expected


def field_docstrings(holder: type) -> dict[str, str]:
    """The docstring after each field of a class."""
    (body,) = ast.parse(inspect.getsource(holder)).body
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(text.value.value, str)
    }


def test_typed_dict_explains_its_own_options_with_their_defaults() -> None:
    """SamplingParams and GenerationLimits document the other options and defaults at the fields."""
    texts = field_docstrings(GenerationOptions)
    own = [one for one in generation_options() if one.name not in SAMPLING | LIMITS]
    assert set(texts) == set(names(own))
    for one in own:
        if isinstance(one.default, int | float):
            assert f"(default {one.default})" in texts[one.name], one.name


def test_load_has_the_declared_parameters() -> None:
    assert get_type_hints(LoadKeywords) == {one.name: one.type for one in LOAD}
    assert list(inspect.signature(trinity.load).parameters) == ["path", "progress", "options"]
    texts = field_docstrings(LoadKeywords)
    assert set(texts) == set(names(LOAD))
    for one in LOAD:
        if isinstance(one.default, str):
            assert f'"{one.default}"' in texts[one.name], one.name


# What these name is read with the model.
@pytest.mark.parametrize(
    "name", [name for name in names(LOAD) if name not in ("tl_config", "mmproj", "draft_model")]
)
def test_load_checks_before_it_looks_for_the_file(name: str) -> None:
    with pytest.raises(InputError, match=f"^{name} is "):
        trinity.load("no-such.gguf", **{name: -1})


def test_load_options_reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    import trinity.runtime.engine_building as module

    given: list[object] = []

    def build_engine(provider: object, options: object, progress: object) -> object:
        given.append(options)
        raise InputError("that is enough")

    monkeypatch.setattr(module, "build_engine", build_engine)
    chosen = {
        "threads": 2, "context_length": 64, "kv_type": "f32", "kv_memory": 1 << 20,
        "batch_invariant": True, "reuse_answers": True, "isa": "portable",
            "lora": (("adapter.gguf", 0.5),),
    }  # fmt: skip
    with pytest.raises(InputError, match="that is enough"):
        trinity.load(trinity.demo_model(), **chosen)  # type: ignore[arg-type]
    assert given == [LoadOptions(**chosen)]  # type: ignore[arg-type]


TAKEN: dict[str, Sequence[Declared]] = {
    "generate": [*GENERATION, *LOADING],
    "chat": [
        *without(GENERATION, "logprobs", "add_bos", "parse_special", "context_shift", "keep"),
        *LOADING,
    ],
    "serve": [*SERVING, *DEFAULTS, *LOADING],
    "batch": [*DEFAULTS, *LOADING],
    "pull": [],
    "launch": [],
    "list": [],
    "rm": [],
    "embed": [*only(SERVING, "pooling"), *LOADING],
    "rank": LOADING,
    "inspect": [],
    "tokenize": only(GENERATION, "add_bos", "parse_special"),
    "transcribe": [*SPEECH, *only(LOADING, "threads", "isa", "quantize")],
    "schema": [],
    "convert": only(LOADING, "weight_scale"),
    "quantize": only(LOADING, "threads"),
    "perplexity": without(LOADING, "context_length"),
    "imatrix": without(LOADING, "context_length"),
    "recommend": [],
    "bench": LOADING,
    "warmup": LOADING,
    "selftest": only(LOADING, "isa"),
    "doctor": [],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_take_the_declared_options(command: str) -> None:
    options = TAKEN[command]
    found = {parameter.name: parameter for parameter in COMMANDS[command].params}
    for one in options:
        parameter = found[one.name]
        flags = {part for flag in one.option.flags for part in flag.split("/")}
        assert {*parameter.opts, *parameter.secondary_opts} == flags
        if (command, one.name) in (("bench", "isa"), ("selftest", "isa")):
            continue  # several levels
        assert parameter.help == one.option.help
        if one.option.read is None and not one.option.repeated:
            assert parameter.default == one.default
    # Options of a command's own: chat's context_shift drops turns, not tokens; batch's speech model
    # has no name.
    own = {"chat": {"context_shift"}, "batch": {"speech_model"}}.get(command, set())
    assert {*found} & {*names(ALL)} == {*names(options)} | own


def test_command_gets_values_by_their_names_in_the_api(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = typer.Typer()
    seen: list[Given] = []

    @takes(options=(*LOADING, *GENERATION))
    def command(word: Annotated[str, Argument("x")], *, options: Given) -> None:
        seen.append(options)

    own.command()(for_typer(command))
    run = typer.main.get_command(own)
    run(["x"], standalone_mode=False)
    assert seen[-1] == {}  # a model may have defaults of its own
    run(
        ["x", "-t", "3", "--kv-memory", "1.5G", "--stop", "a", "--stop", "b", "--no-speculate",
         "--logit-bias", "1=-inf", "--logit-bias", "2=0.5", "--top-k", "40"],
        standalone_mode=False,
    )  # fmt: skip
    assert seen[-1] == {
        "threads": 3, "kv_memory": 3 << 29, "stop": ["a", "b"], "speculative": False,
        "logit_bias": {1: float("-inf"), 2: 0.5}, "top_k": 40,
    }  # fmt: skip


def test_unknown_names_are_mistakes() -> None:
    with pytest.raises(KeyError):
        without(LOADING, "thread")
    with pytest.raises(KeyError):
        only(LOADING, "thread")


def test_document_has_the_tables() -> None:
    """`python scripts/documents/options_table.py --write` updates them."""
    assert DOCUMENT.read_text("utf-8").endswith(tables())
    assert "docs/options.md" in (ROOT / "README.md").read_text("utf-8")


def test_request_comes_apart() -> None:
    request = Request.of(top_k=3, stop="x", speculative=4, cache_prompt=False)
    assert request.sampling == SamplingParams(top_k=3)
    assert request.limits == GenerationLimits(stop=["x"])
    assert (request.proposals, request.cache_prompt) == (4, False)
    assert Request.of(stop=None).limits.stop == ()
    assert isinstance(Request.of(logit_bias={1: 1}).sampling.logit_bias, Mapping)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speculative": -1}, "speculative is -1"),
        ({"add_bos": "no"}, "add_bos is 'no'"),
        ({"ignore_eos": None}, "ignore_eos is None"),
        ({"stop": 3}, "stop is 3"),
        ({"stop": ["a", ""]}, "a stop string is ''"),
        ({"max_tokens": -1}, "max_tokens is -1"),
        ({"logprobs": 1.5}, "logprobs is 1.5"),
    ],
)
def test_request_refuses(options: Any, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        Request.of(**options)


def test_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="'topk'"):
        Request.of(topk=3)  # type: ignore[call-arg]
