"""The documents are true: commands parse, links resolve, examples run."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trinity
from tests.document_folder import write_folder

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# A comment before a block says why the tests do not run it.
NOT_RUN = re.compile(r"<!-- not run: .{15,} -->\n```\w*\n.*?^```", re.MULTILINE | re.DOTALL)
# The code in the last column of a table "other library | trinity".
OURS = re.compile(r"^\|.*\| `((?:model|trinity)\..*)` \|$", re.MULTILINE)
COMMAND = re.compile(r"(?:trinity|python3?|pip|curl|make|cd|export|docker|pytest) ")
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"style\.gguf|embedder\.gguf|path/to/")  # more than model.gguf
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def blocks(document: Path, language: str) -> list[str]:
    """The contents of a document's fenced blocks of one language."""
    return [body for tag, body in FENCE.findall(document.read_text("utf-8")) if tag == language]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command of every console block: document name and words, a pipe's parts one by one."""
    for document in DOCUMENTS:
        for block in blocks(document, "console"):
            for line in block.replace("\\\n", " ").splitlines():
                part: list[str] = []
                lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
                lexer.whitespace_split = True
                lexer.commenters = "#"
                for word in [*lexer, "|"]:
                    if word not in {"|", ";", "&&", "||"}:
                        part.append(word)
                    elif part:
                        yield document.name, part
                        part = []


COMMANDS = [(name, words) for name, words in commands()]
TRINITY_COMMANDS = [
    (name, words[words.index("trinity") + 1 :])
    for name, words in COMMANDS
    if "trinity" in words[:4]
]


@pytest.fixture(scope="module")
def subcommands() -> dict[str, Any]:
    """The command line's subcommands by name."""
    typer_main = pytest.importorskip("typer.main")
    from trinity.cli.application import application

    found: dict[str, Any] = typer_main.get_command(application()).commands
    return found


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model."""
    path = tmp_path_factory.mktemp("documents") / "model.gguf"
    run(
        [str(ROOT / "scripts" / "models" / "make_synthetic.py"), "tiny", str(path)], cwd=path.parent
    )
    return path


def run(arguments: list[str], cwd: Path) -> str:
    """Standard output of this Python with ``arguments``; fails with its standard error."""
    paths = [str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        encoding="utf-8",
        cwd=cwd,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_readme_opens_with_the_two_commands() -> None:
    """The first commands that a reader sees are `make demo` and `make test`."""
    assert blocks(ROOT / "README.md", "console")[0].split() == ["make", "demo", "make", "test"]


def test_documents_hold_commands() -> None:
    """The tests below see the commands: an empty list would pass them all."""
    assert len(TRINITY_COMMANDS) >= 8


def test_trinity_commands_exist(subcommands: dict[str, Any]) -> None:
    """The subcommand exists and has every option that the document gives it."""
    for document, words in TRINITY_COMMANDS:
        where = f"{document}: trinity {' '.join(words)}"
        assert words[0] in subcommands, where
        options = {
            text
            for parameter in subcommands[words[0]].params
            for text in [*parameter.opts, *parameter.secondary_opts]
        } | {"--help"}
        given = {w.partition("=")[0] for w in words[1:] if re.match(r"--?[a-zA-Z]", w)}
        assert given <= options, where


def test_every_command_is_in_a_console_block() -> None:
    """No command is in an indented block or one of another language, which no test would run."""
    for document in DOCUMENTS:
        text = document.read_text("utf-8")
        others = [body for tag, body in FENCE.findall(text) if tag not in {"console", "python"}]
        lines = re.findall(r"\n\n {4}(\S.*)", FENCE.sub("", text)) + "\n".join(others).split("\n")
        assert [line for line in lines if COMMAND.match(line)] == [], document.name


def test_make_targets_and_scripts_exist() -> None:
    """A documented `make X` is a target, a documented `python x.py` a file."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for document, words in COMMANDS:
        where = f"{document}: {' '.join(words)}"
        if words[0] == "make":
            assert {w for w in words[1:] if re.fullmatch("[a-z-]+", w)} <= targets, where
        for word in words:
            # Tests of llama.cpp are in its own folder.
            is_ours = "pytest" not in words or word.startswith("tests/")
            if is_ours and word.endswith(".py") and not re.match(r"-|\w+=", word):
                assert (ROOT / word).is_file(), where


