"""Code that reads blocks with several scales, compiled for other processors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from tests.kernels.test_byte_dots import BYTES, TARGETS
from trinity_kernels import compiled_copy
from trinity_kernels.ops.matmul.readers import types_of
from trinity_kernels.quants.superblock import SuperBlock

FLOATS = ir.VectorType(ir.FloatType(), 16)
LAYOUTS = sorted(types_of(SuperBlock))


def compiled(level: str, result: Any, emit: Callable[[Any, Any], Any]) -> str:
    """The assembly of a function that reads a block and stores what ``emit`` gives."""
    triple, cpu, features = TARGETS[level]
    module = ir.Module()
    module.triple = triple
    kinds = [ir.IntType(64), result.as_pointer()]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), "read")
    builder = ir.IRBuilder(function.append_basic_block())
    block, to = function.args
    builder.store(emit(builder, block), to, align=1)
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


@pytest.mark.few(4)
@pytest.mark.parametrize("tag", LAYOUTS)
@pytest.mark.parametrize("level", TARGETS)
def test_compiles_without_calls(level: str, tag: str) -> None:
    block = compiled_copy.module("trinity_kernels.quants").READERS[tag]
    parts = range(block.elements // 64)
    texts = [
        compiled(level, BYTES, lambda b, at, p=p: block.emit_codes(level, b, at, p)) for p in parts
    ]
    texts.append(compiled(level, FLOATS, block.emit_scales))
    for text in texts:
        # No call means that LLVM knew every intrinsic; float16 needs none on these processors.
        assert not re.search(r"^\s+(bl|call\w*)\s", text, re.MULTILINE)
