"""AltUp's kernels, sums of rows and thresholds: the same bits from every level and team."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.kernels.launch import launch
from tests.kernels.operands import same_bits
from tests.kernels.reference import Floats
from trinity_kernels.ops import add, altup, gaussian_top
from trinity_kernels.team import Team

Run = Callable[[str, Team | None], Floats]
STREAMS = altup.COUNT


def _cases(rows: int, k: int) -> dict[str, Run]:
    rng = np.random.default_rng((rows, k))

    def drawn(*shape: int) -> Floats:
        values: Floats = rng.normal(size=(rows, *shape)).astype(np.float32)
        return values

    streams, coefs, x, scale = drawn(STREAMS * k), drawn(16), drawn(k), drawn(k)[0].copy()

    def predict(level: str, team: Team | None) -> Floats:
        out, op = streams.copy(), altup
        slots = {
            op.STREAMS: out, op.STRIDE: out.strides[0], op.COEFS: coefs,
            op.COEFS_STRIDE: coefs.strides[0], op.K: k,
        }  # fmt: skip
        launch(op.altup_predict, level, "none", rows, slots, team)
        return out

    def correct(level: str, team: Team | None) -> Floats:
        out, first, op = streams.copy(), np.zeros_like(x), altup
        slots = {
            op.STREAMS: out, op.STRIDE: out.strides[0], op.COEFS: coefs,
            op.COEFS_STRIDE: coefs.strides[0], op.K: k, op.X: x, op.X_STRIDE: x.strides[0],
            op.OUT: first, op.OUT_STRIDE: first.strides[0], op.SCALE: scale,
        }  # fmt: skip
        launch(op.altup_correct, level, "none", rows, slots, team)
        return np.concatenate([out, first], axis=1)

    def match(level: str, team: Team | None) -> Floats:
        out, op = streams.copy(), altup
        slots = {
            op.X: out, op.X_STRIDE: out.strides[0], op.TARGET: x, op.TARGET_STRIDE: x.strides[0],
            op.K: k, op.GROUPS: STREAMS,
        }  # fmt: skip
        launch(op.match_magnitude, level, "none", rows, slots, team)
        return out

    def top(level: str, team: Team | None) -> Floats:
        out, op = x.copy(), gaussian_top
        slots = {op.X: out, op.STRIDE: out.strides[0], op.K: k, op.FACTOR: 1.25}
        launch(op.gaussian_top, level, "none", rows, slots, team)
        return out

    def added(level: str, team: Team | None) -> Floats:
        out, op = streams.copy(), add
        slots = {
            op.X: x, op.X_STRIDE: x.strides[0], op.OUT: out, op.OUT_STRIDE: out.strides[0],
            op.K: k, op.GROUPS: STREAMS, op.FACTOR: 0.5,
        }  # fmt: skip
        launch(op.add, level, "none", rows, slots, team)
        return out

    return {"predict": predict, "correct": correct, "match": match, "top": top, "added": added}


@pytest.mark.parametrize("shape", [(1, 5), (1, 1100), (3, 37)])
@pytest.mark.parametrize("name", ["predict", "correct", "match", "top", "added"])
def test_bits(name: str, shape: tuple[int, int], two: Team, levels: tuple[str, ...]) -> None:
    run = _cases(*shape)[name]
    expected = run("portable", None)
    for level in levels:
        for team in (None, two):
            assert same_bits(run(level, team), expected), level
