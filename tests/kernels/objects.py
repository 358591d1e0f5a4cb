"""Object code as the compiler leaves it, and the symbols that an ELF file lacks."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from numba.core.codegen import JITCodeLibrary

from trinity_kernels import _jit
from trinity_kernels._jit import Entry, Kernel

_SYMBOL_TABLE = 2  # a section's type
_UNDEFINED = 0  # in place of a symbol's section


def undefined_symbols(code: bytes) -> set[str]:
    """Names that an ELF file of 64 bits refers to and does not define."""
    assert code[:6] == b"\x7fELF\x02\x01"
    (start,) = struct.unpack_from("<Q", code, 0x28)
    size, count = struct.unpack_from("<HH", code, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, start + size * i) for i in range(count)]
    found = set()
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind == _SYMBOL_TABLE:
            names = sections[link][4]
            for at in range(offset + 24, offset + length, 24):  # the first one has no name
                name, _, _, section = struct.unpack_from("<IBBH", code, at)
                if section == _UNDEFINED:
                    end = code.index(0, names + name)
                    found.add(code[names + name : end].decode())
    return found


@contextmanager
def _loaded() -> Iterator[list[bytes]]:
    """Object code that is loaded from the cache meanwhile."""
    codes: list[bytes] = []
    take = JITCodeLibrary._set_compiled_object

    def keep(library: JITCodeLibrary, code: bytes) -> None:
        codes.append(code)
        take(library, code)

    JITCodeLibrary._set_compiled_object = keep
    try:
        yield codes
    finally:
        JITCodeLibrary._set_compiled_object = take


def kernel_code(kernel: Kernel, level: str, tag: str) -> bytes:
    """The object code of a kernel, compiled or from the cache."""
    fresh = Kernel(kernel.function, kernel.own)
    with _loaded() as codes:
        fresh.address(level, tag)
    return codes[0] if codes else _compiled(fresh._compiled[kernel.level_of(level), tag])


def entry_code(entry: Entry) -> bytes:
    """The object code of a function that Python calls, compiled or from the cache."""
    known = _jit._c_functions.pop(entry.function, None)
    try:
        with _loaded() as codes:
            assert entry.address
        return codes[0] if codes else _compiled(_jit._c_functions[entry.function])
    finally:
        if known is not None:  # its address may be in use
            _jit._c_functions[entry.function] = known


def _compiled(function: object) -> bytes:
    code: bytes = function._library._get_compiled_object()  # type: ignore[attr-defined]
    return code
