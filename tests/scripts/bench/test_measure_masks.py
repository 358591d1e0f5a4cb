"""measure_masks.py reports wrongly accepted instances and resumes an interrupted run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from scripts.bench import measure_masks

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TESTS = [{"data": {"a": 1}, "valid": True}, {"data": {"a": "x"}, "valid": False}]


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite in MaskBench's form, and the command line for it."""
    folder = tmp_path / "data"
    folder.mkdir()
    refused = {"schema": {"type": "array", "uniqueItems": True}, "tests": []}
    for name, case in {"good": {"schema": SCHEMA, "tests": TESTS}, "refused": refused}.items():
        (folder / f"{name}.json").write_text(json.dumps(case))
    record = str(tmp_path / "record.jsonl")
    monkeypatch.setattr(sys, "argv", ["measure_masks.py", str(folder), "--record", record])
    return folder


def test_it_goes_on(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="False"):
        measure_masks.main()
    printed = capsys.readouterr().out
    lines = [line.strip() for line in printed.splitlines()]
    for line in (
        "2 schemas",
        "1 schemas refused",
        "1 instances invalid",
        "1 accepted valid",
        "1 schemas with every valid instance taken",
    ):
        assert line in lines
    assert any(line.startswith("1 refused: uniqueItems") for line in lines)
    assert "accepted invalid" not in printed
    assert "masks over" in printed
    monkeypatch.delattr(measure_masks, "run")
    with pytest.raises(SystemExit, match="False"):
        measure_masks.main()
    assert capsys.readouterr().out == printed


def test_what_is_accepted_wrongly(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {"schema": SCHEMA, "tests": [{"data": {"a": 2}, "valid": False}]}
    (suite / "wrong.json").write_text(json.dumps(wrong))
    with pytest.raises(SystemExit, match="True"):
        measure_masks.main()
    assert 'WRONGLY ACCEPTED  wrong.json: : {"a": 2}' in capsys.readouterr().out
