"""llama.cpp in a separate process, if a Python with llama-cpp-python is available.

The environment variable LLAMA_CPP_PYTHON names that Python; without it, it is this one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

SCRIPT = Path(__file__).parents[1] / "tests" / "goldens" / "llama_cpp_loads.py"


class LlamaCpp:
    """Loads files and evaluates tokens. Tests skip where llama-cpp-python is missing."""

    def __init__(self) -> None:
        python = os.environ.get("LLAMA_CPP_PYTHON")
        if python is None and importlib.util.find_spec("llama_cpp") is None:
            pytest.skip("needs llama-cpp-python, or LLAMA_CPP_PYTHON, a Python that has it")
        self._process = subprocess.Popen(
            [python or sys.executable, str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __call__(
        self, path: Path, ids: Sequence[int], *, embed: bool = False
    ) -> NDArray[np.float32]:
        """The logits (tokens, vocabulary) of tokens, or the text's vector; fails with the log."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        out = path.with_suffix(".npy")
        request = {"path": str(path), "ids": [int(i) for i in ids], "out": str(out), "embed": embed}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        error = json.loads(self._process.stdout.readline())["error"]
        assert error is None, error
        found: NDArray[np.float32] = np.load(out)
        out.unlink()
        return found

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
