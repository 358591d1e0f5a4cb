"""Target: tiny Whisper models, valid, changed and damaged; loaded and run."""

from __future__ import annotations

import random

import numpy as np

import trinity
from scripts.models.make_synthetic import byte_characters
from tests.fuzzing import models, values, weights
from tests.fuzzing.case import Case
from tests.fuzzing.gguf_draft import (
    ARRAY,
    BOOL,
    F32,
    I32,
    STRING,
    U32,
    Draft,
    Tensor,
    Value,
    any_value,
    injure,
)
from tests.fuzzing.journey import quantize_file, read_all
from trinity.formats import GGUFProvider
from trinity.formats.speech_config import SpeechConfig, Stack, tensor_shapes

_SPECIALS = (
    "<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>",
    "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>",
)  # fmt: skip
_TIMES = 60
_KEYS = (
    "encoder.context_length", "encoder.embedding_length", "encoder.block_count",
    "encoder.attention.head_count", "encoder.mels_count", "encoder.feed_forward_length",
    "decoder.context_length", "decoder.embedding_length", "decoder.block_count",
    "decoder.attention.head_count", "decoder.feed_forward_length", "vocab_size",
    "hidden_activation", "decoder.attention.layer_norm_epsilon", "decoder_start_token_id",
    "suppress_tokens", "begin_suppress_tokens", "max_initial_timestamp_index", "multilingual",
    "languages", "alignment_heads",
)  # fmt: skip


def speech(case: Case) -> None:
    """A model that is sound, says odd things, or has injured bytes; then half a second of noise."""
    rng = case.rng
    draft = whisper(rng, rng.choice((0.0, 0.02, 0.3)))
    for _ in range(rng.choice((0, 0, 1, 1, 1, 2, 3))):
        if rng.random() < 0.5:
            _change_key(draft, rng)
        else:
            models.change(draft, rng)
    out, marks, bounds = draft.encode()
    if rng.random() < 0.1:
        injure(rng, out, marks, bounds)
    path = case.write("model.gguf", bytes(out))
    provider = case.attempt("opened", GGUFProvider, path)
    if provider is None:
        return
    with provider:
        case.attempt("read", read_all, provider)
    quantize = "Q8_0" if rng.random() < 0.1 else None
    model = case.attempt(
        "loaded", trinity.SpeechModel, path, threads=1, quantize=quantize, progress=case.progress
    )
    if model is not None:
        with model:
            case.attempt("token", _write_down, case, model)
    if rng.random() < 0.3:
        quantize_file(case, path)


def _write_down(case: Case, model: trinity.SpeechModel) -> None:
    rng = case.rng
    noise = np.random.default_rng(rng.randrange(1 << 30)).normal(size=rng.choice((1, 400, 8000)))
    model.transcribe(
        noise.astype(np.float32),
        beams=rng.choice((1, 1, 2)),
        times=rng.random() < 0.8,
        fallback=rng.random() < 0.1,
        word_times=rng.random() < 0.5,
    )


def whisper(rng: random.Random, hostile: float) -> Draft:
    """A sound model of tiny sizes; its weights are hostile with that probability each."""
    width = rng.choice((8, 32, 32, 64))
    stacks = [
        Stack(rng.choice((1, 1, 2)), rng.choice((1, 2, 4)), rng.choice((16, 32, 96)), positions)
        for positions in (rng.choice((5, 25, 40)), rng.choice((10, 16, 40)))
    ]
    tokens = [*byte_characters(), *_SPECIALS, *(f"<|{0.02 * i:.2f}|>" for i in range(_TIMES))]
    bands = rng.choice((1, 10, 80))
    config = SpeechConfig(width, len(tokens), bands, *stacks, "gelu_erf", (), (), 50, (), "")
    draft = Draft()
    keys: dict[str, Value] = {"general.architecture": Value(STRING, "whisper")}
    for side, stack in zip(("encoder", "decoder"), stacks, strict=True):
        for key, size in {
            "context_length": stack.positions,
            "embedding_length": width,
            "block_count": stack.layers,
            "attention.head_count": stack.heads,
            "feed_forward_length": stack.inner,
        }.items():
            keys[f"whisper.{side}.{key}"] = Value(U32, size)
    keys["whisper.encoder.mels_count"] = Value(U32, bands)
    keys["whisper.decoder.attention.layer_norm_epsilon"] = Value(F32, 1e-5)
    if rng.random() < 0.5:
        keys |= {
            "whisper.vocab_size": Value(U32, len(tokens)),
            "whisper.hidden_activation": Value(STRING, "gelu"),
            "whisper.decoder_start_token_id": Value(U32, 257),
            "whisper.suppress_tokens": Value(ARRAY, [257, 258], I32),
            "whisper.begin_suppress_tokens": Value(ARRAY, [220, 256], I32),
            "whisper.max_initial_timestamp_index": Value(U32, rng.choice((0, 50))),
            "whisper.multilingual": Value(BOOL, rng.random() < 0.8),
            "whisper.languages": Value(ARRAY, ["en", "de"], STRING),
            "whisper.alignment_heads": Value(ARRAY, [0, 0], I32),
        }
    draft.keys = [
        *keys.items(),
        ("tokenizer.ggml.model", Value(STRING, "gpt2")),
        ("tokenizer.ggml.pre", Value(STRING, "gpt-2")),
        ("tokenizer.ggml.tokens", Value(ARRAY, tokens, STRING)),
        ("tokenizer.ggml.token_type", Value(ARRAY, [1] * 256 + [3] * (len(tokens) - 256), I32)),
        ("tokenizer.ggml.merges", Value(ARRAY, ["t h", "h e"], STRING)),
        ("tokenizer.ggml.eos_token_id", Value(U32, 256)),
    ]
    main = rng.choice(weights.RUNNABLE)
    for name, shape in tensor_shapes(config).items():
        dims = list(shape[::-1])
        kind = "F32"
        if len(dims) > 1 and "position" not in name:
            kind = main if len(dims) == 2 and dims[0] % weights.block_size(main) == 0 else "F16"
        data = weights.content(kind, dims, rng, hostile)
        draft.tensors.append(Tensor(name, dims, weights.file_type_id(kind), data))
    return draft


def _change_key(draft: Draft, rng: random.Random) -> None:
    """A key of Whisper's gets another value, near the old one or any."""
    key = f"whisper.{rng.choice(_KEYS)}"
    old = getattr(draft.find(key), "content", 1)
    if isinstance(old, int) and rng.random() < 0.7:
        new = rng.choice((old - 1, old + 1, 2 * old, old // 2, 0, 1, values.integer(rng)))
        draft.set(key, Value(U32, new))
    else:
        draft.set(key, any_value(rng))
