"""The cores that get a thread, chosen from fake /sys folders."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from trinity_kernels.cores import default_threads, fast

CPU = "sys/devices/system/cpu"
ATOM = "sys/devices/cpu_atom/cpus"


def capacities(*values: int) -> dict[str, str]:
    return {f"{CPU}/cpu{cpu}/cpu_capacity": f"{value}\n" for cpu, value in enumerate(values)}


def pairs(count: int) -> dict[str, str]:
    """Number two threads on each of the first cores, as Linux does on hybrid processors."""
    return {
        f"{CPU}/cpu{cpu}/topology/thread_siblings_list": f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}\n"
        for cpu in range(2 * count)
    }


def write(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


# Capacities as the machines' device trees and kernels give them.
CASES = {
    "nothing known": ({}, 8, 8),
    "server": (capacities(*[1024] * 4), 4, 4),
    "RK3588, 4 A55 and 4 A76": (capacities(*[414] * 4, *[1024] * 4), 8, 4),
    "RK3399, 4 A53 and 2 A72": (capacities(*[381] * 4, *[1024] * 2), 6, 2),
    "three kinds": (capacities(325, 325, 325, 802, 802, 802, 802, 1024), 8, 5),
    "x86, 2 cores with two threads and 4 small ones": ({**pairs(2), ATOM: "4-7\n"}, 8, 2),
    "x86, small cores in two ranges": ({**pairs(1), ATOM: "2-3,5\n"}, 6, 2),
    "x86, small cores only": ({ATOM: "0-3\n"}, 4, 4),
    "odd texts": ({ATOM: "x-,-3,\n", f"{CPU}/cpu0/cpu_capacity": "many\n"}, 4, 4),
}


@pytest.mark.parametrize("name", CASES)
def test_default_threads(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, cpus, expected = CASES[name]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)), raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert default_threads(write(tmp_path, files)) == expected


def test_affinity_to_little_cores_is_kept(tmp_path: Path) -> None:
    root = write(tmp_path, capacities(414, 414, 1024, 1024) | {ATOM: "0-1"})
    assert fast({0, 1}, root) == {0, 1}
    assert fast({0, 1, 2}, root) == {2}


def test_a_quota_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    files = capacities(*[414] * 4, *[1024] * 4) | {"sys/fs/cgroup/cpu.max": "300000 100000"}
    assert default_threads(write(tmp_path, files)) == 3


def test_here() -> None:
    assert default_threads() >= 1
