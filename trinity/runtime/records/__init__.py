"""Operations as records of a plan: a file for each kind of operation, and the table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trinity.models.operations import (
    Attention,
    Gated,
    Linear,
    Norm,
    Operation,
    Rope,
)
from trinity.runtime.records import attention, elementwise, linear, norm, rope
from trinity.runtime.records.writer import Writer

WRITE: Mapping[type[Operation], Callable[[Writer, Any], None]] = {
    Attention: attention.write,
    Gated: elementwise.write_gated,
    Linear: linear.write,
    Norm: norm.write,
    Rope: rope.write,
}


def write(writer: Writer, operation: Operation) -> None:
    """Append the records of one operation of the writer's layer.

    Raises: TypeError for an operation that no file here writes.
    """
    if type(operation) not in WRITE:
        raise TypeError(f"the plan has no record for the operation {operation!r}")
    WRITE[type(operation)](writer, operation)
