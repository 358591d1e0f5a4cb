"""A plugin of pytest: the level ``amx`` on a processor with AVX-512 (VNNI, BF16), tiles emulated.

    PYTHONPATH=scripts/kernels TRINITY_CACHE_DIR=build/amx python -m pytest -p amx_emulation \
        tests/kernels/test_matmul_tiles.py

It compiles amx_emulation.c with ``cc`` (gcc or clang) and lets kernels call that instead of the
instructions. Integers are exact, bfloat16 products are rounded as Intel's manual has it; speed says
nothing. These kernels need a cache folder of their own: no other process can load them.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from llvmlite import binding

from trinity_kernels import compiled_copy, isa

_BUILT = tempfile.TemporaryDirectory()
simd = compiled_copy.module("trinity_kernels.simd")
_call_named = simd.call_named


def _emulated(builder: Any, name: str, result: Any, args: list[Any]) -> Any:
    instruction = name.removeprefix("llvm.x86.")
    if instruction.startswith(("ldtile", "tile", "tdp")):
        name = f"emulated_{instruction}"
    return _call_named(builder, name, result, args)


def _install() -> None:
    source, library = Path(__file__).with_suffix(".c"), Path(_BUILT.name) / "emulation.so"
    options = ["-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run(["cc", *options, str(source), "-o", str(library)], check=True)
    binding.load_library_permanently(str(library))
    simd.call_named = _emulated  # type: ignore[attr-defined]
    needed = isa._NEEDED["amx"]
    isa._NEEDED["amx"] = tuple(one for one in needed if not one.startswith("amx"))
    isa.amx_permitted = lambda: True  # type: ignore[assignment]
    isa.possible_levels.cache_clear()
    isa.available_levels.cache_clear()
    if "amx" not in isa.available_levels():
        raise SystemExit(f"this processor lacks {', '.join(isa.missing_features('amx'))}")


_install()
