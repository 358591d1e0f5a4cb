"""Products of two rows and two tokens, which neon-i8mm has, on other processors.

The code is compiled for ARM and its instructions are counted. It also runs here, with Arm's
products written as plain instructions. Scales are powers of two and codes are small, so every float
is exact and the result must equal the formula's bit by bit.

Their code is compiled for ARM and its instructions are counted; and it is run here, with Arm's
products written out in plain instructions. Scales are powers of two and codes small, so that every
float is exact and the formula's result must come out to the last bit.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

from tests.kernels.reference import Floats
from trinity_kernels import compiled_copy

simd = compiled_copy.module("trinity_kernels.simd")
panel_pairs = compiled_copy.module("trinity_kernels.ops.matmul.panel_pairs")
I64 = ir.IntType(64)
ARM = "aarch64-unknown-linux-gnu"
FEATURES = "+neon,+dotprod,+i8mm,-sve"
PROCESSORS = ("neoverse-v1", "neoverse-v2", "apple-m2", "ampere1a")
ROWS, TOKENS, BLOCKS = 16, panel_pairs.AT_ONCE, 3
# parts, activations of 19 bits, minima, unsigned codes
KINDS = (
    (1, False, True, False), (1, False, False, False), (2, False, True, False),
    (1, True, True, False), (2, True, True, False), (1, True, True, True),
)  # fmt: skip
Emit = Callable[[Any, list[Any]], None]


def blocks_of(kind: tuple[int, bool, bool, bool]) -> Emit:
    return lambda builder, args: panel_pairs.emit_blocks(builder, args, *kind)


def transpose(builder: Any, args: list[Any]) -> None:
    panel_pairs.emit_transpose(builder, *args)


def compiled(emit: Emit, arguments: int, triple: str, cpu: str, features: str) -> Any:
    """Return a module with the function ``f`` of addresses and numbers, and its target machine."""
    module = ir.Module()
    module.triple = triple
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * arguments), "f")
    builder = ir.IRBuilder(function.append_basic_block())
    emit(builder, list(function.args))
    builder.ret_void()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=2
    )
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder_of_passes = llvm.create_pass_builder(machine, options)
    builder_of_passes.getModulePassManager().run(parsed, builder_of_passes)
    return parsed, machine


def inner_loop(emit: Emit, arguments: int, cpu: str) -> list[str]:
    """Return the instructions of the loop that multiplies."""
    parsed, machine = compiled(emit, arguments, ARM, cpu, FEATURES)
    parts = re.split(r"^\.L\w+:.*$", machine.emit_assembly(parsed), flags=re.MULTILINE)
    (loop,) = (part for part in parts if re.search(r"\bu?smmla\b", part))
    return [line.strip() for line in loop.splitlines() if re.match(r"\s+[a-z]", line)]


def uses_stack(line: str) -> bool:
    return "[sp" in line


@pytest.mark.parametrize("cpu", PROCESSORS)
@pytest.mark.parametrize("kind", KINDS[:3])
def test_products_of_blocks_stay_in_registers(kind: tuple[int, bool, bool, bool], cpu: str) -> None:
    loop = inner_loop(blocks_of(kind), 10, cpu)
    # 8 rows x 4 tokens x 32 codes by 2 x 2 x 8.
    assert sum(line.startswith("smmla") for line in loop) == 32
    assert sum(uses_stack(line) for line in loop) <= (0 if kind[0] == 1 else 2)
    assert not any(re.match(r"bl\b", line) for line in loop)


@pytest.mark.parametrize("cpu", PROCESSORS)
def test_ternary_products_stay_in_registers(cpu: str) -> None:
    loop = inner_loop(panel_pairs.emit_codes, 6, cpu)
    assert sum(line.startswith("smmla") for line in loop) == 64
    assert not any(uses_stack(line) for line in loop)
    assert len(loop) < 2.25 * 64


def test_codes_of_8_bits_take_the_unsigned_product() -> None:
    loop = inner_loop(blocks_of(KINDS[-1]), 10, "neoverse-v1")
    assert sum(line.startswith("usmmla") for line in loop) == 3 * 32
    assert not any(line.startswith("smmla") for line in loop)


def by_formula(builder: Any, name: str, result: Any, args: list[Any]) -> Any:
    """Replace Arm's products of 2 x 8 and 8 x 2 bytes by plain instructions."""
    if ".neon." not in name:
        return CALL(builder, name, result, args)
    sums, first, second = args
    wide = ir.VectorType(ir.IntType(32), 16)
    a = builder.zext(first, wide) if "usmmla" in name else builder.sext(first, wide)
    b = builder.sext(second, wide)
    # Lanes 8 (2 i + j) + k: row i of the first and row j of the second.
    a = simd.shuffle(builder, a, a, [8 * i + k for i in (0, 0, 1, 1) for k in range(8)])
    b = simd.shuffle(builder, b, b, [8 * j + k for j in (0, 1, 0, 1) for k in range(8)])
    products = builder.mul(a, b)
    for lanes in (32, 16, 8):
        even, odd = (
            simd.shuffle(builder, products, products, list(range(start, lanes, 2)))
            for start in (0, 1)
        )
        products = builder.add(even, odd)
    return builder.add(sums, products)


