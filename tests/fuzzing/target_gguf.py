"""Target: GGUF models, valid, changed, damaged, split, and in TL1 and TL2 with their tiles."""

from __future__ import annotations

import struct

from tests.fuzzing import models, values, weights
from tests.fuzzing.case import Case
from tests.fuzzing.gguf_draft import I32, STRING, U16, U32, Draft, Tensor, Value, injure
from tests.fuzzing.journey import travel


def gguf(case: Case) -> None:
    """A model that is sound, says odd things, or has injured bytes; the whole way."""
    rng = case.rng
    draft = models.model(rng, rng.choice((0.0, 0.02, 0.3)))
    for _ in range(rng.choice((0, 0, 1, 1, 1, 2, 3))):
        models.change(draft, rng)
    out, marks, bounds = draft.encode()
    if rng.random() < 0.1:
        injure(rng, out, marks, bounds)
    options = {"i2s_layout": "arm"} if rng.random() < 0.1 else {}
    travel(case, case.write("model.gguf", bytes(out)), **options)


def structure(case: Case) -> None:
    """Few keys and tensors, many injuries: mostly for the reader, cheap."""
    rng = case.rng
    draft = Draft()
    draft.keys.append(("general.architecture", Value(STRING, "llama")))
    for _ in range(rng.randrange(8)):
        models.change(draft, rng)
    for i in range(rng.randrange(6)):
        name = rng.choice(weights.ALL_TYPES)
        dims = [rng.choice((1, 4, 32, 256, 512)) for _ in range(rng.choice((0, 1, 2, 2, 2, 3, 4)))]
        data = weights.content(name, dims, rng, 0.2) if dims else bytes(4)
        if len(data) < 20_000:
            draft.tensors.append(Tensor(f"t{i}", dims, weights.file_type_id(name), data))
            if rng.random() < 0.3:
                models.change(draft, rng)
    out, marks, bounds = draft.encode()
    if rng.random() < 0.85:
        injure(rng, out, marks, bounds, weights.content("Q8_0", [2048], rng))
    travel(case, case.write("model.gguf", bytes(out)), deep=rng.random() < 0.1)


def split(case: Case) -> None:
    """A model in several files, some of which are wrong, missing or of another."""
    rng = case.rng
    draft = models.model(rng)
    if rng.random() < 0.3:
        models.change(draft, rng)
    count = rng.choice((1, 2, 2, 3, 5))
    named = count if rng.random() < 0.9 else rng.choice((0, 1, 2, 99999))
    total = len(draft.tensors) if rng.random() < 0.9 else values.integer(rng)
    paths = []
    for number in range(count):
        part = Draft(alignment=draft.alignment)
        part.keys = list(draft.keys) if number == 0 else draft.keys[:1]
        if draft.alignment != 32 and number:
            part.keys.append(("general.alignment", Value(U32, draft.alignment)))
        no = number if rng.random() < 0.95 else values.integer(rng)
        kind = U16 if rng.random() < 0.9 else U32
        said = count if rng.random() < 0.95 else values.integer(rng)
        part.keys += [
            ("split.no", Value(kind, no)),
            ("split.count", Value(kind, said)),
            ("split.tensors.count", Value(I32, total)),
        ]
        part.tensors = draft.tensors[number::count]
        if rng.random() < 0.05:
            models.change(part, rng)
        out, marks, bounds = part.encode()
        if rng.random() < 0.1:
            injure(rng, out, marks, bounds)
        if number == 0 or rng.random() < 0.97:
            name = f"m-{number + 1:05d}-of-{named:05d}.gguf"
            if rng.random() < 0.02:
                (case.folder / name).mkdir()
                return
            paths.append(case.write(name, bytes(out)))
    travel(case, rng.choice(paths) if rng.random() < 0.1 else paths[0])


