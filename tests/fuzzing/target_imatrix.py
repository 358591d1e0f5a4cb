"""Target: importance matrices of both formats, read and used to quantize."""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path

from tests.fuzzing import models, values, weights
from tests.fuzzing.case import Case
from tests.fuzzing.gguf_draft import (
    ARRAY,
    STRING,
    U32,
    Draft,
    Mark,
    Tensor,
    Value,
    any_value,
    injure,
)
from tests.fuzzing.journey import quantize_with
from trinity.formats.imatrix import Imatrix, merge, read_imatrix, write_imatrix

Entries = list[tuple[str, int]]  # weight and columns


def imatrix(case: Case) -> None:
    """Read; at times written again, merged, and quantized with."""
    rng = case.rng
    entries: Entries = [
        (f"blk.{i}.{name}.weight", rng.choice((1, 16, 32, 64, 256)))
        for i in range(rng.randrange(3))
        for name in rng.sample(("attn_q", "attn_k", "ffn_up", "ffn_down"), k=2)
    ]
    model: Path | None = None
    if rng.random() < 0.1:
        draft = models.model(rng, 0.0)
        entries = [(t.name, t.dims[0]) for t in draft.tensors if len(t.dims) == 2]
        model = case.write("model.gguf", bytes(draft.encode()[0]))
    form = _gguf if rng.random() < 0.6 else _dat
    path = case.write("imatrix", form(rng, entries))
    found = case.attempt("read", read_imatrix, path)
    if found is None:
        return
    _use(case, found)
    if model is not None:
        quantize_with(case, model, path)


def _use(case: Case, found: Imatrix) -> None:
    for name in found.entries:
        case.attempt("read", found.mean, name)
    if case.rng.random() < 0.2:
        _ = found.chunk_count
        case.attempt("read", merge, found, found)
        case.attempt("read", write_imatrix, case.folder / "again.gguf", found)


def _sums(rng: random.Random, count: int) -> bytes:
    if rng.random() < 0.8:
        return weights.norm(count, rng)
    some = [struct.pack("<f", _single(values.real(rng))) for _ in range(min(count, 64))]
    return b"".join(some) + bytes(4 * max(0, count - 64))


def _single(value: float) -> float:
    return value if not math.isfinite(value) or abs(value) < 3e38 else math.inf


def _gguf(rng: random.Random, entries: Entries) -> bytes:
    draft = Draft()
    draft.keys = [
        ("general.type", Value(STRING, "imatrix")),
        ("imatrix.datasets", Value(ARRAY, ["text"], STRING)),
        ("imatrix.chunk_count", Value(U32, 4)),
        ("imatrix.chunk_size", Value(U32, 512)),
    ]
    if rng.random() < 0.2:
        draft.keys += [
            ("trinity.imatrix.next_chunk", Value(U32, 4)),
            ("trinity.imatrix.text_sha256", Value(STRING, values.text(rng))),
        ]
    for name, columns in entries:
        stack = rng.choice((1, 1, 1, 1, 3))
        name = name[:50]
        sums, counts = _sums(rng, columns * stack), struct.pack("<f", 2048.0) * stack
        draft.tensors.append(Tensor(f"{name}.in_sum2", [columns, stack], 0, sums))
        draft.tensors.append(Tensor(f"{name}.counts", [1, stack], 0, counts))
    for _ in range(rng.choice((0, 0, 1, 2))):
        kind = rng.random()
        at = rng.randrange(len(draft.keys))
        if kind < 0.3:
            draft.keys[at] = draft.keys[at][0], any_value(rng)
        elif kind < 0.4:
            draft.keys[at] = draft.keys[at][0], Value(U32, values.integer(rng))
        elif kind < 0.5:
            draft.keys.pop(at) if len(draft.keys) > 1 else None
        elif draft.tensors:
            tensor = rng.choice(draft.tensors)
            if tensor.name.endswith("counts"):
                value = _single(values.real(rng))
                tensor.data = struct.pack("<f", value) * (len(tensor.data) // 4)
            elif kind < 0.8:
                tensor.dims.append(rng.choice((1, 2)))
            else:
                models.change_tensor(draft, rng)
    out, marks, bounds = draft.encode()
    if rng.random() < 0.3:
        injure(rng, out, marks, bounds)
    return bytes(out)


def _dat(rng: random.Random, entries: Entries) -> bytes:
    count = len(entries) if rng.random() < 0.8 else values.integer(rng)
    out = bytearray(_i32(count))
    bounds = [4]
    for name, columns in entries:
        text = name if rng.random() < 0.9 else values.text(rng)
        raw = text.encode("utf-8", "surrogatepass")
        length = len(raw) if rng.random() < 0.95 else values.integer(rng)
        calls = rng.choice((0, 1, 4, 4, 4, values.integer(rng)))
        size = columns if rng.random() < 0.95 else values.integer(rng)
        out += _i32(length) + raw + _i32(calls) + _i32(size) + _sums(rng, columns)
        bounds.append(len(out))
    if rng.random() < 0.7:
        out += _i32(4) + _i32(4) + b"text"
        bounds.append(len(out))
    if rng.random() < 0.3:
        injure(rng, out, [Mark(at, 4) for at in bounds[:-1] or [0]], bounds)
    return bytes(out)


def _i32(value: int) -> bytes:
    return (value & 0xFFFFFFFF).to_bytes(4, "little")
