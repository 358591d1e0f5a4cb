from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.toy_model import ToyEngine

GOOD = '{"title": "T", "type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}'


def test_enforced(run: Run) -> None:
    result = run("schema", "-", input=GOOD)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "note      #/title",
        "enforced  #/type",
        "enforced  #/properties",
        "enforced  #/required",
        "enforced  #/properties/a/const",
    ]
    assert "4 enforced, 1 note, 0 refused" in result.stderr


def test_schema_on_the_command_line(run: Run) -> None:
    assert run("schema", GOOD).stdout == run("schema", "-", input=GOOD).stdout


def test_refused(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"items": {"contains": {}, "minLength": -1}}')
    result = run("schema", str(file))
    assert result.exit_code == 1
    assert "refused   #/items/contains: " in result.stdout
    assert "refused   #/items/minLength: expected an integer" in result.stdout


def test_refused_as_a_whole(run: Run) -> None:
    result = run("schema", "-", input='{"properties": {"a": {"pattern": "(?=a)b"}}}')
    assert result.exit_code == 1
    assert "#/properties/a: " in result.stderr


def test_json(run: Run) -> None:
    found = json.loads(run("schema", "-", "--json", input='{"type": "null", "if": {}}').stdout)
    assert found == {
        "keywords": [
            {"pointer": "#/type", "name": "type", "state": "enforced", "reason": ""},
            {"pointer": "#/if", "name": "if", "state": "note", "reason": ""},
        ],
        "error": None,
    }


def test_no_json(run: Run) -> None:
    result = run("schema", "-", input="{")
    assert result.exit_code == 1
    assert "is not valid JSON" in result.stderr


@pytest.mark.parametrize("as_file", [False, True])
def test_generate_in_json(run: Run, engine: ToyEngine, tmp_path: Path, as_file: bool) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"enum": [[1, "x"]]}')
    given = str(file) if as_file else file.read_text()
    result = run("generate", "-m", "toy.gguf", "-p", "a", "--json-schema", given)
    assert (result.exit_code, result.stdout) == (0, '[1, "x"]\n')


def test_generate_with_an_expression(run: Run, engine: ToyEngine) -> None:
    result = run("generate", "-m", "toy.gguf", "-p", "a", "--regex", "x{3}y")
    assert (result.exit_code, result.stdout) == (0, "xxxy\n")


@pytest.mark.parametrize("text", ['root ::= "a" b\nb ::= "c"\n', 'start: "a" b\nb: "c"\n'])
def test_generate_with_a_grammar(run: Run, engine: ToyEngine, tmp_path: Path, text: str) -> None:
    file = tmp_path / "grammar"
    file.write_text(text)
    result = run("generate", "-m", "toy.gguf", "-p", "a", "--grammar", str(file))
    assert (result.exit_code, result.stdout) == (0, "ac\n")


def test_one_grammar_at_a_time(run: Run, engine: ToyEngine) -> None:
    result = run("generate", "-p", "a", "--regex", "a", "--json-schema", "{}")
    assert result.exit_code == 2
    assert "give only one of --json-schema, --regex and --grammar" in result.stderr


def test_a_bad_schema_names_the_path(run: Run, engine: ToyEngine) -> None:
    result = run("generate", "-m", "toy.gguf", "-p", "a", "--json-schema", '{"contains": {}}')
    assert result.exit_code == 1
    assert "#/contains: " in result.stderr
