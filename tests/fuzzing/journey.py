"""The steps that a case takes with a model's file, until one fails."""

from __future__ import annotations

import contextlib
import io
import random
from pathlib import Path

import trinity
from tests.fuzzing import values
from tests.fuzzing.case import Case, Finding
from trinity.errors import TrinityError
from trinity.formats import GGUFProvider
from trinity.formats.provider import WeightProvider
from trinity.model import Model
from trinity.quantization import MIXES, TENSOR_TYPES, quantize
from trinity.tools.diff import diff
from trinity.tools.verify import verify

CONTEXTS = (1, 2, 16, 16, 16, 17, 40, 130)
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello </s> <|eot_id|>"},
]


def read_all(provider: WeightProvider) -> None:
    """Read every key, every tensor and the configuration."""
    for key in provider.metadata:
        with contextlib.suppress(TrinityError):
            _ = provider.metadata[key]
    for name in provider.tensor_names():
        tensor = provider.tensor(name)
        if tensor.data.nbytes != tensor.nbytes:
            raise Finding("size", f"{name}: {tensor.data.nbytes} bytes instead of {tensor.nbytes}")
        int(tensor.data[:: max(1, tensor.nbytes // 1000)].sum())
    _ = provider.config


def travel(case: Case, path: Path, *, deep: bool = True, **options: object) -> None:
    """Open, inspect, load, tokenize, one token, verify, quantize, open again, compare, close."""
    rng = case.rng
    provider = case.attempt("opened", GGUFProvider, path, **options)
    if provider is None:
        return
    with provider:
        case.attempt("read", read_all, provider)
    if not deep:
        return
    if rng.random() < 0.02:
        case.attempt("read", _inspect, path)
    context = rng.choice(CONTEXTS) if rng.random() < 0.98 else None
    model = case.attempt(
        "loaded", trinity.load, path, threads=2 if rng.random() < 0.02 else 1,
        context_length=context, kv_type=rng.choice(("f16", "f32", "q8_0")),
        progress=case.progress, **options,
    )  # fmt: skip
    if model is not None:
        with model:
            _speak(case, model)
    elif rng.random() < 0.3:
        tokenizer = case.attempt("opened", trinity.load_tokenizer, path)
        if tokenizer is not None:
            case.attempt("tokenized", tokenizer.encode, values.prose(rng), parse_special=True)
    if rng.random() < 0.5:
        with GGUFProvider(path, **options) as provider:  # type: ignore[arg-type]
            case.attempt("verified", verify, provider)
    if rng.random() < 0.5:
        quantize_file(case, path)


def _inspect(path: Path) -> None:
    """Run what `inspect` shows."""
    from trinity.cli.inspect import inspect

    with contextlib.redirect_stdout(io.StringIO()):
        inspect(str(path), as_json=True)
        inspect(str(path), tensors=True)


def _speak(case: Case, model: Model) -> None:
    rng = case.rng
    text = values.prose(rng)
    ids = case.attempt("tokenized", model.tokenize, text, parse_special=rng.random() < 0.5)
    size = model.config.vocab_size
    if ids is None or rng.random() < 0.5:
        ids = [rng.randrange(size) for _ in range(rng.choice((1, 1, 2, 5, 17, 40)))]
    ids = [i for i in ids if i < size][: max(1, model.context_length - 1)]
    sampling = (
        {"temperature": 0.0}
        if rng.random() < 0.7
        else {"temperature": 1.0, "seed": 1, "logprobs": 1}
    )
    if model.encodes or rng.random() < 0.1:
        poolings = ("cls", "mean", "last")
        case.attempt("token", model.embed, [ids or text], rng.choice(poolings))
    elif rng.random() < 0.9:
        case.attempt("token", _one_token, model, ids or text, sampling)
    else:
        case.attempt("token", model.logits, ids)
    case.attempt("tokenized", model.detokenize, [rng.randrange(size) for _ in range(5)])
    if model.tokenizer.chat_template is not None:
        case.attempt("rendered", model.apply_chat_template, MESSAGES)


def _one_token(model: Model, prompt: object, sampling: dict[str, object]) -> None:
    model.generate(prompt, max_tokens=1, **sampling)  # type: ignore[arg-type]


def quantize_file(case: Case, path: Path, imatrix: Path | None = None) -> None:
    """Quantize, open and compare the result, and sometimes load it."""
    rng = case.rng
    out = path.parent / "out.gguf"
    options: dict[str, object] = {}
    if rng.random() < 0.2:
        options["pure"] = True
    if rng.random() < 0.2:
        options["tensor_types"] = [
            (rng.choice(("attn", "ffn_down", ".", "q")), rng.choice(TENSOR_TYPES))
        ]
    if rng.random() < 0.1:
        options["output_tensor_type"] = rng.choice(TENSOR_TYPES)
    made = case.attempt(
        "quantized", quantize, path, out, rng.choice(list(MIXES)), imatrix=imatrix,
        allow_requantize=rng.random() < 0.9, dry_run=rng.random() < 0.05, threads=1, **options,
    )  # fmt: skip
    if made is None:
        if out.exists():
            raise Finding("leftover", "a refused quantization left its file")
        return
    if not out.exists():
        return
    case.num_bytes += out.stat().st_size  # it is read, too, and may be many times as large
    with GGUFProvider(out) as second, GGUFProvider(path) as first:
        for name in second.tensor_names():
            second.tensor(name)
        if rng.random() < 0.2:
            case.attempt("read", diff, first, second)
    if rng.random() < 0.2:
        again = case.attempt(
            "loaded", trinity.load, out, threads=1, context_length=16, progress=case.progress
        )
        if again is not None:
            with again:
                case.attempt("token", _one_token, again, [0], {"temperature": 0.0})


def quantize_with(case: Case, path: Path, imatrix: Path) -> None:
    """Quantize with an importance matrix."""
    quantize_file(case, path, imatrix)


def some_text(rng: random.Random) -> str:
    """Draw a text to tokenize."""
    return values.prose(rng)
