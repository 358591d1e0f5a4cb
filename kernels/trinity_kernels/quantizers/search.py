"""Searches for the scales of 16 groups at once: the least weighted error over nearby candidates.

16 groups of ``n`` values are ``n`` lines at ``x`` (lanes.py), their weights lines at ``w``. Results
go to lines at ``out``. Candidates and their comparison are those of ggml-quants.c (make_qx_quants,
make_qkx3_quants, make_q3_quants, make_qp_quants, quantize_row_iq4_nl_impl).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.memory import get_f32, set_f32
from trinity_kernels.quantizers.lanes import (
    LINE,
    absolute,
    larger,
    load,
    rint,
    smaller,
    splat,
    store,
    where_less,
)

# Groups whose largest magnitude is below this count as zeros.
TINY = np.float32(1e-15)
# Lines of ``out``.
SCALE, INVERSE, MINIMUM, LEAST = 0, LINE, 2 * LINE, 3 * LINE
OUT_BYTES = 4 * LINE


@inline
def clamped(line: Any, low: Any, high: Any) -> Any:
    """The nearest whole numbers within bounds, half to even; NaN becomes ``low``."""
    return smaller(larger(rint(line), splat(low)), splat(high))


@inline
def largest(x: int, n: int) -> Any:
    """The element of largest magnitude of each group, the first of equal ones; 1 for zeros."""
    size = splat(np.float32(0))
    top = splat(np.float32(0))
    for e in range(n):
        v = load(x + LINE * e)
        a = absolute(v)
        top = where_less(size, a, v, top)
        size = larger(a, size)
    return where_less(size, splat(TINY), splat(np.float32(1)), top)


@inline
def is_tiny(x: int, n: int) -> Any:
    """1 for groups that count as zeros, else 0."""
    size = splat(np.float32(0))
    for e in range(n):
        size = larger(absolute(load(x + LINE * e)), size)
    return where_less(size, splat(TINY), splat(np.float32(1)), splat(np.float32(0)))


@inline
def find_scale(x: int, w: int, n: int, half: int, out: int) -> None:
    """Fit x = scale * code, -half <= code < half: SCALE and INVERSE; codes = round(INVERSE * x)."""
    zero = splat(np.float32(0))
    low = np.float32(-half)
    high = np.float32(half - 1)
    top = largest(x, n)
    scale = zero
    best = zero
    inverse = zero
    for attempt in range(19):
        # Try the plain scale first, then those nearby.
        step = attempt - 10 if attempt <= 9 else attempt - 9
        if attempt == 0:
            step = 0
        factor = np.float32(half) + np.float32(0.1) * np.float32(step)
        candidate = splat(np.float32(-factor)) / top
        products = zero
        squares = zero
        for e in range(n):
            v = load(x + LINE * e)
            weight = load(w + LINE * e)
            code = clamped(candidate * v, low, high)
            products = products + weight * v * code
            squares = squares + weight * code * code
        found = products / where_less(zero, squares, squares, splat(np.float32(1)))
        if attempt == 0:
            scale = found
            best = found * products
            inverse = candidate
        else:
            left = best * squares
            right = products * products
            scale = where_less(left, right, found, scale)
            inverse = where_less(left, right, candidate, inverse)
            best = where_less(left, right, found * products, best)
    tiny = is_tiny(x, n)
    half_line = splat(np.float32(0.5))
    store(out + SCALE, where_less(tiny, half_line, scale, zero))
    store(out + INVERSE, where_less(tiny, half_line, inverse, zero))


@inline
def find_scale_and_minimum(
    x: int, w: int, n: int, top_code: int, first: Any, step: Any, steps: int, plain: int, out: int
) -> None:
    """Fit x = scale * code - MINIMUM, 0 <= code <= top_code, MINIMUM >= 0.

    ``plain``: the error is the sum of magnitudes, not of squares. The codes are
    round(INVERSE * (x - LEAST)).
    """
    zero = splat(np.float32(0))
    high = np.float32(top_code)
    least = load(x)
    most = least
    weights = load(w)
    total = weights * least
    for e in range(1, n):
        v = load(x + LINE * e)
        weight = load(w + LINE * e)
        least = smaller(v, least)
        most = larger(v, most)
        weights = weights + weight
        total = total + weight * v
    least = smaller(least, zero)
    one = splat(np.float32(1))
    spread = most - least
    spread = where_less(zero, spread, spread, one)
    flat = where_less(least, most, zero, one)
    lowest = least
    inverse = splat(high) / spread
    scale = splat(np.float32(1)) / inverse
    # The next candidates start from the least found so far; ``lowest``: that of the best.
    best = zero
    for e in range(n):
        v = load(x + LINE * e)
        code = clamped(inverse * (v - least), np.float32(0), high)
        error = scale * code + least - v
        error = absolute(error) if plain != 0 else error * error
        best = best + load(w + LINE * e) * error
    for attempt in range(steps + 1):
        factor = first + step * np.float32(attempt) + high
        spread = most - least
        spread = where_less(zero, spread, spread, one)
        candidate = splat(np.float32(factor)) / spread
        codes = zero
        squares = zero
        products = zero
        for e in range(n):
            v = load(x + LINE * e)
            weight = load(w + LINE * e)
            code = clamped(candidate * (v - least), np.float32(0), high)
            weighted = weight * code
            codes = codes + weighted
            squares = squares + weighted * code
            products = products + weighted * v
        determinant = weights * squares - codes * codes
        divisor = where_less(zero, determinant, determinant, splat(np.float32(1)))
        this_scale = (weights * products - total * codes) / divisor
        this_minimum = (squares * total - codes * products) / divisor
        alone = products / where_less(zero, squares, squares, splat(np.float32(1)))
        this_scale = where_less(zero, this_minimum, alone, this_scale)
        this_minimum = smaller(this_minimum, zero)
        error = zero
        for e in range(n):
            v = load(x + LINE * e)
            code = clamped(candidate * (v - least), np.float32(0), high)
            miss = this_scale * code + this_minimum - v
            miss = absolute(miss) if plain != 0 else miss * miss
            error = error + load(w + LINE * e) * miss
        error = where_less(zero, determinant, error, splat(np.float32(np.inf)))
        scale = where_less(error, best, this_scale, scale)
        lowest = where_less(error, best, least, lowest)
        least = where_less(error, best, this_minimum, least)
        inverse = where_less(error, best, candidate, inverse)
        best = smaller(error, best)
    half_line = splat(np.float32(0.5))
    store(out + SCALE, where_less(flat, half_line, scale, zero))
    store(out + INVERSE, where_less(flat, half_line, inverse, zero))
    store(out + MINIMUM, zero - least)
    store(out + LEAST, lowest)


@inline
def find_scale_by_descent(x: int, n: int, half: int, codes: int, out: int) -> None:
    """As find_scale, weighted by squares; codes, in lines at ``codes``, change one by one."""
    zero = splat(np.float32(0))
    one = splat(np.float32(1))
    low = np.float32(-half)
    high = np.float32(half - 1)
    candidate = splat(low) / largest(x, n)
    products = zero
    squares = zero
    for e in range(n):
        v = load(x + LINE * e)
        code = clamped(candidate * v, low, high)
        store(codes + LINE * e, code)
        products = products + v * v * v * code
        squares = squares + v * v * code * code
    for _ in range(5):
        for e in range(n):
            v = load(x + LINE * e)
            code = load(codes + LINE * e)
            weight = v * v
            rest = products - weight * v * code
            rest_squares = squares - weight * code * code
            divisor = where_less(zero, rest, rest, one)
            new = clamped(v * rest_squares / divisor, low, high)
            new_products = rest + weight * v * new
            new_squares = rest_squares + weight * new * new
            # A lane takes the new code if it reduces the error and both sums are positive.
            left = products * products * new_squares
            right = new_products * new_products * squares
            left = where_less(zero, rest, left, right)
            left = where_less(zero, new_squares, left, right)
            store(codes + LINE * e, where_less(left, right, new, code))
            products = where_less(left, right, new_products, products)
            squares = where_less(left, right, new_squares, squares)
    found = products / where_less(zero, squares, squares, one)
    store(out + SCALE, where_less(is_tiny(x, n), splat(np.float32(0.5)), found, zero))


@inline
def find_positive_scale(x: int, w: int, n: int, top_code: int, codes: int) -> Any:
    """Fit x = scale * code for one group of ``n`` floats >= 0 at ``x``, with weights at ``w``.

    Writes the codes as floats to ``codes`` and returns the scale.
    """
    high = np.float32(top_code)
    most = np.float32(0)
    for i in range(n):
        most = max(most, get_f32(x + 4 * i))
    if not most >= TINY:
        for i in range(n):
            set_f32(codes + 4 * i, np.float32(0))
        return np.float32(0)
    inverse = np.float32(high / most)
    best = np.float32(np.inf)
    for attempt in range(9):
        step = attempt - 5 if attempt <= 4 else attempt - 4
        if attempt == 0:
            step = 0
        candidate = np.float32((np.float32(0.1) * np.float32(step) + high) / most)
        scale = np.float32(np.float32(1) / candidate)
        error = np.float32(0)
        for i in range(n):
            v = get_f32(x + 4 * i)
            code = min(np.float32(np.rint(candidate * v)), high)
            miss = np.float32(v - scale * code)
            error = np.float32(error + get_f32(w + 4 * i) * miss * miss)
        if error < best:
            best = error
            inverse = candidate
    products = np.float32(0)
    squares = np.float32(0)
    for i in range(n):
        v = get_f32(x + 4 * i)
        weight = get_f32(w + 4 * i)
        code = min(np.float32(np.rint(inverse * v)), high)
        set_f32(codes + 4 * i, code)
        products = np.float32(products + weight * v * code)
        squares = np.float32(squares + weight * code * code)
    for _ in range(5):
        changed = False
        for i in range(n):
            v = get_f32(x + 4 * i)
            weight = get_f32(w + 4 * i)
            code = get_f32(codes + 4 * i)
            rest = np.float32(products - weight * v * code)
            rest_squares = np.float32(squares - weight * code * code)
            if rest > 0 and rest_squares > 0:
                new = min(np.float32(np.rint(np.float32(v * rest_squares / rest))), high)
                if new != code:
                    rest = np.float32(rest + weight * v * new)
                    rest_squares = np.float32(rest_squares + weight * new * new)
                    if rest * rest * squares > products * products * rest_squares:
                        set_f32(codes + 4 * i, new)
                        products = rest
                        squares = rest_squares
                        changed = True
        if not changed:
            break
    return np.float32(products / squares) if squares > 0 else np.float32(0)
