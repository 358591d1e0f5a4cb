"""Codes and scales for groups of values: the compiled loops over rows of tensors.

``values`` and ``weights`` are the addresses of ``groups`` rows of ``n`` float32; weights are those
of the errors. Scales of groups that share a block are rounded to codes before the elements are.
Results are not packed to bits; the files of the types do that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import entry, inline
from trinity_kernels.memory import get_f16, get_f32, set_f16, set_f32, set_i8
from trinity_kernels.quantizers.lanes import LANES, LINE, load, splat, store_codes
from trinity_kernels.quantizers.search import (
    INVERSE,
    LEAST,
    MINIMUM,
    OUT_BYTES,
    SCALE,
    TINY,
    clamped,
    find_positive_scale,
    find_scale,
    find_scale_and_minimum,
    find_scale_by_descent,
)
from trinity_kernels.scalars import positive

# Lines of values, weights and codes of 16 groups; results; and rows of 16 groups' scales.
LONGEST = 32
SCRATCH_FLOATS = 3 * LONGEST * LANES + OUT_BYTES // 4 + 8 * LANES


@inline
def gather(values: int, groups: int, n: int, first: int, to: int) -> None:
    """Write 16 groups, or fewer at the end, as lines; missing ones are zeros."""
    count = min(LANES, groups - first)
    for lane in range(LANES):
        for e in range(n):
            v = np.float32(0)
            if lane < count:
                v = get_f32(values + 4 * (n * (first + lane) + e))
            set_f32(to + LINE * e + 4 * lane, v)


@inline
def _half(value: Any, spare: int) -> Any:
    """``value`` rounded to float16."""
    set_f16(spare, value)
    return get_f16(spare)


@entry
def codes_and_minima(
    values: int, weights: int, groups: int, n: int, per_block: int, top_code: int, scale_top: int,
    first: float, step: float, steps: int, plain: int, refine: int, scratch: int, codes: int,
    scales: int, minima: int, d: int, dmin: int,
) -> None:  # fmt: skip
    """Fit x = d * scale * code - dmin * minimum, for Q2_K, Q4_K and Q5_K.

    ``per_block`` groups share d and dmin. Scales and minima are codes up to ``scale_top``; with
    ``refine`` they are searched, weighted by the weights of their groups. ``first``, ``step``,
    ``steps`` and ``plain`` are those of find_scale_and_minimum.
    """
    x = scratch
    w = x + LINE * LONGEST
    out = w + LINE * LONGEST
    row = out + OUT_BYTES  # 16 scales, minima, weights, then codes of scales and of minima
    for start in range(0, groups, LANES):
        gather(values, groups, n, start, x)
        gather(weights, groups, n, start, w)
        find_scale_and_minimum(
            x, w, n, top_code, np.float32(first), np.float32(step), steps, plain, out
        )
        for group in range(start, min(start + LANES, groups), positive(per_block)):
            lane = group - start
            s = out + SCALE + 4 * lane
            m = out + MINIMUM + 4 * lane
            if refine != 0:
                for g in range(per_block):
                    total = np.float32(0)
                    for e in range(n):
                        total = np.float32(total + get_f32(w + LINE * e + 4 * (lane + g)))
                    set_f32(row + 4 * g, total)
                scale = find_positive_scale(s, row, per_block, scale_top, row + LINE)
                least = find_positive_scale(m, row, per_block, scale_top, row + 2 * LINE)
            else:
                scale = _shared(s, per_block, scale_top, row + LINE)
                least = _shared(m, per_block, scale_top, row + 2 * LINE)
            block = group // per_block
            scale = _half(scale, row)
            least = _half(least, row)
            set_f32(d + 4 * block, scale)
            set_f32(dmin + 4 * block, least)
            for g in range(per_block):
                scale_code = get_f32(row + LINE + 4 * g)
                least_code = get_f32(row + 2 * LINE + 4 * g)
                set_i8(scales + group + g, int(scale_code))
                set_i8(minima + group + g, int(least_code))
                step_size = np.float32(scale * scale_code)
                below = np.float32(least * least_code)
                at = values + 4 * n * (group + g)
                to = codes + n * (group + g)
                if step_size == 0:
                    # Use the codes of the search, each of which represents the minimum.
                    _codes_from_search(x, n, lane + g, out, top_code, to)
                    continue
                for e in range(0, n, LANES):
                    shifted = (load(at + 4 * e) + splat(below)) / splat(step_size)
                    code = clamped(shifted, np.float32(0), np.float32(top_code))
                    store_codes(to + e, code)


@inline
def _shared(x: int, n: int, top_code: int, codes: int) -> Any:
    """Codes of floats >= 0 with one scale, the largest getting the top code; returns the scale."""
    most = np.float32(0)
    for i in range(n):
        most = max(most, get_f32(x + 4 * i))
    inverse = np.float32(np.float32(top_code) / most) if most > 0 else np.float32(0)
    for i in range(n):
        code = np.float32(np.rint(np.float32(inverse * get_f32(x + 4 * i))))
        set_f32(codes + 4 * i, min(code, np.float32(top_code)))
    return np.float32(most / np.float32(top_code))


@inline
def _codes_from_search(x: int, n: int, lane: int, out: int, top_code: int, to: int) -> None:
    inverse = get_f32(out + INVERSE + 4 * lane)
    least = get_f32(out + LEAST + 4 * lane)
    for e in range(0, n, LANES):
        # The values of one group, a line at a time, from the lines of all groups.
        for i in range(LANES):
            v = get_f32(x + LINE * (e + i) + 4 * lane)
            set_f32(out + OUT_BYTES + 4 * i, np.float32(inverse * np.float32(v - least)))
        code = clamped(load(out + OUT_BYTES), np.float32(0), np.float32(top_code))
        store_codes(to + e, code)


@entry
def codes_and_scales(
    values: int, weights: int, groups: int, n: int, half: int, scale_half: int, descent: int,
    refine: int, scratch: int, codes: int, scales: int, d: int,
) -> None:  # fmt: skip
    """Fit x = d * scale * (code - half) with 16 groups in a block, for Q3_K and Q6_K.

    Scales are codes, -scale_half <= code < scale_half. The outermost gets -scale_half; with
    ``refine`` they are searched, weighted by the weights of their groups.
    """
    x = scratch
    w = x + LINE * LONGEST
    spare = w + LINE * LONGEST
    out = spare + LINE * LONGEST
    row = out + OUT_BYTES
    top = np.float32(scale_half - 1)
    for start in range(0, groups, LANES):
        gather(values, groups, n, start, x)
        if descent != 0:
            find_scale_by_descent(x, n, half, spare, out)
        else:
            gather(weights, groups, n, start, w)
            find_scale(x, w, n, half, out)
        if refine != 0:
            # The scales are a group of their own, in lane 0.
            for g in range(LANES):
                total = np.float32(0)
                for e in range(n):
                    total = np.float32(total + get_f32(w + LINE * e + 4 * g))
                for lane in range(LANES):
                    inside = lane == 0
                    s = get_f32(out + SCALE + 4 * g)
                    set_f32(spare + LINE * g + 4 * lane, s if inside else np.float32(0))
                    set_f32(x + LINE * g + 4 * lane, total if inside else np.float32(0))
            find_scale(spare, x, LANES, scale_half, out)
            scale = get_f32(out + SCALE)
            inverse = get_f32(out + INVERSE)
            for g in range(LANES):
                set_f32(row + 4 * g, get_f32(spare + LINE * g))
        else:
            most = np.float32(0)
            outermost = np.float32(0)
            for g in range(LANES):
                s = get_f32(out + SCALE + 4 * g)
                set_f32(row + 4 * g, s)
                if abs(s) > most:
                    most = abs(s)
                    outermost = s
            scale = np.float32(0)
            inverse = np.float32(0)
            if most >= TINY:
                inverse = np.float32(np.float32(-scale_half) / outermost)
                scale = np.float32(np.float32(1) / inverse)
        block = start // LANES
        scale = _half(scale, out)
        set_f32(d + 4 * block, scale)
        for g in range(LANES):
            s = np.float32(np.rint(np.float32(inverse * get_f32(row + 4 * g))))
            s = max(min(s, top), np.float32(-scale_half))
            set_i8(scales + start + g, int(s))
            step_size = np.float32(scale * s)
            at = values + 4 * n * (start + g)
            to = codes + n * (start + g)
            for e in range(0, n, LANES):
                # With a scale of 0 any code is as good as that of 0.
                code = splat(np.float32(0))
                if step_size != 0:
                    code = load(at + 4 * e) / splat(step_size)
                code = clamped(code, np.float32(-half), np.float32(half - 1))
                store_codes(to + e, code + splat(np.float32(half)))


@entry
def codes_under_own_scale(
    values: int, weights: int, groups: int, n: int, half: int, scratch: int, codes: int, d: int
) -> None:
    """Fit x = d * (code - half) for each group: Q4_0 and Q5_0 with weights."""
    x = scratch
    w = x + LINE * LONGEST
    out = w + LINE * LONGEST
    for start in range(0, groups, LANES):
        gather(values, groups, n, start, x)
        gather(weights, groups, n, start, w)
        find_scale(x, w, n, half, out)
        for lane in range(min(LANES, groups - start)):
            set_f32(d + 4 * (start + lane), get_f32(out + SCALE + 4 * lane))
            inverse = splat(get_f32(out + INVERSE + 4 * lane))
            at = values + 4 * n * (start + lane)
            to = codes + n * (start + lane)
            for e in range(0, n, LANES):
                code = clamped(load(at + 4 * e) * inverse, np.float32(-half), np.float32(half - 1))
                store_codes(to + e, code + splat(np.float32(half)))


@entry
def codes_under_own_minimum(
    values: int, weights: int, groups: int, n: int, top_code: int, scratch: int, codes: int,
    d: int, m: int,
) -> None:  # fmt: skip
    """Fit x = d * code + m for each group: Q4_1 and Q5_1 with weights."""
    x = scratch
    w = x + LINE * LONGEST
    out = w + LINE * LONGEST
    for start in range(0, groups, LANES):
        gather(values, groups, n, start, x)
        gather(weights, groups, n, start, w)
        find_scale_and_minimum(x, w, n, top_code, np.float32(-0.9), np.float32(0.05), 36, 0, out)
        for lane in range(min(LANES, groups - start)):
            set_f32(d + 4 * (start + lane), get_f32(out + SCALE + 4 * lane))
            set_f32(m + 4 * (start + lane), np.float32(-get_f32(out + MINIMUM + 4 * lane)))
            _codes_from_search(x, n, lane, out, top_code, codes + n * (start + lane))
