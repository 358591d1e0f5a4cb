"""Compiled code calls only memory functions, so that it can be loaded without Numba."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.matrix import some
from trinity_kernels import _jit, isa, loaded_code, selftest, team
from trinity_kernels._jit import Entry, Kernel
from trinity_kernels.flat_code import FlatCode
from trinity_kernels.isa import interpreted
from trinity_kernels.ops import select
from trinity_kernels.quantizers import groups, outermost, tables

pytestmark = pytest.mark.skipif(
    interpreted() or not loaded_code.supported(), reason="Numba loads the code here"
)
ALLOWED = {"memcpy", "memmove", "memset"}
CASES = [
    (level, name, tag)
    for level in isa.available_levels()
    for name, tag in selftest.kernels_of(level)
    if selftest.KERNELS[name].kernel.level_of(level, tag) == level
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


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[FlatCode]:
    """Records the code that is loaded during a test."""
    found: list[FlatCode] = []
    load = _jit.load

    def keep(flat: FlatCode) -> int:
        found.append(flat)
        return load(flat)

    monkeypatch.setattr(_jit, "load", keep)
    return found


def calls(loaded: list[FlatCode]) -> set[str]:
    """Return the C functions that code calls; code that cannot be linked is not loaded this way."""
    (flat,) = loaded
    return {name for name, _ in flat.calls}


@pytest.mark.parametrize(
    ("level", "name", "tag"), some(CASES, [case for case in CASES if case[1:] in FAST])
)
def test_kernels_call_nothing_else(level: str, name: str, tag: str, loaded: list[FlatCode]) -> None:
    kernel = selftest.KERNELS[name].kernel
    assert Kernel(kernel.function, kernel.own).address(level, tag)
    assert calls(loaded) <= ALLOWED


@pytest.mark.parametrize(("module", "name"), some(ENTRIES, [(team, "_run"), (team, "_serve")]))
def test_functions_that_python_calls_call_nothing_else(
    module: ModuleType, name: str, loaded: list[FlatCode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_jit, "_c_functions", {})
    assert getattr(module, name).address
    assert calls(loaded) <= ALLOWED
