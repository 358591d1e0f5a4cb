"""A kernel's machine code as bytes that run at any address: linked when compiled, not when loaded.

LLVM writes an ELF object file for position-independent code. Its sections are put side by side here
and every reference between them, which is relative, is filled in. What is left are calls of C
functions: each goes through a jump whose address the loader writes. The layout of the code:

    instructions and constants    executable
    jumps                         16 bytes for each C function: a jump through the word after it
    zeros to the next page, variables that start as zeros    only if there are variables

Source: System V ABI, AMD64 supplement 4.4; ELF for the Arm 64-bit Architecture (AAELF64) 5.7.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

_X86, _ARM = 62, 183  # e_machine
_PAGES = {_X86: 4096, _ARM: 65536}  # the largest that a system uses
_PROGBITS, _SYMTAB, _RELA, _NOBITS = 1, 2, 4, 8
_WRITE, _ALLOC = 1, 2
_COMMON = 0xFFF2
# jmp *2(%rip); ldr x16, .+8 and br x16. The word after it is the function's address.
_JUMPS = {_X86: "ff25020000009090", _ARM: "5000005800021fd6"}


class UnlinkableError(ValueError):
    """The object file needs something that this module does not provide."""


class FlatCode(NamedTuple):
    """Machine code without an address."""

    code: bytes  # a whole number of pages if ``variables``
    entry: int  # where the function starts in ``code``
    variables: int = 0  # bytes of zeros after ``code`` that can be written
    calls: tuple[tuple[str, int], ...] = ()  # C functions, and where their addresses go in ``code``


class _Section(NamedTuple):
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int


class _Symbol(NamedTuple):
    name: str
    section: int
    value: int


class _Object:
    """A relocatable ELF file, as LLVM wrote it."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        if content[:6] != b"\x7fELF\x02\x01":
            raise UnlinkableError("not a 64-bit little-endian ELF file")
        self.machine = struct.unpack_from("<H", content, 18)[0]
        if self.machine not in _PAGES:
            raise UnlinkableError(f"ELF machine {self.machine}")
        (table,) = struct.unpack_from("<Q", content, 40)
        (count,) = struct.unpack_from("<H", content, 60)
        headers = (struct.unpack_from("<IIQQQQIIQQ", content, table + 64 * i) for i in range(count))
        self.sections = [_Section(h[1], h[2], h[4], h[5], h[6], h[7], h[8]) for h in headers]
        self.symbols = [
            symbol for s in self.sections if s.kind == _SYMTAB for symbol in self._read(s)
        ]

    def _read(self, table: _Section) -> Iterator[_Symbol]:
        names = self.sections[table.link].offset
        for at in range(table.offset, table.offset + table.size, 24):
            name, _, _, section, value = struct.unpack_from("<IBBHQ", self.content, at)
            start = names + name
            text = self.content[start : self.content.index(b"\0", start)].decode()
            yield _Symbol(text, section, value)

    def relocations(self) -> Iterator[tuple[int, int, int, _Symbol, int]]:
        """Section, offset in it, type, symbol, addend."""
        for table in self.sections:
            if table.kind == _RELA:
                for at in range(table.offset, table.offset + table.size, 24):
                    offset, info, addend = struct.unpack_from("<QQq", self.content, at)
                    yield table.info, offset, info & 0xFFFFFFFF, self.symbols[info >> 32], addend


