"""Parsing of model names, compared with Ollama's own package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trinity.formats.ollama.name import parse_name, without_source


def test_as_ollama_reads_them(shared_data: Path) -> None:
    rows = json.loads((shared_data / "formats/ollama/names.json").read_text())
    assert len(rows) > 20
    for row in rows:
        name = parse_name(row["input"])
        assert name.parts == (row["host"], row["namespace"], row["model"], row["tag"])
        assert name.scheme == row["scheme"]
        assert (name.problem is None) == row["valid"], row["input"]
        if row["valid"]:
            assert "/".join(name.parts) == row["path"]
            assert name.shortest == row["shortest"]


@pytest.mark.parametrize(
    "text", ["a" * 81, "n" * 81 + "/m", "m:" + "t" * 81, "h" * 351 + "/n/m", "-m", ".m", "m\n", "é"]
)
def test_parts_that_are_too_long_or_begin_otherwise(text: str) -> None:
    assert parse_name(text).problem is not None


@pytest.mark.parametrize(
    "text", ["a" * 80, "n" * 80 + "/m", "m:" + "t" * 80, "h" * 350 + "/n/m", "_m", "h:1/n-/m.:t."]
)
def test_the_longest_parts(text: str) -> None:
    assert parse_name(text).problem is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("m:local", ("m", False)),
        ("m:8b:LOCAL ", ("m:8b", False)),
        ("m:8b", ("m:8b", False)),
        ("m:cloud", ("m", True)),
        ("m:8b:cloud", ("m:8b", True)),
        ("m:8b-cloud", ("m:8b-cloud", True)),
        ("host:1/n/m-cloud", ("host:1/n/m-cloud", False)),
        ("cloud", ("cloud", False)),
    ],
)
def test_where_a_model_is(text: str, found: tuple[str, bool]) -> None:
    assert without_source(text) == found
