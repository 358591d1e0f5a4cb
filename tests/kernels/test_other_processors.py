"""Kernels compiled for Haswell and ARM, and run as plain Python."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from scripts.kernels.cross_compile import ARM, run
from tests.kernels.arm_processors import PROCESSORS
from tests.kernels.launch import launch
from tests.kernels.operands import attention, product
from tests.kernels.process import run_python
from tests.kernels.test_isa import HASWELL
from tests.matrix import some
from trinity_kernels.isa import available_levels
from trinity_kernels.ops.attention import attention as attention_kernel
from trinity_kernels.ops.matmul.activations import FORMS
from trinity_kernels.processor import arm_features, feature_text
from trinity_kernels.quants import TYPES

PRODUCTS = """
from tests.kernels.operands import product
for tag, k in {cases!r}:
    print(tag, product(tag, 2, 3, k).run({level!r}).tobytes().hex())
"""
ATTENTION = """
from tests.kernels.operands import attention
from tests.kernels.launch import launch
from trinity_kernels import isa
from trinity_kernels.ops.attention import attention as kernel
assert isa.available_levels() == ("avx2", "portable")
a = attention("F16", (200, 16), 1, 4, 64)
launch(kernel, "avx2", "F16", 2, a.slots)
print(a.out.tobytes().hex())
"""


def case(tag: str) -> tuple[str, int]:
    block = TYPES[tag].block_size
    return tag, {1: 21, 32: 96}.get(block, block)


def results(text: str) -> dict[str, str]:
    return dict(line.split() for line in text.splitlines())


def expected(cases: list[tuple[str, int]]) -> dict[str, str]:
    return {tag: product(tag, 2, 3, k).run("portable").tobytes().hex() for tag, k in cases}


@pytest.mark.full
def test_plain_python_gives_the_same_bits() -> None:
    cases = [case(tag) for tag in FORMS]
    code = PRODUCTS.format(cases=cases, level="portable")
    assert results(run_python(code, NUMBA_DISABLE_JIT="1")) == expected(cases)


@pytest.mark.full
@pytest.mark.skipif("avx2" not in available_levels(), reason="this CPU has no AVX2")
def test_code_for_haswell_gives_the_same_bits() -> None:
    cases = [case(tag) for tag in ("F16", "Q4_0", "Q8_0", "I2_S", "TQ1_0", "IQ2_S")]
    code = PRODUCTS.format(cases=cases, level="avx2") + ATTENTION.replace(
        "print(a", "print('attention', a"
    )
    found = results(run_python(code, NUMBA_CPU_NAME="haswell", NUMBA_CPU_FEATURES=HASWELL))
    a = attention("F16", (200, 16), 1, 4, 64)
    launch(attention_kernel, "portable", "F16", 2, a.slots)
    assert found == {**expected(cases), "attention": a.out.tobytes().hex()}


MACHINES = (
    "pi4", "pi5", "graviton4", "ampereone", "m1-virtual", "m2", "phone-no-sve", "snapdragon-x",
    "altra-masked",
)  # fmt: skip


# Of each level, and with and without SVE.
EACH_KIND = ("pi4", "pi5", "graviton4", "phone-no-sve")
KNOWN = """
import json, sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
triple, processors = json.loads(sys.argv[1])
for name, features in processors:
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=name, features=features)
    machine.emit_object(llvm.parse_assembly("define void @f() { ret void }"))
"""


def compiled_for(machine: str) -> tuple[str, str]:
    one = PROCESSORS[machine]
    return one.compiled_for, feature_text(arm_features(*one.hwcaps()))


def said_of(processors: list[tuple[str, str]]) -> str:
    """What LLVM writes when it compiles for processors of these names and features."""
    command = [sys.executable, "-I", "-c", KNOWN, json.dumps([ARM, processors])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stderr


@pytest.mark.full
def test_llvm_knows_names_and_features() -> None:
    assert said_of([compiled_for(machine) for machine in PROCESSORS]) == ""
    assert "not a recognized processor" in said_of([("cortex-a7600", "+neon")])
    assert "not a recognized feature" in said_of([("cortex-a76", "+neonn")])


@pytest.mark.full
@pytest.mark.parametrize("machine", some(MACHINES, [], EACH_KIND))
def test_compiles_for_arm(machine: str) -> None:
    one = PROCESSORS[machine]
    name, features = compiled_for(machine)
    kernels = [("matmul", "IQ4_NL"), ("quantize_q8", "none")]
    if one.level == "neon-i8mm":
        kernels.append(("matmul_panels", "Q4_0"))
    code, found, said = run(ARM, name, features, one.level, kernels)
    assert code == 0, said
    assert said == ""  # LLVM knows the name and every feature
    instructions = found["matmul IQ4_NL"]
    if one.level == "portable":
        assert not {"sdot", "udot", "usdot"} & set(instructions)
    else:
        assert instructions["sdot"] >= 16
        assert instructions["tbl"] >= 4
    if one.level == "neon-i8mm":
        assert found["matmul_panels Q4_0"]["smmla"] >= 32
        assert "smmla" not in instructions  # one token's rows go by sdot
    if "+sve" not in features.split(","):
        assert not any("(scalable vectors)" in names for names in found.values())


@pytest.mark.full
def test_dot_products_that_llvm_does_not_know_of_abort() -> None:
    # Which is why the tests above, and a trial (trial.py), need a process of their own.
    code, _, said = run(ARM, "cortex-a72", "+neon", "neon", [("matmul", "IQ4_NL")])
    assert code == -signal.SIGABRT
    assert "Cannot select" in said
