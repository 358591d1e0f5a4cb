"""The table of variants: which code multiplies which type, on which level, for how many rows.

A plan chooses a kernel for each product by level and type: the first one that has the type. Within
the kernel the number of rows of a step chooses the variant: the first line that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from trinity_kernels._jit import Kernel
from trinity_kernels.isa import LEVELS
from trinity_kernels.ops.matmul import float_block, panel_layout, tile_layout
from trinity_kernels.ops.matmul.activations import FORMS
from trinity_kernels.ops.matmul.operands import PACK_FROM, TILE_ROWS
from trinity_kernels.ops.matmul.panels import matmul_panels
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.ops.matmul.tiles import matmul_tiles


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to multiply ``first`` to ``last`` rows of activations (None: any number).

    ``exact``: each row gets the bits that it gets alone.
    """

    name: str
    kernel: Kernel
    types: frozenset[str]
    levels: frozenset[str]
    first: int
    last: int | None
    exact: bool

    def serves(self, quant: str, level: str, rows: int) -> bool:
        """Whether this variant has that type, level and number of rows."""
        return (
            quant in self.types
            and level in self.levels
            and self.first <= rows
            and (self.last is None or rows <= self.last)
        )


def _of_form(form: str) -> frozenset[str]:
    return frozenset(name for name, of_type in FORMS.items() if of_type == form)


_TERNARY = _of_form("ternary")
_TILED, _INTEGER = tile_layout.tile_types(), tile_layout.int8_tile_types()
_PACKED = panel_layout.panel_types()
_AMX = tile_layout.LEVELS
# amx uses the code of avx512vnni if tiles do not work.
_PANELS = panel_layout.LEVELS | _AMX
_BLOCKS = frozenset(float_block.SIZES)

VARIANTS = (
    Variant("int8 tiles", matmul_tiles, _TERNARY, _AMX, PACK_FROM, None, True),
    Variant("int8 tiles by group", matmul_tiles, _INTEGER, _AMX, PACK_FROM, TILE_ROWS, False),
    Variant("bfloat16 tiles", matmul_tiles, _TILED - _TERNARY, _AMX, PACK_FROM, None, False),
    Variant("dot products", matmul_tiles, _TILED, _AMX, 1, PACK_FROM - 1, True),
    Variant("panels", matmul_panels, _TERNARY, _PANELS, PACK_FROM, None, True),
    Variant(
        "panels", matmul_panels, _of_form("q8") | _of_form("q19"), _PANELS, PACK_FROM, None, False
    ),
    Variant("dot products", matmul_panels, _PACKED, _PANELS, 1, PACK_FROM - 1, True),
    Variant("float blocks", matmul, float_block.TYPES, _BLOCKS, 2, None, True),
    Variant("dot products", matmul, frozenset(FORMS), frozenset(LEVELS), 1, None, True),
)


def kernels(level: str) -> list[Kernel]:
    """The kernels of a level, the best for many rows first; the last has every type."""
    found = [variant.kernel for variant in VARIANTS if level in variant.levels]
    return list(dict.fromkeys(found))


def types_of(kernel: Kernel) -> frozenset[str]:
    """The types that a kernel multiplies."""
    found = [variant.types for variant in VARIANTS if variant.kernel is kernel]
    return frozenset().union(*found)


def choose_kernel(
    level: str, types: Iterable[str], works: Callable[[Kernel, list[str]], bool]
) -> Kernel:
    """The best kernel for many rows of weights of ``types`` that ``works`` for all types it has.

    ``matmul`` multiplies the types that the kernel lacks (``serves``). If there are types with
    blocks, they decide, because a model then has few plain numbers.
    """
    *packed, last = kernels(level)
    there = set(types)
    blocks = there - float_block.TYPES or there
    for kernel in packed:
        taken = sorted(types_of(kernel) & there)
        if types_of(kernel) & blocks and works(kernel, taken):
            return kernel
    return last


def serves(kernel: Kernel, quant: str, exact: bool = False) -> bool:
    """Whether a kernel has a type; ``exact``: with the bits that each row gets alone."""
    found = [v.exact for v in VARIANTS if v.kernel is kernel and quant in v.types]
    return bool(found) and (all(found) or not exact)


def kernel_of(quant: str, level: str, exact: bool = False) -> Kernel:
    """The kernel for a type; ``exact``: one with the bits that each row gets alone.

    Raises: KeyError for a type that no kernel has.
    """
    for kernel in kernels(level):
        if serves(kernel, quant, exact):
            return kernel
    raise KeyError(quant)


def find(quant: str, level: str, rows: int, exact: bool = False) -> Variant:
    """The variant for ``rows`` rows of activations. Raises: as kernel_of."""
    kernel = kernel_of(quant, level, exact)
    fits = (v for v in VARIANTS if v.kernel is kernel and v.serves(quant, level, rows))
    return next(fits)


def scratch_bytes(kernel: Kernel, quant: str, k: int) -> int:
    """Bytes of a thread's scratch that a kernel needs for rows of ``k`` weights."""
    if kernel is matmul_tiles:
        return tile_layout.scratch_bytes(FORMS[quant], k)
    return panel_layout.scratch_bytes(FORMS[quant], k) if kernel is matmul_panels else 0


@dataclass(frozen=True, slots=True)
class Span:
    """A line of the resulting table: types of one level that have the same variant."""

    level: str
    types: tuple[str, ...]
    first: int
    last: int | None
    variant: Variant


def spans(levels: Iterable[str] = LEVELS, types: Iterable[str] = FORMS) -> Iterator[Span]:
    """The variants by level, number of rows and types, without gaps."""
    starts = sorted({v.first for v in VARIANTS} | {v.last + 1 for v in VARIANTS if v.last})
    for level in levels:
        groups: dict[tuple[int, int | None, Variant], list[str]] = {}
        for quant in sorted(types):
            for variant, first, last in _runs(quant, level, starts):
                groups.setdefault((first, last, variant), []).append(quant)
        for first, last, variant in sorted(groups, key=lambda key: (key[0], key[1] or 1 << 30)):
            found = groups[first, last, variant]
            yield Span(level, tuple(found), first, last, variant)


def _runs(quant: str, level: str, starts: list[int]) -> Iterator[tuple[Variant, int, int | None]]:
    """A type's variants on a level, each with the first and last number of rows."""
    first = starts[0]
    for here, following in zip(starts, [*starts[1:], None], strict=True):
        variant = find(quant, level, here)
        if following is None:
            yield variant, first, None
        elif find(quant, level, following) is not variant:
            yield variant, first, following - 1
            first = following
