"""Choose the experts of each token, and compute their weights.

Shapes: SCORES is M rows of EXPERTS float32, CHOSEN int32 (M, PER_TOKEN), WEIGHTS float32
(M, PER_TOKEN), BIAS EXPERTS float32 or 0. The tag is the gating:

    softmax         p = softmax of all scores; chosen by p + bias, weights are p
    sigmoid         p = 1 / (1 + exp(-score)); chosen by p + bias, weights are p
    softmax_chosen  chosen by score + bias; weights are the softmax of the chosen scores
    sparsemixer     chosen by score + bias; a weight is the softmax of the score among the experts
                    that are not chosen yet and whose score s is near the chosen one's, m:
                    m - s is at most 0.02 max(|s|, m)

Experts are chosen in descending order; of equal ones the lowest index comes first. With NUM_GROUPS
of adjacent experts, only the GROUPS_USED best groups count; a group's value is the sum of its
GROUP_BEST largest, one or two.
NORMALIZE divides the weights by their sum, which is at least LEAST_SUM (a softmax of the chosen
already has the sum 1). SCALE multiplies them. SCRATCH has three float32 for each expert and thread.
Numerics: sums are in the order of experts, sums of weights in the order of choice, each step
rounded. A score that is not finite makes all weights of its token NaN.
Source: llama.cpp's build_moe_ffn; the routers of transformers' models.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_f64, get_i64, set_f32, set_i32, slots_of
from trinity_kernels.ops.exponential import exp_f32, exp_f32x16
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import constant, per_level

(
    SCORES, SCORES_STRIDE, EXPERTS, PER_TOKEN, BIAS, CHOSEN, WEIGHTS, NORMALIZE, LEAST_SUM, SCALE,
    NUM_GROUPS, GROUPS_USED, SCRATCH, SCRATCH_STRIDE, GROUP_BEST,
) = range(3, 18)  # fmt: skip
GATINGS = ("softmax", "sigmoid", "softmax_chosen", "sparsemixer")
SOFTMAX, SIGMOID, SOFTMAX_CHOSEN, SPARSEMIXER = range(4)
_ZERO, _ONE = np.float32(0), np.float32(1)
_NEAR = np.float32(0.02)  # twice the noise of Phi-3.5-MoE's router in training
_LOWEST, _NAN = np.float32(-np.inf), np.float32(np.nan)


def scratch_bytes(experts: int) -> int:
    """Bytes of a thread's scratch."""
    return -(-12 * experts // 64) * 64


@constant
def gating(qt: Any) -> int:
    """The index of a tag in GATINGS."""
    return GATINGS.index(qt.value)


def _exponentials(isa: Any, x: int, most: Any, sign: Any, to: int, count: int) -> None:
    """exp(sign * (x - most)) of ``count`` values; ``sign`` is 1 or -1."""
    for i in range(count):
        v = np.float32(np.float32(get_f32(x + 4 * i) - most) * sign)
        set_f32(to + 4 * i, exp_f32(v))


def _vector_exponentials(isa: Any, x: int, most: Any, sign: Any, to: int, count: int) -> None:
    whole = count // 16 * 16
    for i in range(0, whole, 16):
        v = (simd.load_f32x16(x + 4 * i) - simd.splat_f32x16(most)) * simd.splat_f32x16(sign)
        simd.store_f32x16(to + 4 * i, exp_f32x16(v))
    for i in range(whole, count):
        v1 = np.float32(np.float32(get_f32(x + 4 * i) - most) * sign)
        set_f32(to + 4 * i, exp_f32(v1))


per_level(_vector_exponentials)(_exponentials)


@inline
def _softmax(isa: Any, scores: int, p: int, count: int) -> None:
    most = get_f32(scores)
    for i in range(1, count):
        most = max(most, get_f32(scores + 4 * i))
    _exponentials(isa, scores, most, _ONE, p, count)
    total = _ZERO
    for i in range(count):
        total = np.float32(total + get_f32(p + 4 * i))
    for i in range(count):
        set_f32(p + 4 * i, np.float32(get_f32(p + 4 * i) / total))


@inline
def _sigmoid(isa: Any, scores: int, p: int, count: int) -> None:
    _exponentials(isa, scores, _ZERO, np.float32(-1), p, count)
    for i in range(count):
        set_f32(p + 4 * i, np.float32(_ONE / np.float32(_ONE + get_f32(p + 4 * i))))


@inline
def _copy(source: int, to: int, count: int) -> None:
    for i in range(count):
        set_f32(to + 4 * i, get_f32(source + 4 * i))


@inline
def _best(values: int, count: int) -> int:
    """The index of the largest of ``count`` float32, the first of equal ones; not all are NaN."""
    best = 0
    most = get_f32(values)
    for i in range(1, count):
        v = get_f32(values + 4 * i)
        if v > most or most != most:
            best = i
            most = v
    return best


@inline
def _leave_groups(values: int, count: int, groups: int, used: int, best: int, sums: int) -> None:
    """Set the values of all groups except the ``used`` best ones to minus infinity."""
    size = count // groups
    for g in range(groups):
        first = _LOWEST
        second = _LOWEST
        for i in range(g * size, (g + 1) * size):
            v = get_f32(values + 4 * i)
            if v > first:
                second = first
                first = v
            elif v > second:
                second = v
        total = first
        if size > 1 and best > 1:
            total = np.float32(first + second)
        set_f32(sums + 4 * g, total)
    for _ in range(used):
        set_f32(sums + 4 * _best(sums, groups), _NAN)
    for g in range(groups):
        total = get_f32(sums + 4 * g)
        if total == total:
            for i in range(g * size, (g + 1) * size):
                set_f32(values + 4 * i, _LOWEST)


@inline
def _near_weight(scores: int, values: int, best: int, count: int) -> Any:
    """The softmax of the best score among those near it; ``values`` of chosen experts are NaN."""
    most = get_f32(scores + 4 * best)
    total = _ZERO
    for i in range(count):
        s = get_f32(scores + 4 * i)
        v = get_f32(values + 4 * i)
        is_far = np.float32(most - s) > np.float32(_NEAR * max(abs(s), most))
        if v == v and v != _LOWEST and not is_far:
            total = np.float32(total + exp_f32(np.float32(s - most)))
    return np.float32(_ONE / total)


@inline
def _end(weights: int, count: int, normalize: int, least: Any, scale: Any) -> None:
    if normalize != 0:
        total = _ZERO
        for i in range(count):
            total = np.float32(total + get_f32(weights + 4 * i))
        total = max(total, least)
        for i in range(count):
            set_f32(weights + 4 * i, np.float32(get_f32(weights + 4 * i) / total))
    if scale != _ONE:
        for i in range(count):
            set_f32(weights + 4 * i, np.float32(get_f32(weights + 4 * i) * scale))


@kernel
def route(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Route; a token belongs to one thread."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    experts, per_token, bias, groups = slots_of(record, (EXPERTS, PER_TOKEN, BIAS, NUM_GROUPS))
    p = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    values = p + 4 * experts
    for t in range(thread, tokens, positive(threads)):
        scores = get_i64(record + 8 * SCORES) + t * get_i64(record + 8 * SCORES_STRIDE)
        chosen = get_i64(record + 8 * CHOSEN) + 4 * t * per_token
        weights = get_i64(record + 8 * WEIGHTS) + 4 * t * per_token
        if gating(qt) == SOFTMAX:
            _softmax(isa, scores, p, experts)
        elif gating(qt) == SIGMOID:
            _sigmoid(isa, scores, p, experts)
        else:
            _copy(scores, p, experts)
        poison = _ZERO
        for i in range(experts):
            poison = np.float32(poison + np.float32(get_f32(scores + 4 * i) * _ZERO))
            v = get_f32(p + 4 * i)
            if bias != 0:
                v = np.float32(v + get_f32(bias + 4 * i))
            set_f32(values + 4 * i, v)
        if groups > 0:
            used = get_i64(record + 8 * GROUPS_USED)
            group_best = get_i64(record + 8 * GROUP_BEST)
            _leave_groups(values, experts, groups, used, group_best, values + 4 * experts)
        for i in range(per_token):
            best = _best(values, experts)
            weight = get_f32(p + 4 * best)
            if gating(qt) == SPARSEMIXER:
                weight = _near_weight(p, values, best, experts)
            set_f32(values + 4 * best, _NAN)
            set_i32(chosen + 4 * i, best)
            set_f32(weights + 4 * i, np.float32(weight + poison))
        normalize = get_i64(record + 8 * NORMALIZE)
        if gating(qt) == SOFTMAX_CHOSEN:
            _softmax(isa, weights, weights, per_token)
            normalize = 0
        least = np.float32(get_f64(record + 8 * LEAST_SUM))
        _end(weights, per_token, normalize, least, np.float32(get_f64(record + 8 * SCALE)))
