"""Logits through a sketch of the output head: a full product's bits, from a part of its bytes.

A step with few rows needs few logits of each: the best, for greedy decoding or top_k, and those of
tokens that penalties or a bias change. For each row of activations x,

1. the sketch gives an upper bound of every logit (ops/sketch.py);
2. the logits of the rows of weights with the highest bounds are computed. The K-th largest of them
   is a lower bound T of the K-th largest logit;
3. the logits of all rows whose bound is at least T are computed. The others are less than T.

Rows of weights are gathered and multiplied by the kernel of the full product, whose sums depend on
their own row alone, so logits have the same bits. Logits that are not computed become -inf.

The bound. Let s be a row's scales, q its sketch and x^ the activations of ``sketch_inputs``. Then

    w.x - q.x^ = (w - q).x^ + w.(x - x^)

The draws u make the terms of the first sum independent, of mean 0 and uniform in [-s x^ / 2,
s x^ / 2]; the draws v those of the second, of mean 0 and in an interval of length w d. So both are
sub-Gaussian with a variance of at most sigma^2 = sum of s^2 n (Hoeffding's lemma; |w| <= 7 s), and

    P(w.x > q.x^ + m sigma) <= exp(-m^2 / 2)

For all V rows together that is CHANCE if m = sqrt(2 ln(V / CHANCE)). The errors of float32 sums,
here and in the full product, are less than ``_slack`` sigma: |w| and |x| of a block are at most
56 s and sqrt(12 n). The draws must not depend on x: they do not, since all tokens are those of the
full product, and weights cannot be chosen for them, since they are drawn when the model is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.interface import Best
from trinity.runtime.memory import aligned
from trinity.runtime.records.record_list import Address, RecordList
from trinity.runtime.sketch.sketch_making import Sketch
from trinity.runtime.step_plans import StepPlan
from trinity.runtime.weights import Weight
from trinity_kernels.ops import sketch as op
from trinity_kernels.ops.matmul import operands
from trinity_kernels.record import RECORD, float_bits

CHANCE = 1e-12  # that a logit of a row of activations exceeds its bound
MOST_COUNT = 256  # the most best logits of a row for which a sketch is used
_MORE = 16  # rows beyond twice the count that are computed before the threshold T is known
_GATHERED_BYTES = 1 << 20  # rows of weights that are gathered at once
_MOST_PART = 4  # no more than a fourth of the rows of weights are computed
# Sums of n beyond these could underflow or overflow in float32.
_LEAST, _LARGEST = 1e-20, 1e20

Walk = Callable[[NDArray[np.void]], None]


class HeadSketch:
    """Computes the logits of at most ``rows`` rows of activations by a head's sketch.

    ``outputs``: the step's number of rows.
    """

    def __init__(
        self, weight: Weight, sketch: Sketch, address: Address, rows: int,
        outputs: NDArray[np.int64],
    ) -> None:  # fmt: skip
        self._weight, self._sketch, self._address = weight, sketch, address
        self._outputs = outputs  # the number of rows of a step, where kernels read it
        n, k, stride = weight.n, weight.k, weight.stride
        self._scale = np.float32(weight.scale)
        self._weights = weight.data.reshape(n, stride)
        self._inputs = aligned(rows * op.input_bytes(k)).reshape(rows, -1)
        numbers = self._inputs[:, k : k + k // op.BLOCK * 16]
        self._numbers = numbers.view(np.float32)
        self._tops = np.zeros((rows, n // op.PANEL), np.float32)
        at_once = max(4, _GATHERED_BYTES // (stride * op.PANEL)) * op.PANEL
        self._gathered = aligned(at_once * stride).reshape(at_once, stride)
        self._products = np.zeros((rows, at_once), np.float32)
        self._factor = deviations(n, k)
        # By the address of a plan's records: the plan, which is kept alive, and the records here.
        self._records: dict[int, tuple[StepPlan, NDArray[np.void], NDArray[np.void]]] = {}

    def run(
        self, walk: Walk, plan: StepPlan, first: int, out: NDArray[np.float32],
        needs: Sequence[Best],
    ) -> bool:  # fmt: skip
        """Run a plan's records from ``first`` on, which may be that of the head, into ``out``.

        Each row of logits has those that its element of ``needs`` asks for, and else -inf or the
        full product's. False if the full product was computed, too.
        """
        records, product = self._of(plan)
        bounds = records["slots"][-1]
        bounds[op.OUT], bounds[op.OUT_STRIDE] = out.ctypes.data, out.strides[0]
        walk(records[first:])
        if self._chosen(walk, product, out, needs):
            return True
        for record, slot in plan.logits:
            plan.records["slots"][record, slot] = out.ctypes.data
        walk(plan.records[plan.head :])
        return False

    def _chosen(
        self, walk: Walk, product: NDArray[np.void], out: NDArray[np.float32],
        needs: Sequence[Best],
    ) -> bool:  # fmt: skip
        """Replace the bounds in ``out`` by the logits that are needed; False if it cannot."""
        rows, panels = len(out), self._tops.shape[1]
        spread = self._numbers[:rows, 3::4].sum(axis=1)
        if not ((spread > _LEAST) & (spread < _LARGEST)).all():  # also false for NaN
            return False
        if max(2 * need.count + len(need.also) + _MORE for need in needs) >= panels:
            return False
        tops, by_panel = self._tops[:rows], out.reshape(rows, panels, op.PANEL)
        likely = [
            _likely(tops[row], by_panel[row], need) for row, need in enumerate(needs)
        ]  # fmt: skip
        first_ids = _union([ids for pair in likely for ids in pair])
        first_logits = self._exact(walk, product, first_ids, rows)
        found = []
        for row, (ids, _) in enumerate(likely):
            logits = first_logits[row, np.searchsorted(first_ids, ids)]
            count = needs[row].count
            limit = np.partition(logits, len(logits) - count)[len(logits) - count]
            # A bound that overflows is infinite. Rounding keeps the order: what is less than the
            # limit after scaling has a smaller logit.
            (some,) = (tops[row] * self._scale >= limit).nonzero()
            inside, lanes = (by_panel[row, some] * self._scale >= limit).nonzero()
            found.append(some[inside] * op.PANEL + lanes)
        ids = _union(found)
        if len(ids) * _MOST_PART > self._weight.n:
            return False
        logits = self._exact(walk, product, ids, rows)
        out.fill(-np.inf)
        out[:, first_ids] = first_logits
        out[:, ids] = logits
        return True

    def _exact(
        self, walk: Walk, product: NDArray[np.void], ids: NDArray[np.int64], rows: int
    ) -> NDArray[np.float32]:
        """The logits (rows, len(ids)) of some rows of weights."""
        found = np.empty((rows, len(ids)), np.float32)
        slots, at_once = product["slots"][0], len(self._gathered)
        for start in range(0, len(ids), at_once):
            some = ids[start : start + at_once]
            count = -(-len(some) // op.PANEL) * op.PANEL
            np.take(
                self._weights, some, axis=0, out=self._gathered[: len(some)], mode="clip"
            )  # fmt: skip
            slots[operands.N] = count
            walk(product)
            found[:, start : start + len(some)] = self._products[:rows, : len(some)]
        return found

    def _of(self, plan: StepPlan) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """The records up to the bounds, and the product of gathered rows, for a plan."""
        key = int(plan.records.ctypes.data)
        if key not in self._records:
            sketch, k, whole = self._sketch, self._weight.k, plan.records["slots"]
            product = plan.records[-1:].copy()
            last = product["slots"][0]
            added = RecordList(self._address, self._outputs)
            form, stride = self._weight.form, self._inputs.strides[0]
            added.record(op.sketch_inputs, form, {
                op.X: last[operands.X], op.X_STRIDE: last[operands.X_STRIDE],
                op.K: k, op.OUT: self._inputs.ctypes.data, op.OUT_STRIDE: stride,
                op.SHIFTS: sketch.shifts.ctypes.data,
            })  # fmt: skip
            added.record(op.sketch_bounds, "none", {
                op.X: self._inputs.ctypes.data, op.X_STRIDE: stride,
                op.W: sketch.panels.ctypes.data, op.N: self._weight.n, op.K: k,
                op.TOPS: self._tops.ctypes.data, op.TOPS_STRIDE: self._tops.strides[0],
                op.FACTOR: float_bits(self._factor),
            })  # fmt: skip
            records = np.zeros(len(whole) + 1, RECORD)
            records["slots"] = [*whole[:-1], *added.records]
            last[operands.W] = self._gathered.ctypes.data
            last[operands.OUT] = self._products.ctypes.data
            last[operands.OUT_STRIDE] = self._products.strides[0]
            self._records[key] = plan, records, product
        _, records, product = self._records[key]
        return records, product


def deviations(n: int, k: int) -> float:
    """The factor m of sigma in the bounds of ``n`` rows of ``k`` weights."""
    return (math.sqrt(2 * math.log(n / CHANCE)) + _slack(k)) * (1 + 1e-5)


def _slack(k: int) -> float:
    """The number of standard deviations (sigma) that covers the errors of float32 sums.

    The errors are fractions of the sum of s |x| over blocks, which is at most sqrt(12 blocks)
    sigma: those of the sketch's product and the inputs' sums, of the full product, and of rounding
    weights and activations before they are drawn.
    """
    blocks = k // op.BLOCK
    parts = (blocks + 80) * 2**-23 * 192 + (k / 16 + 8) * 2**-24 * 56 + 1e-3
    return math.sqrt(12 * blocks) * parts


def _likely(
    tops: NDArray[np.float32], bounds: NDArray[np.float32], need: Best
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of weights with the highest bounds, without ``need.also``; and ``need.also``."""
    count = 2 * need.count + len(need.also) + _MORE
    panels = np.argpartition(tops, len(tops) - count)[len(tops) - count :]
    ids = panels * op.PANEL + bounds[panels].argmax(axis=1)
    return (ids if not len(need.also) else np.setdiff1d(ids, need.also)), need.also


def _union(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """All ids, sorted."""
    return np.unique(np.concatenate(parts))
