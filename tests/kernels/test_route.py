"""The choice of experts and their weights: gating, ties, groups, values that are not finite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels.launch import Slot, launch
from tests.kernels.operands import EPSILON, same_bits
from tests.kernels.reference import Floats
from trinity_kernels.ops import route as op
from trinity_kernels.team import Team

Ints = NDArray[np.int32]
SHAPES = [(1, 1, 1), (1, 8, 3), (5, 7, 7), (3, 37, 4), (17, 128, 8)]
GATINGS = pytest.mark.parametrize("gating", op.GATINGS)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of ``Route``."""

    bias: Floats | None = None
    normalize: bool = True
    least_sum: float = 6.1e-5
    scale: float = 1.0
    num_groups: int = 0
    groups_used: int = 0
    group_best: int = 2


def routed(
    gating: str, scores: Floats, per_token: int, level: str, options: Options = Options(),
    team: Team | None = None,
) -> tuple[Ints, Floats]:  # fmt: skip
    """Return the experts and weights of each token, both (M, per_token)."""
    tokens, experts = scores.shape
    padded = np.full((tokens, experts + 5), np.nan, np.float32)
    padded[:, :experts] = scores
    chosen = np.full((tokens, per_token), -1, np.int32)
    weights = np.full((tokens, per_token), np.nan, np.float32)
    stride = op.scratch_bytes(experts)
    slots: dict[int, Slot] = {
        op.SCORES: padded, op.SCORES_STRIDE: padded.strides[0], op.EXPERTS: experts,
        op.PER_TOKEN: per_token, op.BIAS: options.bias, op.CHOSEN: chosen, op.WEIGHTS: weights,
        op.NORMALIZE: options.normalize, op.LEAST_SUM: options.least_sum,
        op.SCALE: options.scale, op.NUM_GROUPS: options.num_groups,
        op.GROUPS_USED: options.groups_used, op.GROUP_BEST: options.group_best,
        op.SCRATCH: np.full(2 * stride, 255, np.uint8), op.SCRATCH_STRIDE: stride,
    }  # fmt: skip
    launch(op.route, level, gating, tokens, slots, team)
    return chosen, weights


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max())
    return e / e.sum()


def sparsemixer(scores: Any, values: Any, chosen: Any) -> Any:
    """Phi-3.5-MoE's weights: each choice among those that are left, with scores near the best."""
    left, weights = np.where(values == -np.inf, np.nan, scores), []
    for best in chosen:
        most = left[best]
        near = (most - left) / np.maximum(np.abs(left), most) <= 0.02
        weights.append(1 / np.exp(left[near] - most).sum())
        left[best] = np.nan
    return np.array(weights)


def expected(
    gating: str, scores: Floats, per_token: int, options: Options
) -> tuple[Any, NDArray[np.float64]]:
    """Compute the same in float64, with NumPy's stable sort."""
    all_chosen, all_weights = [], []
    for row in scores.astype(np.float64):
        p = {
            "softmax": softmax(row),
            "sigmoid": 1 / (1 + np.exp(-row)),
            "softmax_chosen": row,
            "sparsemixer": row,
        }[gating]
        values = p.copy() if options.bias is None else p + options.bias
        if options.num_groups:
            parts = values.reshape(options.num_groups, -1)
            sums = np.sort(parts, axis=1)[:, -options.group_best :].sum(axis=1)
            parts[np.argsort(-sums, kind="stable")[options.groups_used :]] = -np.inf
        chosen = np.argsort(-values, kind="stable")[:per_token]
        weights = p[chosen]
        if gating == "sparsemixer":
            weights = sparsemixer(row, values, chosen)
        if gating == "softmax_chosen":
            weights = softmax(weights)
        elif options.normalize:
            weights = weights / max(weights.sum(), options.least_sum)
        all_chosen.append(chosen)
        all_weights.append(weights * options.scale)
    return np.array(all_chosen), np.array(all_weights)


def operand(tokens: int, experts: int) -> Floats:
    rng = np.random.default_rng([tokens, experts])
    return (3 * rng.normal(size=(tokens, experts))).astype(np.float32)


