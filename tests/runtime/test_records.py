"""Operations that share no buffer run without a barrier between them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from trinity.models.operations import (
    Attention,
    Copy,
    Gated,
    Linear,
    Norm,
    Operation,
    Product,
    Rope,
    Scale,
)
from trinity.runtime import records
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.record import BARRIER, SLOTS

Q, K, V = (Norm(name, "", name, 8) for name in "qkv")
LINEAR = Linear("h", 8, (Product("w", "q", 8), Product("w", "k", 8, first=8)))


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([Q, K, V], [0, 0, 1]),
        ([Q, K, Scale("q", 8), V], [0, 1, 0, 1]),  # the second norm ends before q is read again
        ([Q, Q], [1, 1]),
        ([Q, Copy("q", "k", 1, 8, 8, 8)], [1, 1]),
        ([Gated("silu", 8), Scale("up", 8)], [1, 1]),
        ([Gated("silu", 8, up=""), Scale("up", 8)], [0, 1]),
        ([V, LINEAR, V], [0, 1, 1]),
        ([Q, LINEAR], [1, 1]),
        ([V, Rope(1, 1, 8, None), Scale("x", 8), Attention(1, 1, 8, 1.0)], [1, 1, 1, 1]),
    ],
)
def test_who_waits(
    operations: list[Operation], expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(writer: Any, operation: Operation) -> None:
        record = np.zeros(SLOTS, np.int64)
        record[BARRIER] = 1
        writer.records.append(record)

    monkeypatch.setattr(records, "write", write)
    writer = cast(RecordWriter, SimpleNamespace(records=[]))
    records.write_all(writer, operations)
    assert [int(record[BARRIER]) for record in writer.records] == expected