def test_readme_names_every_subcommand(subcommands: dict[str, Any]) -> None:
    """No subcommand is a secret."""
    readme = (ROOT / "README.md").read_text("utf-8")
    assert [name for name in subcommands if f"trinity {name}" not in readme] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_local_links_exist(document: Path) -> None:
    """A relative link names a file or folder of the project."""
    text = FENCE.sub("", document.read_text("utf-8"))
    targets = [t.partition("#")[0] for t in LINK.findall(text) if "://" not in t]
    assert [t for t in targets if t and not (document.parent / t).exists()] == []


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub and mkdocs give to a document's headings."""
    headings = HEADING.findall(FENCE.sub("", document.read_text("utf-8")))
    texts = [re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w -]", "", text).strip().lower().replace(" ", "-") for text in texts}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_anchors_exist(document: Path) -> None:
    """The part of a link after # is a heading of the document that it names."""
    links = LINK.findall(FENCE.sub("", document.read_text("utf-8")))
    parts = [link.partition("#") for link in links if "://" not in link and "#" in link]
    named = [(document.parent / path if path else document, anchor) for path, _, anchor in parts]
    assert [(path.name, name) for path, name in named if name not in anchors(path)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_addresses_are_complete(document: Path) -> None:
    """A link to another site is an https address without spaces or a missing path."""
    links = [t for t in LINK.findall(document.read_text("utf-8")) if "://" in t]
    assert [t for t in links if not re.fullmatch(r"https://[\w.-]+\.\w+(?:/\S*)?", t)] == []


def python_of(document: Path) -> str:
    """A document's Python blocks that run, then the calls of its tables."""
    text = NOT_RUN.sub("", document.read_text("utf-8"))
    program = [body for tag, body in FENCE.findall(text) if tag == "python"]
    calls = [code.replace("\\|", "|") for code in OURS.findall(text)] if program else []
    shows = [f"shown = {code}\nif hasattr(shown, 'send'): list(shown)" for code in calls]
    return "\n".join([*program, *shows])


WITH_PYTHON = [document for document in DOCUMENTS if python_of(document)]


def test_documents_hold_python() -> None:
    """The test below sees the programs and the calls of tables."""
    assert len(WITH_PYTHON) >= 9
    assert python_of(ROOT / "docs" / "from-transformers.md").count("shown = ") >= 10


@pytest.fixture(scope="session")
def named_files(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the adapters, encoders and speech models that the documents name."""
    folder = tmp_path_factory.mktemp("named")
    write_folder(folder, shared_data / "encoders")
    return folder


@pytest.mark.few(1)
@pytest.mark.parametrize("document", WITH_PYTHON, ids=lambda p: p.name)
def test_python_runs(document: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A document's Python blocks run in order in one program, next to the files that it names."""
    program, folder = python_of(document), tmp_path
    if NAMED.search(program):
        folder = request.getfixturevalue("named_files")
    else:
        (folder / "model.gguf").symlink_to(trinity.chat_model())
    run(["-W", "error::UserWarning", "-c", program], cwd=folder)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_example_is_short(example: Path) -> None:
    """An example fits a screen and says what it shows."""
    source = example.read_text("utf-8")
    assert len(source.splitlines()) <= 40
    assert ast.get_docstring(ast.parse(source))


@pytest.mark.full
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_example_runs(example: Path, tiny_model: Path) -> None:
    """Each example writes something, given a model."""
    assert run([str(example), str(tiny_model)], cwd=tiny_model.parent).strip()
