"""The instructions of int8 dot products, also on other processors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from trinity_kernels import compiled_copy

byte_dots = compiled_copy.module("trinity_kernels.byte_dots")
BYTES, WORDS = ir.VectorType(ir.IntType(8), 64), ir.VectorType(ir.IntType(32), 16)
TARGETS = {
    "neon": ("aarch64-unknown-linux-gnu", "", "+neon,+dotprod"),
    "neon-i8mm": ("aarch64-unknown-linux-gnu", "", "+neon,+dotprod,+i8mm"),
    "avx2": ("x86_64-unknown-linux-gnu", "haswell", ""),
    "avx512vnni": ("x86_64-unknown-linux-gnu", "cascadelake", "-prefer-256-bit"),
}
INSTRUCTIONS = {
    "neon": ("sdot", 4),
    "neon-i8mm": ("sdot", 4),
    "avx2": ("vpmaddubsw", 2),
    "avx512vnni": ("vpdpbusd", 1),
}
EMITTERS = (byte_dots.emit_dot_u8i8, byte_dots.emit_dot_i8i8, byte_dots.emit_dot_i8i8_sums)


def assembly(level: str, emit: Callable[..., Any]) -> str:
    """Return LLVM's assembly of one dot product over pointers."""
    triple, cpu, features = TARGETS[level]
    module = ir.Module()
    module.triple = triple
    pointers = [WORDS.as_pointer(), BYTES.as_pointer(), BYTES.as_pointer()]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), pointers), "dot")
    builder = ir.IRBuilder(function.append_basic_block())
    acc, a, b = (builder.load(pointer, align=1) for pointer in function.args)
    builder.store(emit(level, builder, acc, a, b), function.args[0], align=1)
    builder.ret_void()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=3
    )
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    text: str = machine.emit_assembly(parsed)
    return text


@pytest.mark.parametrize("emit", EMITTERS, ids=lambda e: e.__name__)
@pytest.mark.parametrize("level", TARGETS)
def test_compiles_to_the_instruction(level: str, emit: Callable[..., Any]) -> None:
    name, count = INSTRUCTIONS[level]
    text = assembly(level, emit)
    assert len(re.findall(rf"^\s+{name}\b", text, re.MULTILINE)) == count
    # No call means that LLVM knew every intrinsic.
    assert not re.search(r"^\s+(bl|call\w*)\s", text, re.MULTILINE)
