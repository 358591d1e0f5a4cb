"""Decides when a step's logits come from a sketch of the output head, and has the sketch made."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError
from trinity.runtime.interface import Best, Rows
from trinity.runtime.paging import available_memory
from trinity.runtime.records.record_list import Address
from trinity.runtime.sketch.head_sketch import MOST_COUNT, HeadSketch, Walk
from trinity.runtime.sketch.sketch_making import make_sketch
from trinity.runtime.step import Step
from trinity.runtime.step_plans import StepPlan
from trinity.runtime.weights import Weight
from trinity_kernels._jit import Kernel
from trinity_kernels.ops import sketch as op
from trinity_kernels.ops import sketch_codes
from trinity_kernels.ops.matmul.operands import OUT, PACK_FROM
from trinity_kernels.ops.matmul.tile_layout import int8_tile_types
from trinity_kernels.ops.matmul.tiles import matmul_tiles

MOST_ROWS = 16  # the most rows of logits for which a sketch is used
# With "auto", a sketch may pay if a head's weights have at least LEAST_BITS bits. It is made after
# STEPS_BEFORE steps, so that short runs do not pay for it, and TRIALS steps are timed with it and
# as many without it.
LEAST_BITS = 6
STEPS_BEFORE, TRIALS = 64, 8
MEMORY_SHARE = 4  # a sketch takes at most a fourth of the free memory
GAIN = 0.95  # a head with a sketch must take less than this part of the time


class SketchedHead:
    """The sketch of one output head: absent, being made, or in use.

    ``always``: it is made at once, and used even if it does not gain.
    """

    def __init__(
        self, weight: Weight, kernel: Kernel, address: Address, step: Step, *, always: bool
    ) -> None:
        self._weight, self._address, self._step = weight, address, step
        # Compiled now rather than during a response.
        address(sketch_codes.sketch_codes, "none")
        address(op.sketch_inputs, weight.form)
        address(op.sketch_bounds, "none")
        self._always = always
        tiles = kernel is matmul_tiles and weight.type not in int8_tile_types()
        # bfloat16 tiles round weights; _slack of head_sketch.py does not cover that.
        self._most = PACK_FROM - 1 if tiles and weight.form != "f32" else MOST_ROWS
        self._waited = 0
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._sketch: HeadSketch | None = None
        # For each number of rows: seconds with and without the sketch, and whether it is faster.
        self._times: dict[int, tuple[list[float], list[float]]] = {}
        self._gains: dict[int, bool] = {}
        self._failures = 0  # newest steps that took the full product after all
        if always:
            self._make()
            if self._sketch is None:
                raise InputError(
                    f"head_sketch is on, but the output head {weight.name!r} has a weight that is "
                    "not finite, or too large: omit head_sketch (--head-sketch)"
                )

    @property
    def nbytes(self) -> int:
        """Bytes of the sketch, whether it is made or not."""
        return self._weight.n // op.PANEL * op.panel_bytes(self._weight.k)

    @property
    def spared(self) -> int:
        """Bytes of the head that a step of one row does not read; candidates are not counted."""
        if self._sketch is None or not (self._always or self._gains.get(1)):
            return 0
        return self._weight.nbytes - self.nbytes

    def run(
        self, walk: Walk, plan: StepPlan, out: NDArray[np.float32], batch: Sequence[Rows]
    ) -> bool:
        """Run a step's plan with the sketch if it can be used; False if nothing was run."""
        needs = self._needs(plan, out, batch)
        sketch = self._sketch
        if needs is None:
            return False
        if sketch is None:
            self._wait()
            return False
        rows, step = len(out), self._step
        step.output_rows[:rows] = step.wanted_rows[:rows]
        step.outputs[0] = rows
        if self._always:
            sketch.run(walk, plan, 0, out, needs)
            return True
        if self._gains.get(rows):
            self._failures = 0 if sketch.run(walk, plan, 0, out, needs) else self._failures + 1
            if self._failures == TRIALS:  # the text has changed: measure again
                del self._gains[rows], self._times[rows]
                self._failures = 0
            return True
        if rows in self._gains:
            return False
        self._try(sketch, walk, plan, out, needs)
        return True

    def end(self) -> None:
        """End the making of the sketch, and wait."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def _needs(
        self, plan: StepPlan, out: NDArray[np.float32], batch: Sequence[Rows]
    ) -> list[Best] | None:
        """The logits that each row needs; None if a row needs all, or the plan is another one."""
        if not 0 < len(out) <= self._most or plan.logits != [(len(plan.records) - 1, OUT)]:
            return None
        needs = list[Best]()
        for rows in batch:
            if rows.logits and (rows.best is None or rows.best.count > MOST_COUNT):
                return None
            if rows.best is not None:
                needs += [rows.best] * rows.logits
        return needs

    def _wait(self) -> None:
        """Count a step without a sketch; begin to make it after some."""
        self._waited += 1
        if self._waited == STEPS_BEFORE and self.nbytes * MEMORY_SHARE < available_memory():
            # No daemon: the interpreter's exit must not free memory while compiled code runs.
            thread = threading.Thread(target=self._make, name="trinity-sketch")
            with suppress(RuntimeError):  # the system refuses a thread
                thread.start()
                self._thread = thread

    def _make(self) -> None:
        try:
            made = make_sketch(self._weight, self._address, self._ending.is_set)
        except MemoryError:
            if self._always:
                raise
            return  # steps continue with the full product
        if made is not None:
            self._sketch = HeadSketch(
                self._weight, made, self._address, MOST_ROWS, self._step.outputs
            )

    def _try(
        self, sketch: HeadSketch, walk: Walk, plan: StepPlan, out: NDArray[np.float32],
        needs: list[Best],
    ) -> None:  # fmt: skip
        """Run a plan, its head with and without the sketch by turns, and compare the times."""
        rows = len(out)
        with_sketch, without = self._times.setdefault(rows, ([], []))
        walk(plan.records[: plan.head])
        started = perf_counter()
        if len(with_sketch) <= len(without):
            sketch.run(walk, plan, plan.head, out, needs)
            with_sketch.append(perf_counter() - started)
            return
        for record, slot in plan.logits:
            plan.records["slots"][record, slot] = out.ctypes.data
        walk(plan.records[plan.head :])
        without.append(perf_counter() - started)
        if len(without) == TRIALS:
            middle = TRIALS // 2  # importing statistics would slow the start down
            self._gains[rows] = sorted(with_sketch)[middle] < GAIN * sorted(without)[middle]


def sketched_head(
    weight: Weight, mode: str, level: str, kernel: Kernel, address: Address, step: Step,
    *, capped: bool,
) -> SketchedHead | None:  # fmt: skip
    """The sketch of a head; None if ``mode`` is "auto" and no gain is expected.

    ``capped``: logits are limited by a function, so different ones may become equal.
    Raises: InputError for "on" if the head can have no sketch.
    """
    obstacle = (
        "the level portable has no fast kernel for it" if level == "portable"
        else f"its activations have the form {weight.form}" if weight.form not in op.FORMS
        else "its logits are capped" if capped
        else "it has a bias" if weight.bias is not None
        else "its scale is not positive" if not weight.scale > 0
        else f"its shape is {weight.n} x {weight.k}"
        if weight.n % op.PANEL or weight.k % op.BLOCK
        else ""
    )  # fmt: skip
    if mode == "on":
        if obstacle:
            raise InputError(
                f"head_sketch is on, but the output head {weight.name!r} cannot have a sketch: "
                f"{obstacle}; omit head_sketch (--head-sketch)"
            )
        return SketchedHead(weight, kernel, address, step, always=True)
    bits = 8 * weight.stride / weight.k
    if obstacle or bits < LEAST_BITS:
        return None
    return SketchedHead(weight, kernel, address, step, always=False)
