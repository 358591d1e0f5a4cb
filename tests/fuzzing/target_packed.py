"""Target: directories of every quantization method, opened, loaded, run for a token, verified."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from contextlib import closing
from math import prod

import trinity
from tests.fuzzing import values, weights
from tests.fuzzing.case import Case
from tests.fuzzing.target_huggingface import (
    Json,
    Tensors,
    mlx_weights,
    of_any_family,
    plain_model,
    replace_one,
    safetensors_bytes,
    tokenizer_json,
)
from trinity.formats.provider import WeightProvider
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Rows
from trinity.tools.verify import verify

Settings = tuple[Json, Tensors]  # of config.json's quantization_config; a weight's tensors
_NO_NAN = bytes(byte - 1 if byte & 0x7F == 0x7F else byte for byte in range(256))  # of E4M3
_DTYPES = ("F32", "F16", "BF16", "U8", "I8", "I32", "I64", "F8_E4M3", "F8_E8M0", "U32", "BOOL")
_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I64": 8, "U32": 4}


def packed(case: Case) -> None:
    """A model of any class in one of the methods' forms, sound or with something wrong."""
    rng = case.rng
    directory = case.folder / "hf"
    directory.mkdir()
    tokenizer = tokenizer_json(rng)
    vocab = len(tokenizer["model"]["vocab"]) + 3
    make = of_any_family if rng.random() < 0.4 else _llama
    config, tensors = make(rng, vocab)
    method = rng.choice((*_METHODS, "mlx"))
    if method == "mlx":
        config["quantization"] = mlx_weights(rng, tensors)
    else:
        said = _repack(rng, tensors, *_METHODS[method])
        if rng.random() < 0.15:
            replace_one(rng, said)
        if "quant_algo" in said and rng.random() < 0.5:
            case.write("hf/hf_quant_config.json", json.dumps({"quantization": said}).encode())
        else:
            config["quantization_config"] = said
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        _spoil(rng, tensors)
    case.write("hf/config.json", json.dumps(config).encode())
    case.write("hf/tokenizer.json", json.dumps(tokenizer).encode())
    settings = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    case.write("hf/tokenizer_config.json", json.dumps(settings).encode())
    case.write("hf/model.safetensors", safetensors_bytes(rng, tensors, 0))
    provider = case.attempt("opened", trinity.open_weights, directory)
    if provider is None:
        return
    with closing(provider):
        case.attempt("read", _read, provider)
        if rng.random() < 0.3:
            case.attempt("verified", verify, provider)
        # Without the tokenizer, which takes a process of its own, a case takes a tenth of the time.
        case.attempt("token", _step, case, provider)
    if rng.random() < 0.03:
        model = case.attempt(
            "loaded", trinity.load, directory, threads=1, context_length=16, progress=case.progress
        )
        if model is not None:
            with model:
                case.attempt("token", lambda: model.generate("a", max_tokens=1, temperature=0.0))


def _step(case: Case, provider: WeightProvider) -> None:
    engine = load_engine(provider, threads=1, context_length=16, progress=case.progress)
    with closing(engine):
        engine.step([Rows(engine.new_cache(), [5, 6, 7][: case.rng.choice((1, 3))])])


def _llama(rng: random.Random, vocab: int) -> tuple[Json, Tensors]:
    return plain_model(rng, False, vocab, rng.choice((32, 64, 128)))


