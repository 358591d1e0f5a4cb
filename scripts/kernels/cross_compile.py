"""Compile kernels for other processors than this one, and look at the instructions.

    python scripts/kernels/cross_compile.py          all kernels for each ARM processor of the tests
    python scripts/kernels/cross_compile.py --quick  a few kernels of each kind
    python scripts/kernels/cross_compile.py pi5      some processors

Numba is made to believe that it runs on the other processor: its target machine is that one's, all
of its passes run, and what would have been loaded is written as assembly instead. Each processor
has a child process of its own, because LLVM ends the process where it cannot select an instruction.
This is the compiler's half of a port; what the code computes shows on the processor itself, or in
emulation.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

ARM = "aarch64-unknown-linux-gnu"
QUICK = {
    "matmul": ("AFFINE4_F16", "F16", "IQ2_XXS", "IQ4_NL", "I2_S", "Q4_0", "Q4_K", "Q8_0", "TQ2_0"),
    "matmul_panels": ("AFFINE8_F32", "I2_S", "Q4_0", "Q4_K"),
    "attention": ("F16",),
    "gated": ("silu",),
    "quantize_q8": ("none",),
    "quantize_ternary": ("none",),
    "rope_store": ("F16",),
}


def pretend(triple: str, name: str, features: str) -> None:
    """Make this process compile for another processor and load nothing.

    Call it before Numba is imported.
    """
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.get_process_triple = lambda: triple
    os.environ |= {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
    from trinity_kernels import compiled_copy, processor

    for one in (processor, compiled_copy.module("trinity_kernels.processor")):
        one.host = lambda: (processor._architecture(triple), name, {})
    from numba.core import codegen

    library, jit = codegen.JITCodeLibrary, codegen.JITCPUCodegen
    library.get_pointer_to_function = lambda self, function: 1
    library._finalize_specific = lambda self: None
    jit._add_module = lambda self, module: None
    jit.set_env = lambda self, symbol, environment: None
    compiler = compiled_copy.module("trinity_kernels.compiler")
    compiler.cache_folder = lambda: None
    from trinity_kernels import _jit

    _jit.load = lambda flat: 1


def compile_all(
    triple: str, name: str, features: str, level: str, kernels: list[tuple[str, str]]
) -> dict[str, Any]:
    """Compile all kernels for ``name`` in this process; count each kernel's instructions."""
    pretend(triple, name, features)
    from trinity_kernels import code_files, compiled_copy, selftest

    code_files.cache_folder = lambda: None
    compiler = compiled_copy.module("trinity_kernels.compiler")
    compiled = []
    object_code = compiler.object_code

    def keep_module(library: Any) -> bytes:
        compiled.append(library._final_module)
        return object_code(library)

    compiler.object_code = keep_module
    found = {}
    for kernel, tag in kernels or selftest.kernels_of(level):
        compiled.clear()
        selftest.KERNELS[kernel].kernel.address(level, tag)
        text = compiler.target_machine().emit_assembly(compiled[-1])
        names = Counter(re.findall(r"^\s+([a-z][a-z0-9.]*)\s", text, re.MULTILINE))
        if re.search(r"\bz\d+\.[bhsd]\b", text):
            names["(scalable vectors)"] = 1
        found[f"{kernel} {tag}"] = names
    return found


def run(
    triple: str, name: str, features: str, level: str, kernels: list[tuple[str, str]]
) -> tuple[int, dict[str, Any], str]:
    """Do the same in a child process: return its exit status, result and output."""
    request = json.dumps([triple, name, features, level, kernels])
    done = subprocess.run(
        [sys.executable, __file__, "--child", request], capture_output=True, text=True
    )
    found = json.loads(done.stdout) if done.returncode == 0 else {}
    return done.returncode, found, done.stderr.strip()


def quick(level: str) -> list[tuple[str, str]]:
    """Return a few kernels of each kind."""
    from trinity_kernels.selftest import kernels_of

    return [(name, tag) for name, tag in kernels_of(level) if tag in QUICK.get(name, ())]


def main() -> int:
    from tests.kernels.arm_processors import PROCESSORS
    from trinity_kernels.processor import arm_features, feature_text
    from trinity_kernels.selftest import kernels_of

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("processors", nargs="*", choices=[*PROCESSORS, []])
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    bad = 0
    done: dict[tuple[str, str], tuple[int, dict[str, Any], str]] = {}
    print(f"{'processor':<16} {'compiled for':<14} {'level':<9} kernels   sdot  smmla seconds")
    for key in arguments.processors or PROCESSORS:
        processor = PROCESSORS[key]
        features = feature_text(arm_features(*processor.hwcaps()))
        kernels = quick(processor.level) if arguments.quick else kernels_of(processor.level)
        started = time.monotonic()
        target = processor.compiled_for, features
        if target not in done:
            done[target] = run(ARM, *target, processor.level, kernels)
        code, found, said = done[target]
        dots, pairs = (
            sum(one.get(name, 0) for one in found.values() for name in names)
            for names in (("sdot",), ("smmla", "usmmla"))
        )
        wrong = code or said or len(found) != len(kernels)
        wrong = wrong or (dots > 0) != (processor.level != "portable")
        wrong = wrong or (pairs > 0) != (processor.level == "neon-i8mm")
        bad += bool(wrong)
        print(
            f"{key:<16} {processor.compiled_for:<14} {processor.level:<9} "
            f"{len(found):3}/{len(kernels):3} {dots:6} {pairs:6} {time.monotonic() - started:7.1f}"
            + (f"  WRONG: {code} {said[-300:]}" if wrong else ""),
            flush=True,
        )
    return int(bad > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        json.dump(compile_all(*json.loads(sys.argv[2])), sys.stdout)
    else:
        sys.exit(main())
