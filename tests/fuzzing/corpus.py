"""Findings of the fuzzer, each reduced to its smallest case; the tests run them again.

Cases are functions, not seeds, because a seed changes its meaning when a generator changes.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from math import prod

import trinity
from tests.fuzzing import models, weights
from tests.fuzzing.case import Case
from tests.fuzzing.gguf_draft import (
    ARRAY,
    F32,
    F64,
    I8,
    STRING,
    U32,
    Draft,
    Tensor,
    Value,
)
from tests.fuzzing.journey import travel
from trinity.formats.imatrix import read_imatrix
from trinity.formats.safetensors import SafeTensorsFile
from trinity.formats.sentencepiece_model import parse_sentencepiece_model
from trinity.formats.tl_config import read_tl_config

FOUND: list[Callable[[Case], None]] = []


def found(function: Callable[[Case], None]) -> Callable[[Case], None]:
    """Add a case to the list."""
    FOUND.append(function)
    return function


def sound() -> Draft:
    """Return the same small model each time."""
    return models.model(random.Random(7), 0.0, width=128, main="Q8_0", family="bitnet-25")


def tensor(draft: Draft, name: str) -> Tensor:
    """Return a tensor of a draft."""
    return next(t for t in draft.tensors if t.name == name)


def retyped(draft: Draft, name: str, type_name: str) -> Draft:
    """Return the draft with a tensor in another type."""
    changed = tensor(draft, name)
    changed.type_id = weights.file_type_id(type_name)
    changed.data = weights.content(type_name, changed.dims, random.Random(0), 0.0)
    return draft


def go(case: Case, draft: Draft) -> None:
    """Write a draft and run the whole journey with it."""
    travel(case, case.write("model.gguf", bytes(draft.encode()[0])))


@found
def embedding_in_i2_s(case: Case) -> None:
    """The 32 bytes behind I2_S's codes were counted in each row of the embedding: ValueError."""
    go(case, retyped(sound(), "token_embd.weight", "I2_S"))