CALL = simd.call_named


def run(monkeypatch: pytest.MonkeyPatch, emit: Emit, *arguments: int) -> None:
    """Compile for this processor and call."""
    monkeypatch.setattr(simd, "call_named", by_formula)
    parsed, machine = compiled(
        emit,
        len(arguments),
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    )
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(arguments))
    kind(engine.get_function_address("f"))(*arguments)


def packed(monkeypatch: pytest.MonkeyPatch, codes: Any) -> Any:
    """Pack [16 rows][k] bytes to a panel, 64 codes at a time."""
    panel = np.zeros_like(codes).reshape(-1)
    for start in range(0, codes.shape[1], 64):
        part = np.ascontiguousarray(codes[:, start : start + 64])
        to = panel[16 * start :]
        run(monkeypatch, transpose, part.ctypes.data, to.ctypes.data)
        expected = part.reshape(16, 8, 8).transpose(1, 0, 2)
        np.testing.assert_array_equal(to[:1024].reshape(8, 16, 8), expected)
    return panel


def powers(rng: np.random.Generator, *shape: int) -> Floats:
    found: Floats = (2.0 ** rng.integers(0, 2, shape)).astype(np.float32)
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_by_the_formula(
    kind: tuple[int, bool, bool, bool], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, fine, minima, unsigned = kind
    rng = np.random.default_rng(7)
    k, planes = 32 * BLOCKS, 3 if fine else 1
    low, high = (200, 256) if unsigned else (-128, 128)
    codes = rng.integers(low, high, (ROWS, 32 * 4)).astype(np.uint8 if unsigned else np.int8)
    panel = packed(monkeypatch, codes)
    weights = codes[:, :k].astype(np.float64).reshape(ROWS, BLOCKS, parts, -1)
    # Per block: the scales of its parts, then their minima, each of 16 rows.
    d, m = powers(rng, BLOCKS, parts, ROWS), -powers(rng, BLOCKS, parts, ROWS)
    m *= minima
    scales = np.ascontiguousarray(np.concatenate([d, m], axis=1))
    # A token: its codes of each plane, a scale for each block, a number for each part.
    x_codes = rng.integers(-127, 128, (count, planes, k)).astype(np.int8)
    if fine:
        x_codes[:, 0] = rng.integers(-1, 2, (count, k))
    x_scales, x_sums = powers(rng, count, BLOCKS), powers(rng, count, BLOCKS * parts)
    tokens = np.concatenate(
        [x_codes.reshape(count, -1), x_scales.view(np.int8), x_sums.view(np.int8)], axis=1
    )
    numbers = (x_codes * np.array([65536, 256, 1][-planes:])[:, None]).sum(1).astype(np.float64)
    products = np.einsum("rbph,tbph->trbp", weights, numbers.reshape(count, BLOCKS, parts, -1))
    expected = np.einsum("bpr,tb,trbp->tr", d, x_scales, products)
    expected += np.einsum("bpr,tbp->tr", m, x_sums.reshape(count, BLOCKS, parts))
    before = rng.integers(-9, 9, (TOKENS, ROWS)).astype(np.float32)
    expected += before[:count]
    to = before.copy()
    run(
        monkeypatch, blocks_of(kind), panel.ctypes.data, scales.ctypes.data, BLOCKS,
        tokens.ctypes.data, count - 1, tokens.shape[1], k, planes * k,
        planes * k + 4 * BLOCKS, to.ctypes.data,
    )  # fmt: skip
    # Sums of numbers of 19 bits have more bits than float32: each of three blocks is rounded twice.
    size = np.abs(products).sum((2, 3)) if fine else np.zeros((count, ROWS))
    assert np.all(np.abs(to[:count] - expected) <= 4 * 6 * 2.0**-24 * size)


@pytest.mark.few(2)
@pytest.mark.parametrize(("count", "blocks"), [(1, 2), (4, 8), (7, 9), (16, 17)])
def test_ternary_codes_by_the_formula(
    count: int, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    k = 256 * blocks
    codes = rng.integers(0, 3, (ROWS, k)).astype(np.int8)
    x = rng.integers(-127, 128, (count, k)).astype(np.int8)
    panel = np.ascontiguousarray(codes.reshape(16, k // 8, 8).transpose(1, 0, 2))
    before = rng.integers(-9, 9, (16, ROWS)).astype(np.int32)
    to = before.copy()
    run(
        monkeypatch, panel_pairs.emit_codes, panel.ctypes.data, blocks, x.ctypes.data, count - 1,
        k, to.ctypes.data,
    )  # fmt: skip
    expected = before[:count] + x.astype(np.int32) @ codes.astype(np.int32).T
    np.testing.assert_array_equal(to[:count], expected)
    rest = slice(-(-count // TOKENS) * TOKENS, None)
    np.testing.assert_array_equal(to[rest], before[rest])
