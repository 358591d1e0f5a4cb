"""Cores that replicas take, each in a process of its own."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.kernels.process import run_python

PIN = """
import os
from trinity.ray.cores import pin
print(sorted(pin({count})), sorted(os.sched_getaffinity(0)))
"""

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="the system binds no processes to cores"
)
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def test_a_process_is_bound_to_free_cores(tmp_path: Path) -> None:
    first = CORES[:1]
    assert run_python(PIN.format(count=1), TMPDIR=str(tmp_path)) == f"{first} {first}\n"


def test_too_few_cores_bind_nothing(tmp_path: Path) -> None:
    found = run_python(PIN.format(count=len(CORES) + 1), TMPDIR=str(tmp_path))
    assert found == f"[] {CORES}\n"


def test_a_folder_that_others_can_write_to_is_not_used() -> None:
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o755)  # others can enter it, unlike pytest's folders
        folder = Path(base) / f"trinity-cores-{os.getuid()}"
        folder.mkdir()
        folder.chmod(0o777)
        assert run_python(PIN.format(count=1), TMPDIR=base) == f"[] {CORES}\n"
        assert not list(folder.iterdir())
