"""Operations as records of a plan: one file for each kind of operation, and the table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any

from trinity.models import recurrent_operations
from trinity.models.activation_operations import XIELU, Clamp, GaussianTop, HeadGate, Softcap
from trinity.models.altup_operations import AltUpCorrect, AltUpPredict, MatchMagnitude
from trinity.models.expert_operations import ExpertGated, ExpertInput, ExpertLinear, Mix, Route
from trinity.models.operations import (
    Add,
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

# Operations that few models have, by the file that writes them, which is imported on demand.
_RARE: Mapping[str, tuple[type[Operation], ...]] = {
    "activations": (Clamp, GaussianTop, HeadGate, Softcap, XIELU),
    "altup": (AltUpCorrect, AltUpPredict, MatchMagnitude),
    "recurrent": (
        recurrent_operations.CausalConv,
        recurrent_operations.ChannelDecay,
        recurrent_operations.ChannelDeltaRule,
        recurrent_operations.ChannelScan,
        recurrent_operations.DeltaRule,
        recurrent_operations.SelectiveScan,
    ),
    "rwkv": (
        recurrent_operations.RwkvKeys,
        recurrent_operations.RwkvOutput,
        recurrent_operations.RwkvRule,
        recurrent_operations.TokenShift,
    ),
    "rwkv6": (
        recurrent_operations.ShiftBy,
        recurrent_operations.Wkv6Decay,
        recurrent_operations.Wkv6Norm,
        recurrent_operations.Wkv6Rule,
    ),
}


def _write_by(file: str) -> Callable[[RecordWriter, Any], None]:
    def write(writer: RecordWriter, operation: Operation) -> None:
        module = import_module(f"{__name__}.{file}")
        module.WRITE[type(operation)](writer, operation)

    return write


WRITE: Mapping[type[Operation], Callable[[RecordWriter, Any], None]] = {
    Add: elementwise.write_add,
    Attention: attention.write,
    Copy: elementwise.write_copy,
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
    **{kind: _write_by(file) for file, kinds in _RARE.items() for kind in kinds},
}
# Operations of one record that touch only their own buffers, and those that run with them.
_LOCAL = (Copy, Gated, GatedAdd, Hadamard, Norm, Scale)
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
