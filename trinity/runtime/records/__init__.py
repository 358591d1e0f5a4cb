"""Operations as records of a plan: one file for each kind of operation, and the table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from trinity.models.expert_operations import ExpertGated, ExpertInput, ExpertLinear, Mix, Route
from trinity.models.operations import (
    XIELU,
    Attention,
    Copy,
    Gated,
    GatedAdd,
    Hadamard,
    HeadLinear,
    Linear,
    Norm,
    Operation,
    Rope,
    Scale,
)
from trinity.models.recurrent_operations import CausalConv, ChannelScan, DeltaRule, SelectiveScan
from trinity.runtime.records import (
    attention,
    elementwise,
    experts,
    hadamard,
    head_linear,
    linear,
    norm,
    rope,
)
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.record import BARRIER


def _write_recurrent(writer: RecordWriter, operation: Operation) -> None:
    # Imported here because most models have no recurrent layers.
    from trinity.runtime.records import recurrent

    recurrent.WRITE[type(operation)](writer, operation)


def _write_xielu(writer: RecordWriter, operation: XIELU) -> None:
    # Imported here because few models need it.
    from trinity.runtime.records import xielu

    xielu.write(writer, operation)


WRITE: Mapping[type[Operation], Callable[[RecordWriter, Any], None]] = {
    Attention: attention.write,
    CausalConv: _write_recurrent,
    ChannelScan: _write_recurrent,
    Copy: elementwise.write_copy,
    DeltaRule: _write_recurrent,
    ExpertGated: experts.write_gated,
    ExpertInput: experts.write_input,
    ExpertLinear: experts.write_linear,
    Gated: elementwise.write_gated,
    GatedAdd: elementwise.write_gated_add,
    Hadamard: hadamard.write,
    HeadLinear: head_linear.write,
    Linear: linear.write,
    Mix: experts.write_mix,
    Norm: norm.write,
    Rope: rope.write,
    Route: experts.write_route,
    Scale: elementwise.write_scale,
    SelectiveScan: _write_recurrent,
    XIELU: _write_xielu,
}
# Operations of one record that touch only their own buffers, and those that may run beside them.
_LOCAL = (Copy, Gated, GatedAdd, Hadamard, Norm, Scale, XIELU)
_BESIDE = (*_LOCAL, HeadLinear, Linear)


@cache
def _with_adapters() -> Mapping[type[Operation], Callable[[RecordWriter, Any], None]]:
    """The table of plans with LoRA adapters: some operations have the adapters' products."""
    from trinity.runtime.records import adapters, expert_adapters

    return {
        **WRITE,
        ExpertLinear: expert_adapters.write_linear,
        HeadLinear: adapters.write_heads,
        Linear: adapters.write_linear,
        Route: expert_adapters.write_route,
    }


def write(writer: RecordWriter, operation: Operation) -> None:
    """Append the records of one operation of the writer's layer.

    Raises: TypeError for an operation that no file here writes.
    """
    if type(operation) not in WRITE:
        raise TypeError(f"the plan has no record for the operation {operation!r}")
    table = WRITE if writer.adapters is None else _with_adapters()
    table[type(operation)](writer, operation)


def write_all(writer: RecordWriter, operations: Sequence[Operation]) -> None:
    """Append the records of operations in order, without barriers between independent ones.

    Without a barrier, threads start the next operation while others still run the previous ones. It
    must therefore share no buffer with any of them.
    """
    running: set[str] = set()
    for operation, following in pairwise([*operations, None]):
        if operation is None:
            break
        write(writer, operation)
        running |= operation.buffers().keys()
        free = isinstance(operation, _LOCAL) and isinstance(following, _BESIDE)
        if free and following is not None and running.isdisjoint(following.buffers()):
            writer.records[-1][BARRIER] = 0
        else:
            running.clear()
