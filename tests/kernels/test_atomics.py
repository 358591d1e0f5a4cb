"""The instruction that spin loops wait with, also on other processors."""

from __future__ import annotations

import re
from types import SimpleNamespace

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from trinity_kernels import compiled_copy


@pytest.mark.parametrize(
    ("triple", "instruction"),
    [
        ("x86_64-unknown-linux-gnu", "pause"),
        ("aarch64-unknown-linux-gnu", "isb"),
        ("arm64-apple-darwin", "isb"),
        ("aarch64-pc-windows-msvc", "isb"),
    ],
)
def test_pause(triple: str, instruction: str) -> None:
    module = ir.Module()
    module.triple = triple
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), []), "wait")
    builder = ir.IRBuilder(function.append_basic_block())
    pause = compiled_copy.module("trinity_kernels.atomics").pause
    signature, codegen = pause._defn(None)
    codegen(SimpleNamespace(get_dummy_value=lambda: None), builder, signature, [])
    builder.ret_void()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(opt=2)
    text = machine.emit_assembly(llvm.parse_assembly(str(module)))
    assert len(re.findall(rf"^\s+{instruction}\b", text, re.MULTILINE)) == 1
    assert not re.search(r"^\s+(bl|call\w*)\s", text, re.MULTILINE)
