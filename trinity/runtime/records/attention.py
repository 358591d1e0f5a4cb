"""Attention: divided among threads by blocks of positions for few tokens, by tokens for many.

In steps with rows of prompts it may round (rounding.py).
"""

from __future__ import annotations

import numpy as np

from trinity.models.operations import Attention
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.ops import attention as op
from trinity_kernels.record import float_bits


def write(writer: RecordWriter, attention: Attention) -> None:
    """The attention of the writer's layer over its KV cache."""
    buffers = writer.buffers
    sinks, firsts = 0, 0
    step = writer.step
    lasts = (step.lasts if attention.window else step.lasts_of_whole).ctypes.data
    if attention.window in step.firsts:
        firsts = step.firsts[attention.window].ctypes.data
    if attention.chunked:
        firsts = step.chunk_firsts[attention.window].ctypes.data
    if attention.both_ways:
        firsts, lasts = (span.ctypes.data for span in step.spans[attention.reach])
    if attention.sinks:
        sinks = writer.vector(attention.sinks, attention.num_heads)
    values = {
        **buffers.view("q").slots(op.Q, op.Q_STRIDE),
        op.POSITIONS: lasts, op.FIRSTS: firsts,
        op.CACHES: writer.caches[writer.layer],
        op.LAYER_OFFSET: writer.offsets[writer.layer], op.HEAD_DIM: attention.head_dim,
        op.VALUE_DIM: attention.width_of_values,
        op.HEADS: attention.num_heads, op.KV_HEADS: attention.num_kv_heads,
        **buffers.view("a").slots(op.OUT, op.OUT_STRIDE),
        op.SCALE: float_bits(float(np.float32(attention.scale))),
        op.SCRATCH: writer.scratch.ctypes.data, op.SCRATCH_STRIDE: writer.scratch_stride,
        op.WINDOW: attention.window, op.SOFTCAP: float_bits(attention.softcap),
        op.SINKS: sinks,
    }  # fmt: skip
    if writer.prompt_attention is not None:
        writer.record(writer.prompt_attention.prompt_attention, writer.kv_type, values)
    elif writer.few:
        values[op.PARTS] = writer.parts.ctypes.data
        writer.record(op.attention_parts, writer.kv_type, values)
        writer.record(op.attention_merge, "none", values)
    else:
        writer.record(op.attention, writer.kv_type, values)
