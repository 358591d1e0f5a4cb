"""The table of kernel variants is complete, and each row keeps its promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.kernels import reference
from tests.kernels.launch import launch_all
from tests.kernels.operands import EPSILON, aligned, product, row_lengths, same_bits
from tests.matrix import FULL, KINDS
from trinity_kernels._jit import Kernel
from trinity_kernels.isa import BASES, LEVELS, available_levels
from trinity_kernels.ops.matmul import activation_tiles, operands, variants
from trinity_kernels.ops.matmul.activations import FORMS
from trinity_kernels.ops.matmul.panels import matmul_panels
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.ops.matmul.tiles import matmul_tiles
from trinity_kernels.ops.matmul.variants import VARIANTS, Span

SPANS = list(variants.spans(available_levels()))
ROWS = (1, 2, 3, 4, 5, 16, 17, 512)


@pytest.mark.parametrize("level", LEVELS)
def test_every_type_has_one_variant_for_any_number_of_rows(level: str) -> None:
    found = {
        (quant, rows): span.variant
        for span in variants.spans([level])
        for quant in span.types
        for rows in ROWS
        if span.first <= rows and (span.last is None or rows <= span.last)
    }
    expected = {(q, rows): variants.find(q, level, rows) for q in FORMS for rows in ROWS}
    assert found == expected
    served = [rows for s in variants.spans([level]) for _ in s.types for rows in ROWS if (
        s.first <= rows and (s.last is None or rows <= s.last)
    )]  # fmt: skip
    assert len(served) == len(expected), "two spans for one number of rows"


@pytest.mark.parametrize("level", LEVELS)
def test_an_exact_kernel_is_exact_for_any_number_of_rows(level: str) -> None:
    for quant in FORMS:
        kernel = variants.kernel_of(quant, level, exact=True)
        assert all(variants.find(quant, level, rows, exact=True).exact for rows in ROWS)
        assert kernel is matmul or FORMS[quant] == "ternary"


def test_every_line_is_reached() -> None:
    reached = [s.variant for s in variants.spans()]
    fallback = {"amx"}  # of panels, where tiles do not work
    for variant in VARIANTS:
        assert variant in reached or variant.levels <= fallback, variant.name


def test_kernels_that_do_not_work_are_left_out() -> None:
    types = {"Q4_0", "F32"}
    assert variants.choose_kernel("amx", types, lambda kernel, tags: True) is matmul_tiles
    asked = []

    def works(kernel: object, tags: list[str]) -> bool:
        asked.append(tags)
        return False

    assert variants.choose_kernel("amx", types, works) is matmul
    assert asked == [["Q4_0"], ["Q4_0"]]
    assert variants.choose_kernel("portable", types, works) is matmul


@pytest.mark.parametrize(
    ("types", "kernel"),
    [(["AFFINE4_BF16", "BF16"], matmul_panels), (["AFFINE8_F32"], matmul_panels),
     (["MXFP4", "BF16"], matmul_tiles), (["BF16", "F16"], matmul_tiles), (["F32"], matmul)],
)  # fmt: skip
def test_blocks_choose_before_plain_numbers(types: list[str], kernel: Kernel) -> None:
    """Tiles do not support affine types; a BF16 router must not force dot products."""
    assert variants.choose_kernel("amx", types, lambda kernel, tags: True) is kernel


@pytest.mark.parametrize("level", BASES)
def test_a_level_has_code_of_its_own_where_it_adds_something(level: str) -> None:
    own = {"amx": matmul_tiles, "neon-i8mm": matmul_panels}[level]
    assert own.level_of(level, "Q4_0") == level
    assert matmul.level_of(level, "Q4_0") == BASES[level]
    assert own.level_of("avx2", "Q4_0") == "avx2"


def one_type(span: Span) -> Span:
    """The same for one type."""
    return replace(span, types=tuple([t for t in span.types if t in KINDS] or span.types)[:1])


def name_of(span: Span) -> str:
    return f"{span.level}-{span.first}-{span.variant.name}-{len(span.types)}"


@pytest.mark.parametrize(
    "span", [*map(one_type, SPANS), *(pytest.param(s, marks=FULL) for s in SPANS)], ids=name_of
)
def test_a_variant_gives_the_product_and_the_bits_it_promises(span: Span) -> None:
    kernel = span.variant.kernel
    for quant in span.types:
        k = row_lengths(quant)[-2]
        p = product(quant, span.last or span.first + 2, 37, k)
        scratch = -(-variants.scratch_bytes(kernel, quant, k) // 64) * 64
        steps = []
        slots = p.slots() | {operands.SCRATCH: aligned(scratch), operands.SCRATCH_STRIDE: scratch}
        if kernel is matmul_tiles:
            first, slots = p.tile_slots(1)
            steps.append((activation_tiles.tiles_of(FORMS[quant]), "none", first))
        expected = p.run("portable")
        launch_all([*steps, (kernel, quant, slots)], span.level, len(p.x))
        if span.variant.exact:
            assert same_bits(p.out, expected), quant
            continue
        size = p.bound / (reference.roundings(quant, k) * EPSILON)
        assert np.all(np.abs(p.out - p.expected) <= 2.0**-6 * size), quant
