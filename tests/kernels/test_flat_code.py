"""Object files linked into position-independent bytes."""

from __future__ import annotations

import ctypes
import math
import platform
import re
import struct

import llvmlite.binding as llvm
import pytest

from trinity_kernels import loaded_code
from trinity_kernels.flat_code import FlatCode, UnlinkableError, link

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
HERE = {"x86_64": X86, "aarch64": ARM}.get(platform.machine())
runs = pytest.mark.skipif(
    HERE is None or not loaded_code.supported(), reason="code is loaded on Linux, x86-64 or AArch64"
)
# A table of constants, a call of another function and one of C.
SUM = """
@table = internal constant [4 x double] [double 1.0, double 2.5, double 4.0, double 8.0]
declare double @exp2(double)
define internal double @get(i64 %i) noinline {
  %p = getelementptr [4 x double], [4 x double]* @table, i64 0, i64 %i
  %v = load double, double* %p
  ret double %v
}
define double @start(i64 %i) {
  %v = call double @get(i64 %i)
  %e = call double @exp2(double %v)
  %s = fadd double %e, %v
  ret double %s
}
"""
COUNTER = """
@count = internal global i64 0
define i64 @start(i64 %n) {
  %old = load i64, i64* @count
  %new = add i64 %old, %n
  store i64 %new, i64* @count
  ret i64 %new
}
"""


def compiled(text: str, triple: str, function: str = "start") -> FlatCode:
    return link(object_file(text, triple), function)


def object_file(text: str, triple: str, **options: str) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    settings = {"opt": 3, "reloc": "pic", "codemodel": "small", **options}
    machine = llvm.Target.from_triple(triple).create_target_machine(**settings)
    content: bytes = machine.emit_object(llvm.parse_assembly(f'target triple = "{triple}"\n{text}'))
    return content


def callable_of(flat: FlatCode, result: type, *arguments: type) -> object:
    return ctypes.CFUNCTYPE(result, *arguments)(loaded_code.load(flat))


@runs
def test_constants_functions_and_calls_of_c() -> None:
    flat = compiled(SUM, str(HERE))
    assert [name for name, _ in flat.calls] == ["exp2"]
    assert flat.variables == 0
    function = callable_of(flat, ctypes.c_double, ctypes.c_int64)
    for number, value in enumerate((1.0, 2.5, 4.0, 8.0)):
        assert function(number) == math.exp2(value) + value  # type: ignore[operator]


@runs
def test_variables_are_each_copys_own() -> None:
    flat = compiled(COUNTER, str(HERE))
    assert flat.variables == 8
    one, other = (callable_of(flat, ctypes.c_int64, ctypes.c_int64) for _ in range(2))
    assert [one(5), one(5), other(1)] == [5, 10, 1]  # type: ignore[operator]


@pytest.mark.parametrize("triple", [X86, ARM])
def test_calls_go_through_a_word_for_the_address(triple: str) -> None:
    flat = compiled(SUM, triple)
    ((name, offset),) = flat.calls
    assert name == "exp2"
    assert flat.code[offset : offset + 8] == bytes(8)
    assert offset % 8 == 0
    assert compiled(COUNTER, triple).code[-1:] == b"\0"


@pytest.mark.parametrize("kind", ["i8", "i16", "i32", "i64", "<4 x i32>"])
def test_arm_addresses_of_constants(kind: str) -> None:
    """ADRP gives the page of a constant, the following load the offset in the page."""
    value = "<i32 7, i32 8, i32 9, i32 10>" if kind.startswith("<") else "77"
    text = f"""
@other = internal constant [4099 x i8] zeroinitializer
@table = internal constant [2 x {kind}] [{kind} {value}, {kind} {value}]
define {kind} @start(i64 %i) {{
  %p = getelementptr [2 x {kind}], [2 x {kind}]* @table, i64 0, i64 1
  %v = load volatile {kind}, {kind}* %p
  %q = getelementptr [4099 x i8], [4099 x i8]* @other, i64 0, i64 %i
  %w = load volatile i8, i8* %q
  ret {kind} %v
}}
"""
    content = object_file(text, ARM)
    flat = link(content, "start")
    bits = re.search(r"i(\d+)", kind)
    assert bits
    size = 16 if kind.startswith("<") else int(bits[1]) // 8
    table = struct.pack("<4I", 7, 8, 9, 10) if size == 16 else (77).to_bytes(size, "little")
    pages: dict[int, int] = {}
    reached = []
    for at in range(flat.entry, len(flat.code) - 4, 4):
        (word,) = struct.unpack_from("<I", flat.code, at)
        register, base = word & 31, word >> 5 & 31
        if word & 0x9F000000 == 0x90000000:  # ADRP
            pages[register] = (at & ~4095) + ((word >> 29 & 3 | (word >> 5 & 0x7FFFF) << 2) << 12)
        elif word & 0xFF800000 == 0x91000000 and base in pages:  # ADD (immediate)
            reached.append(pages[base] + (word >> 10 & 0xFFF))
        elif word & 0x3B000000 == 0x39000000 and base in pages:  # LDR (immediate)
            scale = 4 if word & 0x04800000 == 0x04800000 else word >> 30
            reached.append(pages[base] + ((word >> 10 & 0xFFF) << scale))
        elif word == 0xD65F03C0:  # RET
            break
    assert len(reached) >= 2
    assert any(flat.code[place : place + size] == table for place in reached)


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        ("define void @other() {\n ret void\n}", {}, "no function"),
        ("@v = internal global i64 3\ndefine i64* @start() {\n ret i64* @v\n}", {}, "data"),
        ("@v = external global i64\ndefine i64* @start() {\n ret i64* @v\n}", {}, "relocation"),
        (SUM, {"reloc": "static", "codemodel": "large"}, "relocation"),
    ],
)
def test_what_cannot_be_linked(text: str, options: dict[str, str], why: str) -> None:
    with pytest.raises(UnlinkableError, match=why):
        link(object_file(text, X86, **options), "start")


@pytest.mark.parametrize("triple", ["x86_64-apple-macosx", "x86_64-pc-windows-msvc", "armv7-linux"])
def test_other_formats_are_refused(triple: str) -> None:
    with pytest.raises(UnlinkableError):
        compiled("define void @start() {\n ret void\n}", triple)


@runs
def test_functions_that_code_may_call() -> None:
    for name in loaded_code.CALLS:
        assert loaded_code.function_address(name)
    assert loaded_code.function_address("system") is None
    assert not loaded_code.loadable(FlatCode(bytes(16), 0, 0, (("system", 8),)))
