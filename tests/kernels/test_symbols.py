"""Compiled code needs nothing but memory functions, so that it can be loaded without Numba."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from tests.kernels.objects import entry_code, kernel_code, undefined_symbols
from tests.matrix import some
from trinity_kernels import isa, selftest, team
from trinity_kernels._jit import Entry
from trinity_kernels.isa import jit_disabled
from trinity_kernels.ops import select
from trinity_kernels.quantizers import groups, outermost, tables

pytestmark = pytest.mark.skipif(
    jit_disabled() or sys.platform != "linux", reason="reads ELF files of compiled code"
)
ALLOWED = {"memcpy", "memmove", "memset"}
CASES = [
    (level, name, tag)
    for level in isa.available_levels()
    for name, tag in selftest.kernels_of(level)
    if selftest.KERNELS[name][0].level_of(level) == level
]
# Those whose code once had calls of libraries or paths for errors, and compile fast.
FAST = {
    ("attention_merge", "none"), ("gated", "gelu"), ("norm", "rms"), ("quantize_q8", "none"),
    ("rope_store", "F16"), ("scale", "none"), ("tile_split", "none"),
}  # fmt: skip
MODULES = (team, select, groups, outermost, tables)
ENTRIES = [
    (m, name) for m in MODULES for name, value in vars(m).items() if isinstance(value, Entry)
]


@pytest.mark.parametrize(
    ("level", "name", "tag"), some(CASES, [case for case in CASES if case[1:] in FAST])
)
def test_kernels_call_nothing_else(level: str, name: str, tag: str) -> None:
    code = kernel_code(selftest.KERNELS[name][0], level, tag)
    assert undefined_symbols(code) <= ALLOWED


@pytest.mark.parametrize(("module", "name"), some(ENTRIES, [(team, "_run"), (team, "_serve")]))
def test_functions_that_python_calls_call_nothing_else(module: ModuleType, name: str) -> None:
    assert undefined_symbols(entry_code(getattr(module, name))) <= ALLOWED


def test_a_name_that_is_not_defined_is_found() -> None:
    from llvmlite import binding

    module = binding.parse_assembly(
        "declare double @exp2(double)\n"
        "define double @twice(double %x) {\n"
        "  %y = call double @exp2(double %x)\n"
        "  ret double %y\n"
        "}\n"
    )
    machine = binding.Target.from_default_triple().create_target_machine()
    assert undefined_symbols(machine.emit_object(module)) == {"exp2"}
