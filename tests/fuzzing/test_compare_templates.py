"""compare_templates.py reports equal and different renderings."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import pytest

from tests.fuzzing import compare_templates

TEMPLATE = (
    "{% if tools %}{{ tools | tojson(indent=2) }}{% endif %}{% for m in messages %}\n"
    "{{ m.role }}: {{ m.content }}\n{% endfor %}{{ raise_exception('none') if not messages }}"
)


def test_enough_conversations() -> None:
    names = [name for name, _ in compare_templates.cases()]
    assert len(set(names)) == len(names) >= 40


def test_alike() -> None:
    results = dict(compare_templates.compare(TEMPLATE, compare_templates.plain_compiler))
    assert set(results.values()) == {"same text", "both fail"}
    assert [name for name in results if results[name] == "both fail"] == [
        name for name in results if name.startswith("nothing,")
    ]


@pytest.mark.full
def test_a_difference_is_seen() -> None:
    other = compare_templates.plain_compiler

    def trimmed(source: str) -> object:
        return other(source.replace("m.content", "m.content | trim"))

    results = dict(compare_templates.compare(TEMPLATE, trimmed))
    assert {name.partition(",")[0] for name in results if results[name] == "differs"} >= {"spaces"}
    broken = dict(compare_templates.compare("{% broken", trimmed))
    assert set(broken.values()) == {"both fail"}


@pytest.mark.full
def test_main(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The argument is a folder, a source package, empty, and a file that does not exist."""
    folder = tmp_path / "templates"
    folder.mkdir()

    def run(where: Path) -> int:
        monkeypatch.setattr(sys, "argv", ["compare_templates.py", str(where)])
        return compare_templates.main()

    assert run(folder) == 1
    (folder / "own.jinja").write_text("{{ messages | length }}")
    assert run(folder) == 0
    assert "1 templates, " in capsys.readouterr().out
    with tarfile.open(tmp_path / "source.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("x/own.jinja")
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"y"))
    assert run(tmp_path / "source.tar.gz") == 0
    with pytest.raises(SystemExit, match="missing"):
        run(tmp_path / "missing")