def check(
    gating: str, shape: tuple[int, int, int], level: str, options: Options, team: Team
) -> None:
    tokens, experts, per_token = shape
    scores = operand(tokens, experts)
    chosen, weights = routed(gating, scores, per_token, level, options, team)
    found, values = expected(gating, scores, per_token, options)
    assert np.array_equal(chosen, found)
    # An exp is off by some roundings, a sum by one for each term.
    bound = (2 * experts + per_token + 24) * EPSILON * np.abs(values)
    assert np.all(np.abs(weights - values) <= bound)


@GATINGS
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("normalize", [True, False])
def test_the_largest_are_chosen(
    gating: str, shape: tuple[int, int, int], normalize: bool, level: str, two: Team
) -> None:
    check(gating, shape, level, Options(normalize=normalize, scale=2.5), two)


@GATINGS
@pytest.mark.parametrize("shape", SHAPES)
def test_a_bias_changes_the_choice_alone(
    gating: str, shape: tuple[int, int, int], level: str, two: Team
) -> None:
    bias = np.random.default_rng(shape).normal(size=shape[1]).astype(np.float32)
    check(gating, shape, level, Options(bias), two)


@GATINGS
@pytest.mark.parametrize("best", [1, 2])
@pytest.mark.parametrize(
    ("shape", "groups", "used"), [((9, 16, 3), 4, 2), ((9, 16, 4), 16, 4), ((3, 12, 1), 2, 1)]
)
def test_groups_of_experts(
    gating: str, shape: tuple[int, int, int], groups: int, used: int, best: int, level: str,
    two: Team,
) -> None:  # fmt: skip
    options = Options(num_groups=groups, groups_used=used, group_best=best)
    if groups == shape[1]:  # a group of one has no second best
        scores = operand(shape[0], shape[1])
        chosen, _ = routed(gating, scores, shape[2], level, options, two)
        assert np.array_equal(chosen, expected(gating, scores, shape[2], Options())[0])
        return
    check(gating, shape, level, options, two)


@GATINGS
def test_of_equal_scores_the_lower_index_goes_first(gating: str, level: str) -> None:
    scores = np.array([[1, 3, 3, 1, 3, 1], [0, 0, 0, 0, 0, 0]], np.float32)
    chosen, _ = routed(gating, scores, 5, level)
    assert chosen.tolist() == [[1, 2, 4, 0, 3], [0, 1, 2, 3, 4]]


@GATINGS
def test_extreme_scores_choose_each_expert_once(gating: str, level: str) -> None:
    scores = np.array([[-1e38, 1e38, 0, -1e30, 200]], np.float32)
    chosen, weights = routed(gating, scores, 5, level)
    assert sorted(chosen[0]) == [0, 1, 2, 3, 4]
    assert chosen[0, 0] == 1
    assert np.isfinite(weights).all()


def test_a_sum_below_the_least_is_not_divided_by(level: str) -> None:
    scores = np.full((1, 4), -20, np.float32)
    _, weights = routed("sigmoid", scores, 2, level, Options(least_sum=0.5))
    np.testing.assert_allclose(weights, 2 / (1 + np.exp(20)), rtol=1e-5)


@GATINGS
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_shows(gating: str, bad: float, level: str) -> None:
    scores = operand(2, 9)
    for values in (np.array([bad] * 9), np.array([1, 2, bad, 4, 5, 6, 7, 8, 9])):
        scores[1] = values
        for options in (Options(), Options(num_groups=3, groups_used=2)):
            chosen, weights = routed(gating, scores, 3, level, options)
            assert np.isnan(weights[1]).all()
            assert np.isfinite(weights[0]).all()
            assert np.all((chosen >= 0) & (chosen < 9))


@GATINGS
def test_levels_threads_and_other_tokens_leave_the_bits_alone(
    gating: str, two: Team, levels: tuple[str, ...]
) -> None:
    scores = operand(5, 37)
    options = Options(scale=1.5)
    chosen, weights = routed(gating, scores, 6, "portable", options)
    for level in levels:
        for team in (None, two):
            found = routed(gating, scores, 6, level, options, team)
            assert same_bits(found[0], chosen)
            assert same_bits(found[1], weights)
        alone = routed(gating, scores[3:4], 6, level, options)
        assert same_bits(alone[1], weights[3:4])
