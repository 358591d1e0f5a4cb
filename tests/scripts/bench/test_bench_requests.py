"""bench_requests.py runs and prints its figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.bench.bench_requests import main
from tests.tiny_models import write_tiny_model


def test_it_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_model(path, context_length=2048)
    main([str(path), "--callers", "3", "--tokens", "8", "--beside", "200", "--rounds", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"one caller: \d+\.\d tokens/s", lines[0])
    assert re.fullmatch(r"3 callers: \d+\.\d tokens/s, \d+\.\d\d times one's", lines[1])
    assert re.fullmatch(
        r"beside a prompt of 200: the longest gap \d+ ms, the median \d+ ms", lines[2]
    )
