"""Limits of control groups, read from fake /proc and /sys folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from trinity_kernels.control_groups import Limits, limits

GROUP = "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, Limits()),
        ({f"{GROUP}/cpu.max": "max 100000", f"{GROUP}/memory.max": "max"}, Limits()),
        (
            {"proc/self/cgroup": "0::/a/b\n", f"{GROUP}/a/cpu.max": "200000 100000",
             f"{GROUP}/a/b/cpu.max": "300000 100000", f"{GROUP}/a/b/memory.max": "5"},
            Limits(2.0, 5),
        ),
        (
            {f"{GROUP}/cpu/cpu.cfs_quota_us": "50000", f"{GROUP}/cpu/cpu.cfs_period_us": "100000",
             f"{GROUP}/memory/memory.limit_in_bytes": "7"},
            Limits(0.5, 7),
        ),
        (
            {f"{GROUP}/cpu/cpu.cfs_quota_us": "-1", f"{GROUP}/cpu/cpu.cfs_period_us": "100000",
             f"{GROUP}/memory/memory.limit_in_bytes": "9223372036854771712"},
            Limits(),
        ),
        ({f"{GROUP}/cpu.max": "x y", f"{GROUP}/cpu.stat": "odd line"}, Limits()),
    ],
)  # fmt: skip
def test_limits_of_groups(tmp_path: Path, files: Mapping[str, str], expected: Limits) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert limits(tmp_path) == expected
