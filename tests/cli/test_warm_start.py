"""A start whose kernels are compiled imports no compiler."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.kernels.process import KERNELS, ROOT
from trinity_kernels.isa import python_only
from trinity_kernels.loaded_code import supported


@pytest.mark.skipif(python_only() or not supported(), reason="Numba loads the code here")
def test_neither_numba_nor_llvm_is_imported() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "trinity", "generate"]
    command += ["--prompt", "Prince Andrew", "-n", "4"]
    paths = os.pathsep.join((str(KERNELS), str(ROOT)))
    for first in (True, False):
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=300,
            env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        if first:  # compiles what the cache lacks
            continue
        imported = re.findall(r"\|\s+(\S+)$", done.stderr, re.MULTILINE)
        assert "trinity_kernels.team" in imported
        compilers = {name for name in imported if name.split(".")[0] in ("numba", "llvmlite")}
        assert compilers == set()
