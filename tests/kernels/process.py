"""Starts new Python processes that import the kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"


def run_python(code: str, *, kernels: Path = KERNELS, **environment: str) -> str:
    """Return the standard output of ``code``; only ``environment`` chooses kernels."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("TRINITY_ISA", "TRINITY_CACHE_DIR") and not name.startswith("NUMBA_")
    }
    path = os.pathsep.join((str(kernels), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={**inherited, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
