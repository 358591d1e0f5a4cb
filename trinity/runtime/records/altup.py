"""AltUp's operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trinity.models.altup_operations import AltUpCorrect, AltUpPredict, MatchMagnitude
from trinity.models.operations import Operation
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.ops import altup as op


def write_predict(writer: RecordWriter, predict: AltUpPredict) -> None:
    """Predict all streams."""
    view = writer.buffers.view
    writer.record(op.altup_predict, "none", {
        **view(predict.streams).slots(op.STREAMS, op.STRIDE), op.K: predict.width,
        **view(predict.coefs).slots(op.COEFS, op.COEFS_STRIDE),
    })  # fmt: skip


def write_correct(writer: RecordWriter, correct: AltUpCorrect) -> None:
    """Correct all streams by the first one's result."""
    view = writer.buffers.view
    writer.record(op.altup_correct, "none", {
        **view(correct.streams).slots(op.STREAMS, op.STRIDE), op.K: correct.width,
        **view(correct.coefs).slots(op.COEFS, op.COEFS_STRIDE),
        **view(correct.x).slots(op.X, op.X_STRIDE),
        **view(correct.out).slots(op.OUT, op.OUT_STRIDE),
        op.SCALE: writer.vector(correct.scale, correct.width),
    })  # fmt: skip


def write_match(writer: RecordWriter, match: MatchMagnitude) -> None:
    """Scale vectors to another's length."""
    view = writer.buffers.view
    writer.record(op.match_magnitude, "none", {
        **view(match.x).slots(op.X, op.X_STRIDE), op.K: match.width, op.GROUPS: match.groups,
        **view(match.target).slots(op.TARGET, op.TARGET_STRIDE),
    })  # fmt: skip


WRITE: Mapping[type[Operation], Callable[[RecordWriter, Any], None]] = {
    AltUpCorrect: write_correct,
    AltUpPredict: write_predict,
    MatchMagnitude: write_match,
}
