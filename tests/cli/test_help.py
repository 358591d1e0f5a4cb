"""Every --help fits 80 columns; shell completion works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.cli.conftest import Run
from trinity.cli.application import application

ROOT = Path(__file__).resolve().parents[2]
ROOT_COMMAND: Any = typer.main.get_command(application())
COMMANDS: dict[str, Any] = ROOT_COMMAND.commands


def squeezed(text: str) -> str:
    """Remove white space, since lines are broken at blanks and hyphens."""
    return "".join(text.split())


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_no_line_is_cut_off_at_80_columns(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = run(*filter(None, [name]), "--help")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    shown = squeezed(result.stdout)
    command = COMMANDS[name] if name else ROOT_COMMAND
    for parameter in command.params:
        assert parameter.help, parameter.name
        assert squeezed(parameter.help) in shown, parameter.name
    assert squeezed(command.help) in shown


def test_the_list_of_commands_has_whole_sentences(run: Run) -> None:
    shown = squeezed(run("--help").stdout)
    for name, command in COMMANDS.items():
        sentence, stop, _ = command.help.partition("\n\n")[0].replace("\n", " ").partition(". ")
        assert squeezed(name + sentence + stop) in shown


def completed(line: str) -> list[str]:
    """Return bash's completions of the last word of a line."""
    paths = [str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "trinity"],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "_TRINITY_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        },
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.full
def test_completion_offers_commands_and_options() -> None:
    assert completed("trinity ge") == ["generate"]
    assert {"--temperature", "--temp", "--template"} <= set(completed("trinity generate --temp"))


def test_the_way_to_completion_is_in_the_help(run: Run) -> None:
    assert "--install-completion" in run("--help").stdout


@pytest.mark.parametrize("name", ["", "generate", "serve", "chat"])
def test_help_fits_a_narrow_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    result = run(*filter(None, [name]), "--help")
    assert max(map(len, result.stdout.splitlines())) <= 40
    shown = squeezed(result.stdout)
    for parameter in (COMMANDS[name] if name else ROOT_COMMAND).params:
        assert squeezed(parameter.help) in shown, parameter.name
