"""The table of tested clients keeps the rows of clients that were not run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.documents import clients_table
from tests.clients.environments import rows_file


@pytest.fixture
def documented(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The table in the document; no client was run here."""
    monkeypatch.setenv("TRINITY_CLIENTS", str(tmp_path))
    text = clients_table.DOCUMENT.read_text(encoding="utf-8")
    return text.split(clients_table.BEGIN)[1].split(clients_table.END)[0]


def test_without_results_the_table_is_that_of_the_document(documented: str) -> None:
    assert clients_table.table(documented) == documented


def test_a_result_replaces_the_line_of_its_client(documented: str) -> None:
    rows = [
        {"row": "a", "error": None, "excused": None},
        {"row": "b|c", "error": "x", "excused": "no | here"},
    ]
    file = rows_file("openai_scripted")
    file.parent.mkdir()
    file.write_text(json.dumps(rows), encoding="utf-8")
    made = clients_table.table(documented)
    changed = set(made.splitlines()) - set(documented.splitlines())
    assert len(made.splitlines()) == len(documented.splitlines())
    assert [line.split(" | ", 2)[2] for line in changed] == ["2 | 1 | b\\|c: no \\| here |"]
