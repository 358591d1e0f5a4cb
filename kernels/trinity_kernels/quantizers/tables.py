"""Codes of a table of 16 values for groups of values: IQ4_NL, IQ4_XS."""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import entry, inline
from trinity_kernels.memory import get_f16, get_f32, set_f16, set_f32, set_i8
from trinity_kernels.quantizers.groups import LONGEST, gather
from trinity_kernels.quantizers.lanes import (
    LANES,
    LINE,
    load,
    splat,
    store,
    store_codes,
    where_less,
)
from trinity_kernels.quantizers.search import OUT_BYTES, SCALE, is_tiny, largest
from trinity_kernels.quants.iq4 import VALUES
from trinity_kernels.scalars import positive

_VALUES = np.array(VALUES, np.float32)
# The bounds at which the next value becomes the nearest.
_MIDDLES = (_VALUES[1:] + _VALUES[:-1]) / np.float32(2)
_ATTEMPTS = 7


@inline
def _nearest(line: Any) -> Any:
    """The nearest values of the table."""
    found = splat(_VALUES[0])
    for i in range(15):
        found = where_less(line, splat(_MIDDLES[i]), found, splat(_VALUES[i + 1]))
    return found


@inline
def _codes(line: Any) -> Any:
    """The indices of the nearest values in the table."""
    found = splat(np.float32(0))
    for i in range(15):
        found = where_less(line, splat(_MIDDLES[i]), found, splat(np.float32(i + 1)))
    return found


@inline
def _find(x: int, w: int, n: int, out: int) -> None:
    """The best SCALE of 16 groups, among those that map the outermost value to an end of the table.

    Source: ggml-quants.c quantize_row_iq4_nl_impl.
    """
    zero = splat(np.float32(0))
    one = splat(np.float32(1))
    top = largest(x, n)
    scale = zero
    best = zero
    for attempt in range(2 * _ATTEMPTS + 2):
        # The first has the opposite sign: the outermost value is at the positive end.
        factor = -_VALUES[0]
        if attempt > 0:
            factor = np.float32(np.float32(attempt - 1 - _ATTEMPTS) + _VALUES[0])
        inverse = splat(factor) / top
        products = zero
        squares = zero
        for e in range(n):
            v = load(x + LINE * e)
            q = _nearest(inverse * v)
            weighted = load(w + LINE * e) * q
            products = products + weighted * v
            squares = squares + weighted * q
        found = products / where_less(zero, squares, squares, one)
        left = best * squares
        right = products * products
        if attempt == 0:
            left = zero - one
        scale = where_less(left, right, found, scale)
        best = where_less(left, right, found * products, best)
    store(out + SCALE, where_less(is_tiny(x, n), splat(np.float32(0.5)), scale, zero))


@entry
def table_codes(
    values: int, weights: int, groups: int, per_block: int, scratch: int, codes: int, scales: int,
    d: int,
) -> None:  # fmt: skip
    """Fit x = d * scale * VALUES[code]; ``per_block`` groups of 32 share d; one has no scale.

    Values and weights are float32 (groups, 32), codes uint8 (groups, 32), scales int8 (groups,)
    from -32 to 31.
    """
    n = 32
    x = scratch
    w = x + LINE * LONGEST
    out = w + LINE * LONGEST
    spare = out + OUT_BYTES
    for start in range(0, groups, LANES):
        count = min(LANES, groups - start)
        gather(values, groups, n, start, x)
        gather(weights, groups, n, start, w)
        _find(x, w, n, out)
        for first in range(0, count, positive(per_block)):
            most = np.float32(0)
            outermost = np.float32(0)
            for g in range(per_block):
                s = get_f32(out + SCALE + 4 * (first + g))
                if abs(s) > most:
                    most = abs(s)
                    outermost = s
            shared = outermost
            if per_block > 1:
                shared = np.float32(-outermost / np.float32(32))
            set_f16(spare, shared)
            set_f32(d + 4 * ((start + first) // per_block), get_f16(spare))
            for g in range(per_block):
                group = start + first + g
                own = shared
                if per_block > 1:
                    code = np.float32(0)
                    if shared != 0:
                        inverse = np.float32(np.float32(1) / shared)
                        s = get_f32(out + SCALE + 4 * (first + g))
                        code = np.float32(np.rint(np.float32(inverse * s)))
                    code = max(min(code, np.float32(31)), np.float32(-32))
                    set_i8(scales + group, int(code))
                    own = np.float32(shared * code)
                inverse = np.float32(0)
                if own != 0:
                    inverse = np.float32(np.float32(1) / own)
                at = values + 4 * n * group
                to = codes + n * group
                for e in range(0, n, LANES):
                    store_codes(to + e, _codes(load(at + 4 * e) * splat(inverse)))
