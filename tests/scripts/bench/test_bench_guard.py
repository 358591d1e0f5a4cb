from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.bench.bench_guard import main, ratios


def report(single: float, batch: float, ratio: float | None, share: float) -> dict[str, Any]:
    rows = [
        {"test": "tg8", "isa": "amx", "trinity": single, "ratio": ratio, "bandwidth_share": share},
        {"test": "tg8 b4", "isa": "amx", "trinity": batch, "ratio": None},
    ]
    return {"shapes": [{"shape": "A", "results": rows}]}


def test_ratios_are_those_of_one_report() -> None:
    assert ratios(report(20.0, 60.0, 1.5, 0.9)) == {
        ("A", "tg8", "amx", "llama.cpp"): 1.5,
        ("A", "tg8", "amx", "bandwidth"): 0.9,
        ("A", "tg8 b4", "amx", "one sequence"): 3.0,
    }


@pytest.mark.parametrize(
    ("new", "status", "said"),
    [
        (report(5.0, 15.0, 1.5, 0.9), 0, "none of 3 ratios fell"),
        (report(20.0, 60.0, 1.2, 0.9), 1, "A tg8 amx: 1.20 of llama.cpp, was 1.50"),
        (report(20.0, 40.0, 1.5, 0.9), 1, "A tg8 b4 amx: 2.00 of one sequence, was 3.00"),
        (report(20.0, 60.0, None, 0.7), 1, "A tg8 amx: 0.70 of bandwidth, was 0.90"),
        ({"shapes": []}, 2, ""),
    ],
)
def test_a_fall_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], new: dict[str, Any], status: int, said: str
) -> None:
    paths = [tmp_path / "old.json", tmp_path / "new.json"]
    for path, content in zip(paths, (report(20.0, 60.0, 1.5, 0.9), new), strict=True):
        path.write_text(json.dumps(content))
    assert main([str(path) for path in paths]) == status
    assert capsys.readouterr().out.strip() == said
