"""llama.cpp's options: the same option, or an error that names trinity's option."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.cli.conftest import Run
from tests.toy_model import BOS, ToyEngine, ids_of
from trinity.cli.application import application
from trinity.cli.llama_cpp import ADVICE, COMMANDS_OF_OTHERS, given_flags

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "from-llama-cpp.md"
COMMANDS: dict[str, Any] = typer.main.get_command(application()).commands  # type: ignore[attr-defined]
ROW = re.compile(r"^\| `(llama-[^`]*|convert[^`]*)` \| `trinity ([^`]*)` \|", re.MULTILINE)
ROWS = ROW.findall(DOCUMENT.read_text("utf-8"))


def test_options_of_llama_cli(run: Run, engine: ToyEngine) -> None:
    result = run(
        "generate", "-m", "toy.gguf", "-p", "ab", "-n", "4", "-c", "200", "-t", "2", "-s", "7",
        "--temp", "0.5", "--top-k", "20", "--top-p", "0.9", "--min-p", "0.1", "--repeat-penalty",
        "1.1", "--repeat-last-n", "32", "--presence-penalty", "0.1", "--frequency-penalty", "0.1",
        "--ignore-eos", "--grammar", str(ROOT / "none"),
    )  # fmt: skip
    assert result.exit_code == 1  # the grammar's file is missing, and nothing else is wrong
    assert "none: cannot be read" in result.stderr


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("generate", ("-m", "-p", "-f", "-n", "-c", "-t", "-s", "--model", "--prompt", "--file",
                      "--n-predict", "--ctx-size", "--threads", "--seed", "--temp", "--top-k",
                      "--top-p", "--min-p", "--repeat-penalty", "--repeat-last-n",
                      "--presence-penalty", "--frequency-penalty", "--logit-bias", "--ignore-eos",
                      "--grammar", "--json-schema", "--lora")),
        ("chat", ("-m", "-n", "-c", "-t", "-s", "--temp")),
        ("serve", ("-m", "-c", "-t", "--host", "--port", "--api-key", "--lora",
                   "--chat-template", "--chat-template-kwargs")),
        ("bench", ("-m", "-p", "-n", "-t", "-r", "-d", "--n-prompt", "--n-gen", "--n-depth",
                   "--repetitions")),
        ("quantize", ("--allow-requantize", "--pure", "--imatrix", "--output-tensor-type",
                      "--token-embedding-type", "--tensor-type", "--dry-run")),
        ("perplexity", ("-m", "-f", "-c", "-t", "--ctx-size")),
        ("imatrix", ("-m", "-f", "-o", "-c", "-t", "--chunks", "--from-chunk", "--in-file",
                     "--process-output", "--no-ppl", "--ctx-size")),
        ("tokenize", ("-m", "-p", "-f", "--ids", "--no-bos")),
        ("convert", ("--outtype",)),
    ],
)  # fmt: skip
def test_same_names(command: str, options: tuple[str, ...]) -> None:
    has = {
        flag
        for parameter in COMMANDS[command].params
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }
    assert set(options) <= has


@pytest.mark.parametrize("flag", sorted(ADVICE))
def test_other_options_name_ours(run: Run, engine: ToyEngine, flag: str) -> None:
    result = run("perplexity", flag, "1")
    assert result.exit_code == 2
    assert f"{flag} is an option of llama.cpp: {ADVICE[flag]}" in result.stderr
    assert engine.loads == []


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (("generate", "-m", "x", "-ngl", "99", "-p", "hi"), "-ngl"),
        (("generate", "-hf", "user/repo", "-p", "hi"), "-hf"),  # not -h, which shows the help
        (("generate", "-m", "x", "-fa", "on", "hi"), "-fa"),  # not -f, a file
        (("generate", "-m", "x", "-mg", "0"), "-mg"),  # not -m
        (("generate", "-m", "x", "-p", "hi", "-no-cnv"), "-no-cnv"),
        (("serve", "-m", "x", "--n-gpu-layers=99"), "--n-gpu-layers"),
        (("generate", "-m", "x", "-np", "4"), "-np"),  # not -n
        (("bench", "-m", "x", "-ngl", "0,99"), "-ngl"),
        (("convert", "x", "--outfile", "y"), "--outfile"),
    ],
)
def test_no_short_option_takes_a_long_one_for_itself(
    run: Run, engine: ToyEngine, arguments: tuple[str, ...], flag: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert f"{flag} is an option of llama.cpp" in result.stderr


def test_texts_are_no_options(run: Run, engine: ToyEngine) -> None:
    assert run("generate", "-m", "x", "-p", "-ngl", "-n", "1").exit_code == 0
    assert engine.evaluated[0] == [BOS, *ids_of("-ngl")]
    assert run("generate", "-m", "x", "-n", "1", "--", "-ngl").exit_code == 0
    assert list(given_flags(["-m", "-x", "--a=b", "-", "c", "--", "-d"], {"-m": True})) == [
        "-m",
        "--a",
    ]


def test_what_a_command_has_is_its_own(run: Run, engine: ToyEngine) -> None:
    """`bench` has -b and -r, `serve` has -np; llama.cpp's options do not replace them."""
    for command, flag in (("bench", "-b"), ("bench", "-r"), ("imatrix", "-o"), ("serve", "-np")):
        assert flag in ADVICE
        result = run(command, flag)
        assert "is an option of llama.cpp" not in result.stderr


def test_the_document_has_the_ten_commonest_things() -> None:
    assert len(ROWS) >= 10


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].split()[0])
def test_documented_lines_parse(row: tuple[str, str]) -> None:
    """Our lines parse; their lines have the same options unless the document says otherwise."""
    words = shlex.split(row[1])
    command = COMMANDS[words[0]]
    context = command.make_context(words[0], words[1:], resilient_parsing=False)
    assert context.params


@pytest.mark.parametrize("line", ["-m x -p hi", "--model=x", "-hf user/repo"])
def test_a_line_without_a_command(run: Run, line: str) -> None:
    result = run(*line.split())
    assert result.exit_code == 2
    assert "needs a command before it, such as `trinity chat -m MODEL`" in result.stderr


@pytest.mark.parametrize(("name", "ours"), COMMANDS_OF_OTHERS.items())
def test_commands_of_other_programs_name_ours(run: Run, name: str, ours: str) -> None:
    result = run(name, "x")
    assert result.exit_code == 2
    assert f"trinity has no command {name!r}: {ours}"[:60] in " ".join(result.stderr.split())
    words = re.findall(r"`trinity ([a-z]+)", ours)
    assert set(words) <= set(COMMANDS)
    assert name not in COMMANDS


def test_help_is_a_command(run: Run) -> None:
    assert run("help").stdout == run("--help").stdout
    assert run("help", "chat").stdout == run("chat", "--help").stdout