def link(content: bytes, function: str) -> FlatCode:
    """The code of an object file whose ``function`` is called.

    Raises: UnlinkableError for a file that is not ELF, data with addresses in it, or a reference of
    another kind.
    """
    file = _Object(content)
    code = bytearray()
    places: dict[int, int] = {}
    for number, section in enumerate(file.sections):
        if section.flags & (_ALLOC | _WRITE) == _ALLOC and section.kind == _PROGBITS:
            code += bytes(-len(code) % max(section.align, 1))
            places[number] = len(code)
            code += content[section.offset : section.offset + section.size]
    used = [r for r in file.relocations() if r[0] in places]
    code += bytes(-len(code) % 16)
    jumps: dict[str, int] = {}
    for *_, symbol, _ in used:
        if symbol.section == 0 and symbol.name not in jumps:
            jumps[symbol.name] = len(code)
            code += bytes.fromhex(_JUMPS[file.machine]) + bytes(8)
    variables = _place_variables(file, code, places)
    for number, offset, kind, symbol, addend in used:
        if symbol.section == 0:
            to = jumps[symbol.name]
        elif symbol.section in places:
            to = places[symbol.section] + symbol.value
        else:
            raise UnlinkableError(f"a reference to {symbol.name or 'a section'}")
        _RELOCATE[file.machine](code, kind, places[number] + offset, to + addend)
    found = [s for s in file.symbols if s.name == function and s.section in places]
    if len(found) != 1:
        raise UnlinkableError(f"no function {function}")
    entry = places[found[0].section] + found[0].value
    return FlatCode(bytes(code), entry, variables, tuple((n, at + 8) for n, at in jumps.items()))


def _place_variables(file: _Object, code: bytearray, places: dict[int, int]) -> int:
    """Place the sections of zeros that can be written after ``code``, on pages of their own."""
    sections = [
        (number, section)
        for number, section in enumerate(file.sections)
        if section.flags & (_ALLOC | _WRITE) == _ALLOC | _WRITE and section.size
    ]
    if any(section.kind != _NOBITS for _, section in sections):
        raise UnlinkableError("data with values")
    if not sections:
        return 0
    code += bytes(-len(code) % _PAGES[file.machine])
    end = len(code)
    for number, section in sections:
        end += -end % max(section.align, 1)
        places[number] = end
        end += section.size
    return end - len(code)


def _relocate_x86(code: bytearray, kind: int, at: int, to: int) -> None:
    if kind not in (2, 4):  # R_X86_64_PC32, R_X86_64_PLT32
        raise UnlinkableError(f"relocation {kind} of x86-64")
    struct.pack_into("<i", code, at, to - at)


def _bits(value: int, low: int, count: int, *, signed: bool = True) -> int:
    """``count`` bits from ``low`` on; raises if a signed value does not fit them."""
    half = 1 << (low + count - 1)
    if signed and not -half <= value < half:
        raise UnlinkableError("a reference that is too far")
    return value >> low & (1 << count) - 1


def _relocate_arm(code: bytearray, kind: int, at: int, to: int) -> None:
    (word,) = struct.unpack_from("<I", code, at)
    if kind == 261:  # R_AARCH64_PREL32
        struct.pack_into("<i", code, at, to - at)
        return
    if kind in (282, 283):  # R_AARCH64_JUMP26, R_AARCH64_CALL26
        word |= _bits(to - at, 2, 26)
    elif kind == 274:  # R_AARCH64_ADR_PREL_LO21
        word |= _bits(to - at, 0, 2, signed=False) << 29 | _bits(to - at, 2, 19) << 5
    elif kind == 275:  # R_AARCH64_ADR_PREL_PG_HI21
        pages = (to >> 12) - (at >> 12)
        word |= _bits(pages, 0, 2, signed=False) << 29 | _bits(pages, 2, 19) << 5
    elif kind in _LOW_12:
        word |= _bits(to & 0xFFF, _LOW_12[kind], 12 - _LOW_12[kind], signed=False) << 10
    else:
        raise UnlinkableError(f"relocation {kind} of AArch64")
    struct.pack_into("<I", code, at, word)


# R_AARCH64_ADD_ABS_LO12_NC and R_AARCH64_LDST{8,16,32,64,128}_ABS_LO12_NC: bits that are left out.
_LOW_12 = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}
_Relocate = Callable[[bytearray, int, int, int], None]
_RELOCATE: dict[int, _Relocate] = {_X86: _relocate_x86, _ARM: _relocate_arm}
