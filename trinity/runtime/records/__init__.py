"""Operations as records of a plan: a file for each kind of operation, and the table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trinity.models.operations import (
    Attention,
    ExpertGated,
    ExpertLinear,
    Gated,
    Linear,
    Mix,
    Norm,
    Operation,
    Rope,
    Route,
)
from trinity.runtime.records import attention, elementwise, experts, linear, norm, rope
from trinity.runtime.records.writer import Writer

WRITE: Mapping[type[Operation], Callable[[Writer, Any], None]] = {
    Attention: attention.write,
    ExpertGated: experts.write_gated,
    ExpertLinear: experts.write_linear,
    Gated: elementwise.write_gated,
    Linear: linear.write,
    Mix: experts.write_mix,
    Norm: norm.write,
    Rope: rope.write,
    Route: experts.write_route,
}


def write(writer: Writer, operation: Operation) -> None:
    """Append the records of one operation of the writer's layer.

    Raises: TypeError for an operation that no file here writes.
    """
    if type(operation) not in WRITE:
        raise TypeError(f"the plan has no record for the operation {operation!r}")
    WRITE[type(operation)](writer, operation)
