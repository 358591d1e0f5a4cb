"""Kernels as other processors run them: compiled for Haswell, and as plain Python."""

from __future__ import annotations

import pytest

from tests.kernels.launch import launch
from tests.kernels.operands import attention, product
from tests.kernels.process import run_python
from tests.kernels.test_isa import HASWELL
from trinity_kernels.isa import available_levels
from trinity_kernels.ops.attention import attention as attention_kernel
from trinity_kernels.ops.matmul.activations import FORMS
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


def test_plain_python_gives_the_same_bits() -> None:
    cases = [case(tag) for tag in FORMS]
    code = PRODUCTS.format(cases=cases, level="portable")
    assert results(run_python(code, NUMBA_DISABLE_JIT="1")) == expected(cases)


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
