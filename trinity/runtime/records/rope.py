"""Rotation, and storing into the cache."""

from __future__ import annotations

from trinity.models.operations import Rope
from trinity.runtime.records.writer import Writer
from trinity_kernels.ops import rope as op


def write(writer: Writer, rope: Rope) -> None:
    """Queries and keys turned; keys and values in their pages."""
    buffers, rotation = writer.buffers, rope.rotation
    table = 0
    if rotation is not None:
        table = int(writer.builder.tables[rotation].values.ctypes.data)
    writer.record(op.rope_store, writer.kv_type, {
        op.Q: buffers.address("q"), op.Q_STRIDE: buffers.stride["q"],
        op.KEY: buffers.address("k"), op.VALUE: buffers.address("v"),
        op.KV_STRIDE: buffers.stride["k"], op.TABLE: table,
        op.ROPE_DIM: rotation.dim if rotation else 0, op.INTERLEAVED: writer.builder.interleaved,
        op.POSITIONS: writer.step.positions.ctypes.data,
        op.CACHES: writer.caches[writer.layer],
        op.LAYER_OFFSET: writer.offsets[writer.layer], op.HEAD_DIM: rope.head_dim,
        op.HEADS: rope.num_heads, op.KV_HEADS: rope.num_kv_heads,
    })  # fmt: skip
