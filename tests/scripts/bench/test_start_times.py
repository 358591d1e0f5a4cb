"""start_times.py: interleaving, medians, and the count of compiled kernels."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.bench import start_times


def test_medians_of_the_rounds_without_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, bool]] = []
    seconds: Iterator[float] = iter([9.0] * 3 + [1.0, 2.0, 3.0] + [3.0, 4.0, 5.0] + [8.0, 6.0, 4.0])

    def run(python: str, arguments: list[str], cache: Path) -> float:
        asked.append((arguments[-1], any(cache.iterdir()) if cache.exists() else False))
        cache.mkdir(exist_ok=True)
        (cache / "copy.code").touch()
        return next(seconds)

    monkeypatch.setattr(start_times, "run", run)
    monkeypatch.setattr(
        sys, "argv", ["start_times", "python", "--models", "m.gguf", "--rounds", "3"]
    )
    start_times.main()
    assert capsys.readouterr().out.splitlines() == [
        "  3.000 s  cold  m.gguf  python  1 compiled",
        "  4.000 s  warm  m.gguf  python",
        "  4.000 s  load  m.gguf  python",
    ]
    assert [used for _, used in asked[:6]] == [False, False, True, False, True, True]


def test_what_was_compiled_is_counted(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    for name in ("a.code", "below/b.nbc", "host-1", "tried-2"):
        (tmp_path / name).touch()
    assert start_times.compiled(tmp_path) == 2
