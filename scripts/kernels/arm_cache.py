"""Compile kernels on this machine into the cache of an emulated one.

    echo '{"version": ..., "target": [...], "cache": ..., "kernels": [...]}' |
    python scripts/kernels/arm_cache.py

What the other Python reported of itself is the request: its cache is filed under the text of its
``sys.version``, code in it under the compiler's triple, processor and features. Compiled here a
kernel takes a second, in emulation half a minute. ``check_arm.py`` calls this.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from scripts.kernels.cross_compile import pretend  # noqa: E402


class _AlreadyThereError(Exception):
    pass


def fill(request: dict[str, Any]) -> None:
    """Compile the kernels (name, level, tag) of the request that its cache lacks.

    The loops of the team, which every kernel needs, are compiled as well.
    """
    sys.version = request["version"]
    os.environ["TRINITY_CACHE_DIR"] = request["cache"]
    pretend(*request["target"])
    from trinity_kernels import bus_errors, code_store, team
    from trinity_kernels._jit import c_function
    from trinity_kernels.selftest import KERNELS

    def find(folder: Path, name: str, key: str) -> None:
        if code_store.path_of(folder, name, key).exists():
            raise _AlreadyThereError

    code_store.find = find
    for compile_one in (
        partial(getattr, team._run, "address"),
        partial(getattr, team._serve, "address"),
        partial(c_function, team._stop, "intp", "intp", "intp"),
        partial(c_function, bus_errors._on_bus_error, "int32", "intp", "intp"),
    ):
        with suppress(_AlreadyThereError):
            compile_one()
    for kernel, level, tag in request["kernels"]:
        with suppress(_AlreadyThereError):
            KERNELS[kernel].kernel.address(level, tag)


if __name__ == "__main__":
    fill(json.load(sys.stdin))
