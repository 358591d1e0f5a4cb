"""Rotary embedding, and storing keys and values in the KV cache."""

from __future__ import annotations

from trinity.models.operations import Rope
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.ops import rope as op


def write(writer: RecordWriter, rope: Rope) -> None:
    """Rotate queries and keys, and write keys and values to their pages."""
    buffers, builder = writer.buffers, writer.builder
    values = {
        **buffers.view("q").slots(op.Q, op.Q_STRIDE),
        op.POSITIONS: writer.step.positions.ctypes.data,
        op.TURNS: writer.step.rotary_rows.ctypes.data,
        op.CACHES: writer.caches[writer.layer],
        op.HEADS: rope.num_heads, op.HEAD_DIM: rope.head_dim,
        op.FIRST: rope.first, op.INTERLEAVED: builder.interleaved,
    }  # fmt: skip
    if rope.rotation is not None:
        values[op.TABLE] = builder.rotations[rope.rotation].address
        values[op.ROPE_DIM] = rope.rotation.dim
    if rope.temperature is not None:
        values[op.TEMPERATURES] = builder.temperatures[rope.temperature].address
    if rope.stores:
        values |= {
            **buffers.view("k").slots(op.KEY, op.KEY_STRIDE),
            **buffers.view(rope.value).slots(op.VALUE, op.VALUE_STRIDE),
            op.LAYER_OFFSET: writer.offsets[writer.layer], op.KV_HEADS: rope.num_kv_heads,
            op.VALUE_DIM: rope.value_dim or rope.head_dim,
        }  # fmt: skip
    writer.record(op.rope_store, writer.kv_type, values)
