"""Text from model files cannot send control sequences to the terminal."""

from __future__ import annotations

import ast
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run
from tests.tiny_models import write_tiny_model
from tests.toy_model import ToyEngine
from trinity import cli
from trinity.cli import loading, terminal
from trinity.cli.progress_bar import bar
from trinity.cli.terminal import escaped, json_line, say
from trinity.formats.gguf_writer import GGUFWriter

HOSTILE = "\x1b[31m\n\r\t\x07\x7f\x9b2J\u2028\u202e\u2066[red]x[/]\\"
FORBIDDEN = set(map(chr, [*range(32), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F),
                          *range(0x2066, 0x206A)])) - {"\n"}  # fmt: skip


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Model files whose texts are all hostile: a valid one, and others that are refused."""
    folder = tmp_path_factory.mktemp("hostile")
    sound = folder / f"sound{HOSTILE.replace('/', '')}.gguf"
    write_tiny_model(sound, metadata={"general.name": HOSTILE, f"key.{HOSTILE}": [HOSTILE] * 3})
    paths = [str(sound)]
    for number, keys in enumerate(
        ({"general.architecture": HOSTILE}, {"tokenizer.ggml.model": HOSTILE},
         {"llama.block_count": HOSTILE}, {"llama.rope.scaling.type": HOSTILE})
    ):  # fmt: skip
        paths.append(str(folder / f"{number}{HOSTILE.replace('/', '')}.gguf"))
        write_tiny_model(paths[-1], metadata=keys)
    paths.append(str(folder / "tensors.gguf"))
    with GGUFWriter(paths[-1]) as writer:
        writer.add("general.architecture", "llama")
        writer.add_tensor(HOSTILE, (2, 32), "F32", np.full((2, 32), np.nan, np.float32))
    paths.append(str(folder / "none") + HOSTILE)
    return paths


def check(text: str) -> None:
    found = FORBIDDEN & set(text)
    assert not found, (found, text[:2000])


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "{}"], ["inspect", "{}", "--json"], ["inspect", "{}", "--verify"],
        ["inspect", "{}", "--verify", "--json"], ["inspect", "{}", "--diff", "{sound}"],
        ["inspect", "{}", "--diff", "{sound}", "--json"], ["tokenize", "-m", "{}", "a\x1b\u202eb"],
        ["tokenize", "-m", "{}", "--json", "a\x1b\u202eb"], ["tokenize", "-m", "{}", "--ids", "a"],
        ["recommend", "{}", "--ram", "1GB", "--bandwidth", "9"],
        ["recommend", "{}", "--ram", "1GB", "--bandwidth", "9", "--json"],
        ["quantize", "{}", "{}.out", "Q8_0", "--dry-run"], ["quantize", "{}", "/no/{}", "Q8_0"],
        ["convert", "{}", "out", "--outtype", "f16"], ["generate", "-m", "{}", "-f", "{}"],
        ["chat", "-m", "{}", "--template", "{}"], ["perplexity", "-m", "{}", "-f", "{}"],
        ["imatrix", "-m", "{}", "-f", "{}", "-o", "/no/{}"], ["bench", "-m", "{}", "-m", "/no/{}"],
        ["quantize", "{sound}", "x.out", "Q8_0", "--imatrix", "{}"], ["imatrix", "--in-file", "{}",
        "-o", "x.out"],
    ],
    ids=lambda arguments: " ".join(arguments[:4]).encode("unicode_escape").decode(),
)  # fmt: skip
def test_no_command_passes_control_characters(
    run: Run,
    hostile: list[str],
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in hostile:
        given = [text.replace("{}", path).replace("{sound}", hostile[0]) for text in arguments]
        result = run(*given)
        assert result.exit_code in (0, 1), result.output
        check(result.stdout + result.stderr)


def test_a_template_that_raises(run: Run, tmp_path: Path, engine: ToyEngine) -> None:
    template = tmp_path / "template"
    template.write_text("{{ raise_exception('" + HOSTILE.replace("\\", "") + "') }}", "utf-8")
    result = run("chat", "-m", "x", "--template", str(template), input="hello\n")
    assert result.exit_code == 1
    assert "\\x1b[31m" in result.stderr
    check(result.stdout + result.stderr)
    assert result.stderr.splitlines()[-1].startswith("error: ")


def test_escapes_are_shown() -> None:
    assert escaped("a\x1b[31m\nb\u202e\x9b") == r"a\x1b[31m\nb\u202e\x9b"
    assert escaped("a\tb\nc", keep="\n") == "a\\tb\nc"
    assert escaped("Ünï 中文 \u200d 🦙 \\x") == "Ünï 中文 \u200d 🦙 \\x"
    assert escaped("\udcff") == r"\udcff"


def test_json_says_the_same_without_control_characters() -> None:
    line = json_line({HOSTILE: [HOSTILE, 1.5]})
    check(line)
    assert json.loads(line) == {HOSTILE: [HOSTILE, 1.5]}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The display uses escape sequences; those in the text are shown, and markup stays text."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal._Notices(screen))
    monkeypatch.setenv("TERM", "xterm")
    with loading.progress(HOSTILE, "model: ") as show:
        show("model: " + HOSTILE)
        show("compiling " + HOSTILE)
        show("warning: " + HOSTILE)
        say(HOSTILE)
    with bar(HOSTILE) as move:
        move(1, 2, HOSTILE)
    text = screen.getvalue()
    assert "\x1b[?25l" in text
    assert "\x1b[31m" not in text
    assert "warning: \\x1b[31m" in text
    assert "model: \\x1b[31m" in text
    assert "[red]x[/]" in text
    assert not set(text) & {"\x07", "\x7f", "\x9b", "\u202e"}


def test_long_lines_are_cut_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are cut on a terminal only, after escaping; line feeds of files are escaped."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal._Notices(screen))
    monkeypatch.setenv("COLUMNS", "40")
    terminal.say("word " * 20 + "\n\x1b[31m end", indent=4)
    first, *rest = screen.getvalue().splitlines()
    assert max(map(len, [first, *rest])) <= 40
    assert first.startswith("word word")
    assert all(line.startswith("    ") and line[4] != " " for line in rest)
    assert "\\n\\x1b[31m" in screen.getvalue()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    terminal.say("word " * 20 + "\n")
    assert sys.stderr.getvalue() == "word " * 20 + "\\n\n"  # type: ignore[attr-defined]


def test_explanations_are_below_their_terms_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for columns, expected in (
        ("20", ["option value", "  What it means, in", "  --some-long-words."]),
        ("70", ["option value             What it means, in --some-long-words."]),
    ):
        screen = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal._Notices(screen))
        monkeypatch.setenv("COLUMNS", columns)
        terminal.say_explained("option value", "What it means, in --some-long-words.", 25)
        assert screen.getvalue().splitlines() == expected


@pytest.mark.parametrize("is_terminal", [True, False])
def test_generated_text(
    run: Run, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    """A pipe gets the raw text, a terminal only printable characters."""
    engine.says("a\x1b]0;\x07\tb\nc", after=3)
    stream = Terminal() if is_terminal else io.StringIO()
    from trinity.cli import writing
    from trinity.loading import load

    monkeypatch.setattr(sys, "stdout", stream)
    for _ in writing.shown(load("x", progress=print).stream("ab", max_tokens=10)):
        pass
    assert ("\x1b" in stream.getvalue()) != is_terminal
    assert "\tb\n" in stream.getvalue()


def test_there_is_one_way_to_the_terminal() -> None:
    for path in sorted(Path(cli.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            streams = ("stdout.write", "stderr.write")
            written = called in ("print", "typer.echo") or called.endswith(streams)
            assert not written or path.name == "terminal.py", f"{path.name}:{node.lineno}"
