"""Measures a step: each record of a plan is run alone, in the plan's order."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.ops import (
    activation,
    attention,
    expert_rows,
    gated_add,
    hadamard,
    mix,
    norm,
    scale,
    softcap,
    xielu,
)
from trinity_kernels.ops.kv_layout import layer_bytes
from trinity_kernels.ops.matmul import experts, operands, quantize
from trinity_kernels.record import KERNEL, ROWS
from trinity_kernels.team import Team

if TYPE_CHECKING:
    from trinity.runtime.engine import CPUEngine
    from trinity.runtime.interface import Rows

_PRODUCTS = ("matmul", "matmul_panels", "matmul_tiles")
_TILES = ("tile_activations", "tile_q8", "tile_split")
_OF_EXPERTS = ("expert_products", "expert_tiles")  # kernels that call another kernel
_WIDTHS = {
    "norm": norm.K,
    **dict.fromkeys(("quantize_ternary", "quantize_q8", "quantize_q19"), quantize.K),
    "gated": activation.K, "gated_add": gated_add.K, "hadamard": hadamard.K, "scale": scale.K,
    "softcap": softcap.K, "mix": mix.K, "xielu": xielu.K,
    **dict.fromkeys(_PRODUCTS + _TILES, operands.K),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class OperationTime:
    """The time of one operation of a step, run alone by all threads.

    ``rows`` tokens; weights of ``n`` rows of ``k`` values, ``n`` 0 without weights. ``nbytes`` of
    weights or KV cache are read once; 0 for operations that memory bandwidth does not limit.
    ``seconds``: the median of the rounds, without the cost of starting the threads.
    """

    kernel: str
    tag: str
    rows: int
    n: int
    k: int
    nbytes: int
    seconds: float


class PlanRecorder:
    """Runs plans on a team and keeps them."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self.plans: list[NDArray[np.void]] = []

    def run(self, plan: NDArray[np.void]) -> None:
        """As ``Team.run``."""
        self.team.run(plan)
        self.plans.append(plan)


def profile_step(engine: CPUEngine, batch: Sequence[Rows], rounds: int) -> list[OperationTime]:
    """The time of every operation of a step, each run alone; the KV caches do not change.

    Raises: as ``CPUEngine.step``.
    """
    before, team = [rows.cache.length for rows in batch], engine.team
    recorder = PlanRecorder(team)
    engine.team = cast(Team, recorder)
    try:
        logits = engine.step(batch)
    finally:
        engine.team = team
    ids = np.concatenate([np.asarray(rows.tokens) for rows in batch])
    adapted = any(rows.cache.adapters for rows in batch)
    times = time_operations(
        team,
        np.concatenate(recorder.plans),
        engine.kernel_names(),
        [length + 1 for length in before],
        lambda: engine.embed(ids, adapted),
        rounds,
    )
    del logits  # until here, records have written into it
    for rows, length in zip(batch, before, strict=True):
        rows.cache.spoil(length)
        rows.cache.truncate(min(length, rows.cache.length))
    return times


def time_operations(
    team: Team,
    plan: NDArray[np.void],
    names: Mapping[int, tuple[str, str]],
    positions: Sequence[int],
    prepare: Callable[[], object],
    rounds: int,
) -> list[OperationTime]:
    """Run each record of ``plan`` alone, in order, so that CPU caches are as in a real step.

    ``names``: kernel and tag by address. ``positions``: the length of each KV cache in a decode
    step. ``prepare`` sets the step's input before each round.
    """
    empty = plan[:0]
    idle = float(np.median([_seconds(team, empty) for _ in range(100)]))
    single = [plan[i : i + 1].copy() for i in range(len(plan))]
    taken = np.empty((rounds, len(plan)))
    for number in range(rounds):
        prepare()
        for i, record in enumerate(single):
            taken[number, i] = _seconds(team, record)
    medians = np.maximum(np.median(taken, axis=0) - idle, 0.0)
    return [
        _described(record["slots"][0], names, positions, float(seconds))
        for record, seconds in zip(single, medians, strict=True)
    ]


def _seconds(team: Team, plan: NDArray[np.void]) -> float:
    started = perf_counter()
    team.run(plan)
    return perf_counter() - started


def _int64(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _described(
    slots: NDArray[np.int64],
    names: Mapping[int, tuple[str, str]],
    positions: Sequence[int],
    seconds: float,
) -> OperationTime:
    name, tag = names[int(slots[KERNEL])]
    rows = _int64(int(slots[ROWS]))
    n = k = nbytes = 0
    if name in _WIDTHS:
        k = int(slots[_WIDTHS[name]])
    if name in _PRODUCTS:
        n = int(slots[operands.N])
        nbytes = n * int(slots[operands.W_STRIDE]) if rows else 0  # 0: an unused adapter
    elif name in _OF_EXPERTS:
        _, tag = names[int(slots[experts.INNER])]
        groups = int(slots[experts.GROUPS])
        rows, k = _int64(groups + 8 * expert_rows.ALL_ROWS), int(slots[operands.K])
        if name == "expert_products":
            n = int(slots[operands.N])
            active = _int64(groups + 8 * expert_rows.ACTIVE)
            nbytes = active * n * int(slots[operands.W_STRIDE])
    elif name == "attention_parts":
        k = int(slots[attention.HEAD_DIM])
        heads, values = int(slots[attention.KV_HEADS]), int(slots[attention.VALUE_DIM])
        window = int(slots[attention.WINDOW])
        seen = sum(min(count, window or count) for count in positions)
        nbytes = layer_bytes(tag, heads, k, values, seen)
    return OperationTime(name, tag, rows, n, k, nbytes, seconds)
