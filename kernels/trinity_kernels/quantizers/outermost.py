"""Quantizers for blocks of 32 whose scale follows from the outermost elements.

Q4_0 to Q5_1, Q8_0 and MXFP4; the bytes are those of the NumPy quantizers in quants/. ``values`` is
the address of ``groups`` times 32 float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import entry, inline
from trinity_kernels.memory import get_f32, get_i32, set_f32, set_i8
from trinity_kernels.quantizers.lanes import (
    LINE,
    absolute,
    floor,
    larger,
    largest_lane,
    load,
    smaller,
    splat,
    store_codes,
    where_less,
)
from trinity_kernels.scalars import power_of_two


@inline
def _codes(line: Any, inverse: Any, start: Any, offset: Any, top_code: int, to: int) -> None:
    """trunc((line - start) * inverse + offset), limited to 0 .. top_code; offset is positive."""
    shifted = floor((line - splat(start)) * splat(inverse) + splat(offset))
    zero = splat(np.float32(0))
    store_codes(to, smaller(larger(shifted, zero), splat(np.float32(top_code))))


@inline
def _inverse(d: Any) -> Any:
    return np.float32(np.float32(1) / d) if d != 0 else np.float32(0)


@inline
def _smallest(low: Any, high: Any) -> Any:
    zero = splat(np.float32(0))
    return np.float32(np.float32(0) - largest_lane(larger(zero - low, zero - high)))


@entry
def signed_codes(values: int, groups: int, half: int, codes: int, d: int) -> None:
    """Fit x = d * (code - half); the element of largest magnitude gets code 0."""
    for group in range(groups):
        at = values + 128 * group
        low = load(at)
        high = load(at + LINE)
        most = largest_lane(larger(low, high))
        least = _smallest(low, high)
        top = most if most > -least else least
        if most == -least:
            # The first of two equal ones counts.
            for e in range(32):
                v = get_f32(at + 4 * e)
                if abs(v) == most:
                    top = v
                    break
        scale = np.float32(top / np.float32(-half))
        set_f32(d + 4 * group, scale)
        inverse = _inverse(scale)
        offset = np.float32(np.float32(half) + np.float32(0.5))
        to = codes + 32 * group
        _codes(low, inverse, np.float32(0), offset, 2 * half - 1, to)
        _codes(high, inverse, np.float32(0), offset, 2 * half - 1, to + 16)


@entry
def offset_codes(values: int, groups: int, top_code: int, codes: int, d: int, m: int) -> None:
    """Fit x = d * code + m; the smallest element gets code 0, the largest the top code."""
    for group in range(groups):
        at = values + 128 * group
        low = load(at)
        high = load(at + LINE)
        most = largest_lane(larger(low, high))
        least = _smallest(low, high)
        scale = np.float32(np.float32(most - least) / np.float32(top_code))
        set_f32(d + 4 * group, scale)
        set_f32(m + 4 * group, least)
        inverse = _inverse(scale)
        to = codes + 32 * group
        _codes(low, inverse, least, np.float32(0.5), top_code, to)
        _codes(high, inverse, least, np.float32(0.5), top_code, to + 16)


@inline
def _rounded(line: Any, inverse: Any, to: int) -> None:
    """The codes of a line, halves rounded away from zero."""
    scaled = line * splat(inverse)
    zero = splat(np.float32(0))
    size = floor(absolute(scaled))
    # Twice the fraction is at least 1 from a half on; unlike a sum, it is never rounded.
    size = size + floor(splat(np.float32(2)) * (absolute(scaled) - size))
    store_codes(to, where_less(scaled, zero, zero - size, size))


@entry
def byte_codes(values: int, groups: int, codes: int, d: int) -> None:
    """Fit x = d * code with codes from -127 to 127."""
    for group in range(groups):
        at = values + 128 * group
        low = load(at)
        high = load(at + LINE)
        most = largest_lane(larger(absolute(low), absolute(high)))
        scale = np.float32(most / np.float32(127))
        set_f32(d + 4 * group, scale)
        inverse = _inverse(scale)
        to = codes + 32 * group
        _rounded(low, inverse, to)
        _rounded(high, inverse, to + 16)


@inline
def _fp4(line: Any, inverse: Any, to: int) -> None:
    """The nearest of 0, 1, 2, 3, 4, 6, 8 and 12; of two equally near ones the smaller."""
    scaled = absolute(line) * splat(inverse)
    code = splat(np.float32(0))
    code = where_less(splat(np.float32(0.5)), scaled, splat(np.float32(1)), code)
    code = where_less(splat(np.float32(1.5)), scaled, splat(np.float32(2)), code)
    code = where_less(splat(np.float32(2.5)), scaled, splat(np.float32(3)), code)
    code = where_less(splat(np.float32(3.5)), scaled, splat(np.float32(4)), code)
    code = where_less(splat(np.float32(5)), scaled, splat(np.float32(5)), code)
    code = where_less(splat(np.float32(7)), scaled, splat(np.float32(6)), code)
    code = where_less(splat(np.float32(10)), scaled, splat(np.float32(7)), code)
    zero = splat(np.float32(0))
    negative = where_less(zero, code, code + splat(np.float32(8)), zero)
    store_codes(to, where_less(line, zero, negative, code))


@entry
def fp4_codes(values: int, groups: int, spare: int, codes: int, exponents: int) -> None:
    """Fit x = 2**(e - 128) * value of MXFP4's codes; the outermost is 8 to 16 times that power."""
    for group in range(groups):
        at = values + 128 * group
        low = load(at)
        high = load(at + LINE)
        most = largest_lane(larger(absolute(low), absolute(high)))
        set_f32(spare, most)
        e = max((get_i32(spare) >> 23 & 255) - 2, 0)
        set_i8(exponents + group, e)
        if e == 0:  # 2**128 is not a float32
            low, high = low + low, high + high
        inverse = power_of_two(np.float32(min(128 - e, 127)))
        to = codes + 32 * group
        _fp4(low, inverse, to)
        _fp4(high, inverse, to + 16)