def tl(case: Case) -> None:
    """TL1 and TL2 tensors with a kernel_config.ini that fits, nearly fits, or is nonsense."""
    rng = case.rng
    width = rng.choice((64, 128, 192, 256))
    draft = models.model(rng, width=width)
    lines = []
    name = rng.choice(("TL1", "TL2"))
    for tensor in draft.tensors:
        if tensor.dims != [width, width] or rng.random() < 0.1:
            continue
        data = weights.content(name, tensor.dims, rng, 0.02)
        if name == "TL2" and width < 256:
            continue
        tensor.type_id, tensor.data = weights.file_type_id(name), data
    for _ in range(rng.choice((1, 1, 2))):
        bm = rng.choice((16, 32, 32, 64)) if name == "TL1" else 32
        tile = [width, width, rng.choice((32, 64, width)), rng.choice((32, 64, 96, 192, width)), bm]
        if rng.random() < 0.1:
            tile[rng.randrange(5)] = values.integer(rng)
        lines.append(f"[Kernels_{len(lines)}]")
        keys = ["m", "k", "bm", "bk", "bmm"]
        lines += [f"{key} = {value}" for key, value in zip(keys, tile, strict=True)]
    if rng.random() < 0.2 and lines:
        for _ in range(rng.choice((1, 3))):
            lines.insert(rng.randrange(len(lines) + 1), rng.choice((
                "[Kernels_0]", "m", "= 3", "[DEFAULT]", "bm = %(bm)s", "k = %(m)s", "k: 9", "[",
                "]",
                "m = " + "9" * rng.choice((5, 5000)), "\0", "%", "m = 0x10", "  m = 3",
                "x" * 10_000,
            )))  # fmt: skip
    raw = "\n".join(lines).encode()
    if rng.random() < 0.05:
        raw = rng.randbytes(rng.randrange(200)) + raw
    config = case.write("kernel_config.ini", raw)
    out, marks, bounds = draft.encode()
    if rng.random() < 0.05:
        injure(rng, out, marks, bounds)
    travel(case, case.write("model.gguf", bytes(out)), tl_config=config)


def wide(case: Case) -> None:
    """Hostile but consistent: little data, large sizes that it seems to justify."""
    rng = case.rng
    draft = models.model(rng, 0.0)
    family = "llama"
    draft.keys[0] = "general.architecture", Value(STRING, family)
    kind = rng.randrange(7)
    cheap = rng.choice(("Q1_0", "TQ1_0", "IQ1_S", "I2_S", "Q2_0"))
    hidden, ffn, heads, head_dim, layers, context = 256, 64, 1, 32, 1, 64
    if kind == 0:
        head_dim = rng.choice((1024, 8192, 65536))
    elif kind == 1:
        heads = rng.choice((64, 1024, 4096))
    elif kind == 2:
        ffn = rng.choice((1 << 14, 1 << 17))
    elif kind == 3:
        hidden = rng.choice((1 << 13, 1 << 16))
    elif kind == 4:
        layers = rng.choice((50, 300))
    elif kind == 5:
        context = 1 << 20
        head_dim = rng.choice((128, 1024))
    kv_heads = heads if rng.random() < 0.5 else 1
    vocab = len(draft.find("tokenizer.ggml.tokens").content)  # type: ignore[union-attr, arg-type]
    for key, size in {
        "context_length": context, "embedding_length": hidden, "block_count": layers,
        "feed_forward_length": ffn, "attention.head_count": heads, "vocab_size": vocab,
        "attention.head_count_kv": kv_heads, "attention.key_length": head_dim,
        "attention.value_length": head_dim,
    }.items():  # fmt: skip
        draft.set(f"{family}.{key}", Value(U32, size))
    draft.set(f"{family}.attention.layer_norm_rms_epsilon", Value(6, 1e-5))
    draft.tensors.clear()
    query, kv = heads * head_dim, kv_heads * head_dim

    def linear(name: str, columns: int, rows: int) -> None:
        fits = (
            cheap
            if columns % weights.block_size(cheap) == 0
            else "Q4_0"
            if columns % 32 == 0
            else "F16"
        )
        if len(draft.tensors) > 20:
            fits = draft.tensors[-1].data and fits
        data = weights.content(fits, [columns, rows], rng, 0.0)
        if sum(len(t.data) for t in draft.tensors) + len(data) < 24 << 20:
            draft.tensors.append(Tensor(name, [columns, rows], weights.file_type_id(fits), data))

    linear("token_embd.weight", hidden, vocab)
    for layer in range(layers):
        prefix = f"blk.{layer}."
        for name, size in (("attn_norm", hidden), ("ffn_norm", hidden)):
            draft.tensors.append(
                Tensor(f"{prefix}{name}.weight", [size], 0, weights.norm(size, rng))
            )
        missing = rng.random() < 0.1
        for name, columns, rows in (
            ("attn_q", hidden, query), ("attn_k", hidden, kv), ("attn_v", hidden, kv),
            ("attn_output", query, hidden), ("ffn_gate", hidden, ffn), ("ffn_up", hidden, ffn),
            ("ffn_down", ffn, hidden),
        ):  # fmt: skip
            if not (missing and rng.random() < 0.3):
                linear(f"{prefix}{name}.weight", columns, rows)
    draft.tensors.append(Tensor("output_norm.weight", [hidden], 0, weights.norm(hidden, rng)))
    if kind == 6:
        for i in range(rng.choice((1000, 20_000))):
            draft.tensors.append(Tensor(f"tiny.{i}", [1], 0, struct.pack("<f", 1.0)))
    if rng.random() < 0.2:
        models.change(draft, rng)
    out, _, _ = draft.encode()
    travel(case, case.write("model.gguf", bytes(out)))