def _read(provider: WeightProvider) -> None:
    for name in provider.tensor_names():
        tensor = provider.tensor(name)
        int(tensor.data[:: max(1, tensor.nbytes // 1000)].sum())
    _ = provider.config


Maker = Callable[[random.Random, int, int], Tensors]


def _repack(rng: random.Random, tensors: Tensors, said: Json, make: Maker) -> Json:
    """Most matrices of layers in a method's form; what config.json says of it."""
    for name in [name for name in tensors if ".layers." in name and name.endswith(".weight")]:
        _, shape, _ = tensors[name]
        if len(shape) != 2 or "norm" in name or rng.random() < 0.1:
            continue
        del tensors[name]
        base = name.removesuffix(".weight")
        tensors |= {f"{base}.{end}": tensor for end, tensor in make(rng, *shape).items()}
    return json.loads(json.dumps(said))  # type: ignore[no-any-return]


def _spoil(rng: random.Random, tensors: Tensors) -> None:
    """One tensor without its neighbour, or of another shape, type or content."""
    if not tensors:
        return
    name = rng.choice(list(tensors))
    dtype, shape, data = tensors[name]
    kind = rng.randrange(6)
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        tensors[name.rpartition(".")[0] + rng.choice((".weight", ".scales", ".g_idx", ".bias"))] = (
            tensors.pop(name)
        )
    elif kind == 2 and shape:
        changed = list(shape)
        at = rng.randrange(len(shape))
        changed[at] = rng.choice((0, 1, shape[at] + 1, max(shape[at] - 1, 0), 2 * shape[at]))
        size = len(data) * prod(changed) // max(prod(shape), 1)
        tensors[name] = dtype, changed, (data * 3)[:size].ljust(size, b"\1")
    elif kind == 3:
        other = rng.choice(_DTYPES)
        each = _BYTES.get(other, 1)
        tensors[name] = other, [*shape[:-1], len(data) // each // max(prod(shape[:-1]), 1)], data
        size = each * prod(tensors[name][1])
        tensors[name] = other, tensors[name][1], data[:size]
    elif kind == 4:
        tensors[name] = dtype, shape, rng.randbytes(len(data))
    else:
        fill = rng.choice((b"\0", b"\xff", b"\x7f", b"\x80\x7f"))
        tensors[name] = dtype, shape, (fill * len(data))[: len(data)]


def _tensor(rng: random.Random, dtype: str, *shape: int) -> tuple[str, list[int], bytes]:
    """Codes or numbers of usual sizes."""
    count = prod(shape)
    if dtype == "F8_E4M3":
        raw = rng.randbytes(count)
        return dtype, list(shape), raw if rng.random() < 0.01 else raw.translate(_NO_NAN)
    if dtype in ("F32", "F16", "BF16"):
        return dtype, list(shape), weights.content(dtype, [count], rng, 0.002)
    return dtype, list(shape), rng.randbytes(count * _BYTES.get(dtype, 1))


def _floats(rng: random.Random) -> str:
    return rng.choice(("F32", "F16", "BF16"))


def _fp8(end: str, of: str) -> Maker:
    def make(rng: random.Random, rows: int, columns: int) -> Tensors:
        shape = {"block": (-(-rows // 128), -(-columns // 128)), "row": (rows, 1), "all": (1,),
                 "group": (rows, max(1, columns // 32))}[of]  # fmt: skip
        return {
            "weight": _tensor(rng, "F8_E4M3", rows, columns),
            end: _tensor(rng, _floats(rng), *shape),
        }

    return make


def _group(rng: random.Random, columns: int) -> int:
    fitting = [size for size in (32, 64, 128) if columns % size == 0]
    return rng.choice(fitting or [max(columns, 1)])


def _integers(bits: int) -> Maker:
    """compressed-tensors."""

    def make(rng: random.Random, rows: int, columns: int) -> Tensors:
        each, groups = 32 // bits, columns // _group(rng, columns)
        found = {
            "weight_packed": _tensor(rng, "I32", rows, -(-columns // each)),
            "weight_scale": _tensor(rng, _floats(rng), rows, groups),
            "weight_shape": (
                "I64",
                [2],
                b"".join(n.to_bytes(8, "little") for n in (rows, columns)),
            ),
        }
        if rng.random() < 0.3:
            found["weight_zero_point"] = _tensor(rng, "I32", -(-rows // each), groups)
        return found

    return make


def _int8(rng: random.Random, rows: int, columns: int) -> Tensors:
    scale = _tensor(rng, _floats(rng), rows, 1)
    return {"weight": _tensor(rng, "I8", rows, columns), "weight_scale": scale}


def _nvfp4(codes: str, whole: str) -> Maker:
    def make(rng: random.Random, rows: int, columns: int) -> Tensors:
        return {
            codes: _tensor(rng, "U8", rows, columns // 2),
            "weight_scale": _tensor(rng, "F8_E4M3", rows, columns // 16),
            whole: ("F32", [1], b"\x00\x00\x80\x3f"),
        }

    return make


def _mxfp4(rng: random.Random, rows: int, columns: int) -> Tensors:
    scales = (
        "U8",
        [rows, columns // 32],
        bytes(rng.choices(range(110, 128), k=rows * columns // 32)),
    )
    return {"weight_packed": _tensor(rng, "U8", rows, columns // 2), "weight_scale": scales}


def _awq(rng: random.Random, rows: int, columns: int) -> Tensors:
    groups = columns // _group(rng, columns)
    return {
        "qweight": _tensor(rng, "I32", columns, rows // 8),
        "qzeros": _tensor(rng, "I32", groups, rows // 8),
        "scales": _tensor(rng, _floats(rng), groups, rows),
    }


def _gptq(bits: int) -> Maker:
    def make(rng: random.Random, rows: int, columns: int) -> Tensors:
        each, size = 32 // bits, _group(rng, columns)
        groups = columns // size
        found = {
            "qweight": _tensor(rng, "I32", columns // each, rows),
            "qzeros": _tensor(rng, "I32", groups, rows // each),
            "scales": _tensor(rng, _floats(rng), groups, rows),
        }
        if rng.random() < 0.7:
            order = [place // size for place in range(columns)]
            if rng.random() < 0.2:
                order[rng.randrange(columns)] = rng.choice((0, groups, -1, values.integer(rng)))
            numbers = [number & 0xFFFFFFFF for number in order]
            found["g_idx"] = "I32", [columns], struct.pack(f"<{columns}I", *numbers)
        return found

    return make


def _ct(form: str) -> Json:
    return {"quant_method": "compressed-tensors", "format": form}


_METHODS: dict[str, tuple[Json, Maker]] = {
    "fp8": ({"quant_method": "fp8", "weight_block_size": [128, 128]},
            _fp8("weight_scale_inv", "block")),
    "fp8-rows": ({"quant_method": "fp8"}, _fp8("weight_scale_inv", "row")),
    "ct-fp8": (_ct("float-quantized"), _fp8("weight_scale", "row")),
    "ct-fp8-all": (_ct("naive-quantized"), _fp8("weight_scale", "all")),
    "ct-fp8-groups": (_ct("float-quantized"), _fp8("weight_scale", "group")),
    "ct-int4": (_ct("pack-quantized"), _integers(4)),
    "ct-int8-packed": (_ct("pack-quantized"), _integers(8)),
    "ct-int8": (_ct("int-quantized"), _int8),
    "ct-nvfp4": (_ct("nvfp4-pack-quantized"), _nvfp4("weight_packed", "weight_global_scale")),
    "ct-mxfp4": (_ct("mxfp4-pack-quantized"), _mxfp4),
    "modelopt-nvfp4": ({"quant_method": "modelopt", "quant_algo": "NVFP4"},
                       _nvfp4("weight", "weight_scale_2")),
    "modelopt-fp8": ({"quant_method": "modelopt", "quant_algo": "FP8"},
                     _fp8("weight_scale", "all")),
    "awq": ({"quant_method": "awq", "bits": 4, "version": "gemm"}, _awq),
    "gptq": ({"quant_method": "gptq", "bits": 4}, _gptq(4)),
    "gptq-8": ({"quant_method": "gptq", "bits": 8}, _gptq(8)),
    "gptq-v2-2": ({"quant_method": "gptq", "bits": 2, "checkpoint_format": "gptq_v2"}, _gptq(2)),
}  # fmt: skip
