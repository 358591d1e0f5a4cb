"""Checks of attention over pages of the KV cache: whole, in parts of a block, and their merge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels import record
from trinity_kernels._jit import Kernel
from trinity_kernels.ops import attention as op
from trinity_kernels.ops import kv_layout, prompt_attention
from trinity_kernels.selftest import kv_cache
from trinity_kernels.selftest.checks import NO_TAG, Check
from trinity_kernels.selftest.comparing import (
    aligned,
    at,
    differs,
    first_error,
    random_numbers,
    run_kernel,
)
from trinity_kernels.selftest.kv_cache import DIM, HEADS, KV_HEADS, VALUE_DIM

Array = NDArray[Any]


@dataclass(frozen=True)
class _Case:
    """Attention of some tokens: arrays, the record's slots and what must result."""

    out: NDArray[np.float32]
    parts: NDArray[np.float32]  # weighted values, maximum and sum of each block
    slots: dict[int, int]
    expected: Array
    expected_parts: Array
    kept: tuple[Array, ...]  # arrays whose addresses are in the slots


def _cases(kv_type: str, rounds: bool = False) -> Iterator[_Case]:
    """Each token sees all positions up to its own, then only those from a first one on.

    ``rounds``: for the kernel that rounds operands, which takes queries as they are.
    """
    positions = np.array([0, 127, 128, 300], np.int32)
    yield _case(kv_type, positions, np.zeros(4, np.int32), False, rounds)
    yield _case(kv_type, positions, np.array([0, 100, 128, 141], np.int32), True, rounds)
    prompt = np.arange(250, 270, dtype=np.int32)
    yield _case(kv_type, prompt, np.zeros_like(prompt), False, rounds)


def _case(
    kv_type: str, positions: Array, firsts: Array, has_firsts: bool, rounds: bool
) -> _Case:  # fmt: skip
    memory, keys, values = kv_cache.filled_pages(kv_type)
    tokens = len(positions)
    q = random_numbers().standard_normal((tokens, HEADS, DIM)).astype(np.float32)
    taken = (q if rounds else kv_cache.taken(kv_type, q)).astype(np.float64)
    out = np.zeros((tokens, HEADS, VALUE_DIM), np.float32)
    table = kv_cache.page_table(memory)
    caches = np.full(tokens, at(table), np.int64)
    blocks = positions // op.BLOCK + 1 - firsts // op.BLOCK
    parts = np.zeros((blocks.sum(), HEADS, op.part_bytes(VALUE_DIM) // 4), np.float32)
    scratch_bytes = prompt_attention.scratch_bytes if rounds else op.scratch_bytes
    scratch = np.zeros(scratch_bytes(DIM, VALUE_DIM) + 64, np.uint8)
    slots = {
        op.Q: at(q), op.Q_STRIDE: q.strides[0], op.POSITIONS: at(positions),
        op.CACHES: at(caches), op.LAYER_OFFSET: 0, op.HEAD_DIM: DIM, op.HEADS: HEADS,
        op.KV_HEADS: KV_HEADS, op.VALUE_DIM: VALUE_DIM, op.OUT: at(out),
        op.OUT_STRIDE: out.strides[0], op.SCALE: record.float_bits(DIM**-0.5),
        op.SCRATCH: aligned(scratch), op.PARTS: at(parts),
        op.FIRSTS: at(firsts) if has_firsts else 0,
    }  # fmt: skip
    expected, expected_parts = np.zeros(out.shape), np.zeros(parts.shape)
    padded = kv_layout.padded_dim(VALUE_DIM)
    for t, (first, position) in enumerate(zip(firsts, positions, strict=True)):
        scores = np.einsum("hd,pd->hp", taken[t], keys[first : position + 1, 0]) * DIM**-0.5
        for b, block in enumerate(range(first // op.BLOCK, position // op.BLOCK + 1)):
            start = max(block * op.BLOCK, first)
            some = scores[:, start - first : (block + 1) * op.BLOCK - first]
            m = some.max(axis=1)
            p = np.exp(some - m[:, None])
            part = expected_parts[blocks[:t].sum() + b]
            part[:, :VALUE_DIM] = p @ values[start : start + some.shape[1], 0]
            part[:, padded], part[:, padded + 1] = m, p.sum(axis=1)
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        expected[t] = p @ values[first : position + 1, 0] / p.sum(axis=1, keepdims=True)
    kept = (q, positions, firsts, memory, table, caches, scratch)
    return _Case(out, parts, slots, expected, expected_parts, kept)


def _ran(kernel: Kernel, level: str, tag: str, rounds: bool = False) -> Iterator[_Case]:
    """Run the kernel on each case, and yield the case with its results."""
    for case in _cases(tag, rounds):
        run_kernel(kernel, level, tag, len(case.out), case.slots)
        yield case


def check_attention(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare the results of whole attention."""
    cases = _ran(kernel, level, tag)
    return first_error(differs(case.out, case.expected, 1e-5) for case in cases)


def check_prompt_attention(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare the results of attention in bfloat16."""
    cases = _ran(kernel, level, tag, rounds=True)
    return first_error(differs(case.out, case.expected, 3e-2) for case in cases)


def check_attention_parts(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare the parts of single blocks."""
    cases = _ran(kernel, level, tag)
    return first_error(differs(case.parts, case.expected_parts, 1e-4) for case in cases)


def check_attention_merge(kernel: Kernel, level: str, tag: str) -> str | None:
    """Merge parts that NumPy computed."""
    for case in _cases("F32"):
        case.parts[:] = case.expected_parts
        run_kernel(kernel, level, tag, len(case.out), case.slots)
        error = differs(case.out, case.expected, 1e-5)
        if error:
            return error
    return None


CHECKS = {
    "attention": Check(op.attention, kv_layout.KV_TYPES, check_attention),
    "prompt_attention": Check(
        prompt_attention.prompt_attention,
        tuple(sorted(prompt_attention.TYPES)),
        check_prompt_attention,
    ),
    "attention_parts": Check(op.attention_parts, kv_layout.KV_TYPES, check_attention_parts),
    "attention_merge": Check(op.attention_merge, NO_TAG, check_attention_merge),
}
