"""Activations quantized to int8: codes, scales and sums of both layouts, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.launch import Slot, launch
from tests.kernels.operands import same_bits
from tests.kernels.reference import Bytes, Floats
from trinity_kernels.ops.matmul import quantize as op
from trinity_kernels.ops.matmul.activations import activation_bytes
from trinity_kernels.selftest.activation_forms import form_of
from trinity_kernels.team import Team

FORMS = pytest.mark.parametrize("form", ["q8", "q19", "ternary"])
LENGTHS = (32, 64, 96, 256, 384, 512, 544, 27 * 32)


def quantize(form: str, x: Floats, level: str, team: Team | None = None, less: int = 0) -> Bytes:
    out = np.full((len(x), activation_bytes(form, x.shape[1])), 85, np.uint8)
    slots: dict[int, Slot] = {
        op.X: x, op.X_STRIDE: x.strides[0], op.OUT: out, op.OUT_STRIDE: out.strides[0],
        op.K: x.shape[1], op.FEWER_THAN: less,
    }  # fmt: skip
    launch(op.quantizer_of(form), level, "none", len(x), slots, team)
    return out


def meaningful(form: str, rows: Bytes) -> Bytes:
    """Return the result without the padding of its last cache line."""
    return rows[:, :-56] if form == "ternary" else rows


def assert_as_drawn(form: str, x: Floats, level: str, team: Team | None) -> None:
    expected = meaningful(form, form_of(form, x)[0])
    assert same_bits(meaningful(form, quantize(form, x, level, team)), expected), x.shape


@FORMS
def test_bytes_are_as_drawn(form: str, level: str, two: Team) -> None:
    for k in LENGTHS:
        for tokens in (1, 3):
            x = np.random.default_rng(k).normal(size=(tokens, k)).astype(np.float32)
            for team in (None, two):
                assert_as_drawn(form, x, level, team)


@FORMS
def test_zeros_ties_and_extremes(form: str, level: str) -> None:
    k = 256
    rows = [
        np.zeros(k),
        np.resize([0.0, -0.0, 1e30, -1e30], k),
        np.resize([1e-30, -1e-30, 0], k),
        np.resize([127, 0.5, 1.5, 2.5, -0.5, -1.5, -126.5], k),  # ties go to even
        np.resize([-5.0], k),
        np.resize([3e-6, -1e-6], k),  # below the least range of the ternary form
    ]
    assert_as_drawn(form, np.array(rows, np.float32), level, None)


def test_what_lies_behind_a_row_is_not_read(level: str) -> None:
    """A row may be part of a longer one; a ternary row needs only the tensor's scale."""
    wide = np.full((2, 64), 1e30, np.float32)
    for k in (20, 37, 48):
        wide[:, :k] = np.random.default_rng(k).normal(size=(2, k))
        out = np.zeros((2, activation_bytes("ternary", k)), np.uint8)
        slots: dict[int, Slot] = {
            op.X: wide,
            op.X_STRIDE: wide.strides[0],
            op.OUT: out,
            op.OUT_STRIDE: out.strides[0],
            op.K: k,
        }
        launch(op.quantize_ternary, level, "none", 2, slots)
        expected = form_of("ternary", np.ascontiguousarray(wide[:, :k]))[0]
        assert same_bits(meaningful("ternary", out), meaningful("ternary", expected)), k


def test_steps_for_tiles_are_left_alone(level: str) -> None:
    x = np.ones((4, 64), np.float32)
    assert np.all(quantize("q8", x, level, less=4) == 85)
    assert not np.all(quantize("q8", x, level, less=5) == 85)


@FORMS
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_reaches_the_product(form: str, bad: float, level: str) -> None:
    """A broken model must show in its logits, not produce plausible text."""
    x = np.ones((1, 512), np.float32)
    x[0, 300] = bad
    found = quantize(form, x, level)
    at = {"q8": slice(512, 576), "q19": slice(1536, 1600), "ternary": slice(576, 580)}[form]
    scales = found[0, at]
    assert np.isnan(np.ascontiguousarray(scales).view(np.float32)).sum() == 1


def test_tiny_blocks_are_zero(level: str) -> None:
    x = np.zeros((1, 64), np.float32)
    x[0, 1:3] = 1e-38, -2e-38
    found = quantize("q8", x, level)
    assert not found.any()
