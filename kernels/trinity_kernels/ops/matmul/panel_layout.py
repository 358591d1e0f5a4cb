"""The layout of panels: 16 rows of weights side by side, for products with several tokens.

A lane of a vector is a row, so nothing is summed across lanes.

    q8, q19  for each block of 32 elements the codes as 8 lines of 16 rows x 4 codes; then for each
             block 16 scales and 16 minima, of each half if 16 elements have a scale
    ternary  for each 64 places of the ternary order 16 lines of 16 rows x 4 codes; then, if there
             are scales, those of 16 rows for each 256 codes

On neon-i8mm there are half as many lines, of 16 rows x 8 codes (panel_pairs.py).
"""

from __future__ import annotations

from typing import Any

from trinity_kernels.ops.matmul.activations import FORMS
from trinity_kernels.quants import READERS
from trinity_kernels.tags import chosen, constant, shared

# Tokens that are multiplied together, by form and level: their sums fit the registers. For ternary
# types on neon-i8mm the sums of four fit, and the cache keeps a part of the panel for the others.
TOKENS = {
    "q8": {"avx512vnni": 6, "avx2": 4, "neon-i8mm": 4, "neon": 4},
    "q19": {"avx512vnni": 6, "avx2": 4, "neon-i8mm": 4, "neon": 4},
    "ternary": {"avx512vnni": 10, "avx2": 4, "neon-i8mm": 16, "neon": 4},
}
LEVELS = frozenset(TOKENS["q8"])
PANELS = 2  # that avx512vnni multiplies together (panel_wide.py)
FEW = 4  # tokens that avx512vnni multiplies together where fewer than ``TOKENS`` are left
TERNARY_SCRATCH = 4096  # bytes after a panel, for transposing rows
# Elements of a row that are packed together: two panels then fit the first-level cache. Panels of
# ternary types whose blocks have scales have whole rows.
PART = 512
# Tokens whose sums are kept from one part of a row to the next; for more a row is packed again.
KEPT = 512


def panel_types() -> frozenset[str]:
    """The types whose rows are packed into panels."""
    return frozenset(name for name, form in FORMS.items() if form in TOKENS)


@constant
def tokens_at_once(isa: Any, qt: Any) -> int:
    """Tokens that are multiplied together; 1 if the level has no panels."""
    return TOKENS[FORMS[qt.value]].get(isa.value, 1)


@chosen
def next_tokens(isa: Any, qt: Any, left: Any) -> Any:
    """How many of ``left`` tokens to multiply together next.

    avx512vnni has code for ``TOKENS``, for 8 of the ternary form, and for ``FEW`` or fewer.
    """
    most = TOKENS[FORMS[qt.value]].get(isa.value, 1)
    if isa.value != "avx512vnni":
        return lambda isa, qt, left: min(most, left)
    second = 8 if FORMS[qt.value] == "ternary" else FEW

    def choose(isa: Any, qt: Any, left: int) -> int:
        if left == most or left > 2 * second:
            return most
        return second if left >= second else min(left, FEW)

    return choose


@constant
def part_elements(qt: Any) -> int:
    """Elements of a row that are packed together."""
    return 1 << 62 if READERS[qt.value].form == "ternary" else PART


@constant
def panels_at_once(isa: Any, qt: Any) -> int:
    """Panels that are multiplied together."""
    return PANELS if isa.value == "avx512vnni" else 1


@constant
def has_halves(qt: Any) -> bool:
    """Whether a scale belongs to 16 elements."""
    return READERS[qt.value].group == 16


@shared
def q8_scales_at(k: int) -> int:
    """Bytes from a panel's codes to its scales, of the q8 form."""
    return (k + 63) // 64 * 1024


@shared
def ternary_scales_at(k: int) -> int:
    """Bytes from a panel's codes to its scales, of the ternary form."""
    return (k + 255) // 256 * 4096


@shared
def q8_panel_bytes(k: int) -> int:
    """Bytes of a panel of the q8 form."""
    return q8_scales_at(k) + (k + 63) // 64 * 512


@shared
def ternary_panel_bytes(k: int) -> int:
    """Bytes of a panel of the ternary form."""
    return ternary_scales_at(k) + (k + 255) // 256 * 64


def scratch_bytes(form: str, k: int) -> int:
    """Bytes of a thread's scratch: sums of tokens, panels, memory for transposing rows."""
    sums = 64 * PANELS * (KEPT + max(TOKENS[form].values()))
    if form in ("q8", "q19"):
        return sums + PANELS * q8_panel_bytes(min(k, PART)) + 3072
    # Including four accumulators for each token, for blocks with a scale.
    accumulators = 256 * PANELS * max(TOKENS[form].values())
    return sums + PANELS * ternary_panel_bytes(k) + TERNARY_SCRATCH + accumulators