@found
def norm_in_i2_s(case: Case) -> None:
    """A vector of 64 elements is no whole block of I2_S: ValueError from dequantize."""
    draft = sound()
    norm = tensor(draft, "output_norm.weight")
    norm.type_id, norm.data = weights.file_type_id("I2_S"), bytes(norm.dims[0] // 4 + 32)
    go(case, draft)


@found
def vector_of_i2_s_copied(case: Case) -> None:
    """Of a vector the scale was looked for behind the square of its length: IndexError."""
    draft = sound()
    data = weights.content("I2_S", [256], random.Random(0), 0.0)
    draft.tensors.append(Tensor("x", [256], weights.file_type_id("I2_S"), data))
    go(case, draft)


@found
def infinite_scale_and_bias_of_zero(case: Case) -> None:
    """0 * inf, on a feed-forward's bias: a RuntimeWarning on the terminal."""
    draft = sound()
    rows = tensor(draft, "blk.0.ffn_up.weight").dims[1]
    draft.tensors.append(Tensor("blk.0.ffn_up.bias", [rows], 0, bytes(4 * rows)))
    draft.tensors.append(Tensor("blk.0.ffn_up.scale", [1], 0, struct.pack("<f", float("inf"))))
    go(case, draft)


@found
def part_of_a_block_of_i2_s(case: Case) -> None:
    """A matrix whose elements fill no whole blocks of I2_S: ValueError while it is loaded."""
    draft = sound()
    key = tensor(draft, "blk.0.attn_k.weight")
    key.dims = [128, 63]
    draft.tensors.append(Tensor("x", [4, 31], weights.file_type_id("I2_S"), bytes(31 + 32)))
    go(case, retyped(draft, "blk.0.attn_k.weight", "I2_S"))


@found
def scores_beyond_float32(case: Case) -> None:
    """Scores in float64 that float32 cannot hold: a RuntimeWarning on the terminal."""
    draft = sound()
    scores = Value(ARRAY, [1e300] * 3000, F64)
    draft.set("tokenizer.ggml.model", Value(STRING, "llama"))
    draft.set("tokenizer.ggml.scores", scores)
    go(case, draft)


@found
def yarn_with_base_1(case: Case) -> None:
    """YaRN divides by the logarithm of the base: ZeroDivisionError."""
    draft = sound()
    family = str(draft.keys[0][1].content)
    draft.set(f"{family}.rope.scaling.type", Value(STRING, "yarn"))
    draft.set(f"{family}.rope.freq_base", Value(F32, 1.0))
    go(case, draft)


@found
def frequency_factors_of_zero(case: Case) -> None:
    """rope_freqs.weight divides frequencies: a RuntimeWarning, then logits of NaN."""
    draft = sound()
    draft.tensors.append(Tensor("rope_freqs.weight", [32], 0, bytes(128)))
    go(case, draft)


@found
def imatrix_type_that_is_an_array(case: Case) -> None:
    """general.type as an array was compared with a text: ValueError."""
    draft = Draft()
    draft.keys.append(("general.type", Value(ARRAY, [1, 2], I8)))
    draft.keys.append(("imatrix.chunk_size", Value(U32, 512)))
    draft.tensors.append(Tensor("a.in_sum2", [4], 0, bytes(16)))
    draft.tensors.append(Tensor("a.counts", [1], 0, struct.pack("<f", 1.0)))
    case.attempt("read", read_imatrix, case.write("imatrix", bytes(draft.encode()[0])))


@found
def imatrix_of_many_entries(case: Case) -> None:
    """1.5 million entries of 25 bytes: 20 times the file's size as objects."""
    entry = struct.pack("<i8siif", 8, b"%08d", 1, 1, 1.0)
    body = b"".join(entry.replace(b"%08d\0\0\0\0", b"%08d" % i) for i in range(1_500_000))
    raw = struct.pack("<i", 1_500_000) + body
    case.attempt("read", read_imatrix, case.write("imatrix.dat", raw))


@found
def safetensors_of_a_million_dims(case: Case) -> None:
    """The product of a million dims is a number of eight megabytes: minutes."""
    header = json.dumps(
        {"a": {"dtype": "F32", "shape": [2**63] * 500_000, "data_offsets": [0, 0]}}
    ).encode()
    raw = struct.pack("<Q", len(header)) + header
    case.attempt("read", SafeTensorsFile, case.write("model.safetensors", raw))


@found
def tile_table_of_megabytes(case: Case) -> None:
    """Each line of a kernel_config.ini became several objects, each wrong one a line of message."""
    raw = b"[a]\n" + b"xxxxxxxx\n" * 1_000_000
    case.attempt("read", read_tl_config, case.write("kernel_config.ini", raw))


@found
def sentencepiece_of_empty_fields(case: Case) -> None:
    """Fields of two bytes, each half a microsecond: ten seconds for a file of 16 MB."""
    raw = b"\x0a\x08" + b"\x20\x00" * 4 + b"\x20\x00" * (1 << 22)
    case.num_bytes += len(raw)
    case.attempt("read", parse_sentencepiece_model, raw, "tokenizer.model")


@found
def wide_row_to_quantize(case: Case) -> None:
    """One row of 2^25 one-bit weights: quantizing it made 400 MB of float32 of 5 MB."""
    draft = sound()
    family = str(draft.keys[0][1].content)
    draft.set(f"{family}.feed_forward_length", Value(U32, 1 << 24))
    data = bytes((1 << 25) // 128 * 18)
    wide = Tensor("blk.0.extra.weight", [1 << 25, 1], weights.file_type_id("Q1_0"), data)
    draft.tensors.append(wide)
    go(case, draft)


@found
def infinite_rows_of_positions(case: Case) -> None:
    """An infinite position plus an infinite embedding: a RuntimeWarning on the terminal."""
    draft = models.model(random.Random(3), 0.0, family="gpt2", width=128, main="F32")
    for name, value in (("token_embd.weight", "inf"), ("position_embd.weight", "-inf")):
        rows = tensor(draft, name)
        rows.type_id, rows.data = 0, struct.pack("<f", float(value)) * prod(rows.dims)
    go(case, draft)


@found
def infinite_hidden_states(case: Case) -> None:
    """The mean of inf and -inf: a RuntimeWarning on the terminal before the refusal."""
    draft = models.model(random.Random(3), 0.0, family="llama", width=128, main="F32")
    norm = tensor(draft, "output_norm.weight")
    norm.data = struct.pack("<f", float("inf")) * norm.dims[0]
    path = case.write("model.gguf", bytes(draft.encode()[0]))
    with trinity.load(path, threads=1, context_length=16) as model:
        case.attempt("token", model.embed, [[1, 2, 3]], "mean")
        assert "not finite" in case.refusals[-1]


@found
def infinite_layer_after_the_hidden_states(case: Case) -> None:
    """An embedding of NaN was returned, after a RuntimeWarning on the terminal."""
    draft = models.model(random.Random(3), 0.0, family="llama", width=128, main="F32")
    values = struct.pack("<ff", float("inf"), float("-inf")) * (64 * 128)
    draft.tensors.append(Tensor("dense_2.weight", [128, 128], 0, values))
    path = case.write("model.gguf", bytes(draft.encode()[0]))
    with trinity.load(path, threads=1, context_length=16) as model:
        case.attempt("token", model.embed, [[1, 2, 3]])
        assert "not finite" in case.refusals[-1]
