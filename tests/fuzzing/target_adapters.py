"""Target: LoRA adapters of every format, read for a small model."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

from tests.fuzzing import values, weights
from tests.fuzzing.case import Case
from tests.fuzzing.gguf_draft import F32, STRING, Draft, Tensor, Value, any_value, injure
from tests.fuzzing.target_huggingface import JSON_VALUES, Tensors, safetensors_bytes
from trinity.config import ExpertConfig, ModelConfig
from trinity.formats.adapters import Base, open_adapter
from trinity.models import families_of

_HIDDEN, _WIDE, _TOKENS, _EXPERTS = 16, 24, 40, 3
_LINEARS = {
    "attn_q": ("self_attn.q_proj", _HIDDEN, _HIDDEN),
    "attn_k": ("self_attn.k_proj", 8, _HIDDEN),
    "attn_v": ("self_attn.v_proj", 8, _HIDDEN),
    "ffn_gate": ("mlp.gate_proj", _WIDE, _HIDDEN),
    "ffn_down": ("mlp.down_proj", _HIDDEN, _WIDE),
}
_TOGETHER = (
    ("self_attn.qkv_proj", _HIDDEN + 16, _HIDDEN),
    ("mlp.gate_up_proj", 2 * _WIDE, _HIDDEN),
    ("mlp.up_proj", _WIDE, _HIDDEN),
)
_KEYS = (
    "peft_type", "lora_alpha", "use_rslora", "alpha_pattern", "bias", "modules_to_save",
    "target_parameters", "init_lora_weights", "ensure_weight_tying", "use_dora", "r",
    "fine_tune_type", "lora_parameters", "num_layers",
)  # fmt: skip


def _base(rng: random.Random) -> Base:
    experts = ExpertConfig(_EXPERTS, 2, _WIDE) if rng.random() < 0.3 else None
    config = ModelConfig(
        "llama", _HIDDEN, _WIDE, 2, 2, 1, 8, _TOKENS, 64, 1e-5, experts=experts,
        tie_word_embeddings=rng.random() < 0.5,
    )  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(
        ("token_embd.weight", "output.weight"), (_TOKENS, _HIDDEN)
    )
    for layer in range(2):
        for name, (_, out, width) in _LINEARS.items():
            shapes[f"blk.{layer}.{name}.weight"] = out, width
        for name, out, width in (
            ("gate", _WIDE, _HIDDEN),
            ("up", _WIDE, _HIDDEN),
            ("down", _HIDDEN, _WIDE),
        ):
            shapes[f"blk.{layer}.ffn_{name}_exps.weight"] = _EXPERTS, out, width
    if rng.random() < 0.3:
        _fuse(shapes, "attn_qkv", ("attn_q", "attn_k", "attn_v"))
    if rng.random() < 0.3:
        _fuse(shapes, "ffn_gate_up_exps", ("ffn_gate_exps", "ffn_up_exps"))
    embeddings = frozenset({"token_embd.weight"})
    return Base(
        "base.gguf",
        config,
        shapes,
        embeddings,
        rng.random() < 0.7,
        families_of(config.architecture),
    )


def _fuse(shapes: dict[str, tuple[int, ...]], whole: str, parts: tuple[str, ...]) -> None:
    """One tensor for the rows of several, in each layer."""
    for layer in range(2):
        own = [shapes.pop(f"blk.{layer}.{part}.weight") for part in parts]
        rows = sum(shape[-2] for shape in own)
        shapes[f"blk.{layer}.{whole}.weight"] = (*own[0][:-2], rows, own[0][-1])


def adapter(case: Case) -> None:
    """One adapter: names, shapes, keys and bytes right or wrong."""
    rng, base = case.rng, _base(case.rng)
    kind = rng.choice(("peft", "mlx", "gguf"))
    if kind == "gguf":
        place = case.write("adapter.gguf", _gguf(rng))
    else:
        name = "adapter_model.safetensors" if kind == "peft" else "adapters.safetensors"
        tensors = _peft(rng) if kind == "peft" else _mlx(rng)
        case.write(name, safetensors_bytes(rng, tensors, rng.choice((0, 0, 0, 1))))
        case.write("adapter_config.json", json.dumps(_config(rng, kind)).encode())
        place = case.folder
    case.attempt("read", open_adapter, place, base)


def _config(rng: random.Random, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = {"fine_tune_type": "lora", "lora_parameters": {"scale": 2.0}}
    if kind == "peft":
        found = {"peft_type": "LORA", "lora_alpha": 8, "r": 4, "alpha_pattern": {}}
    for _ in range(rng.choice((0, 0, 1, 2))):
        found[rng.choice(_KEYS)] = rng.choice(JSON_VALUES)
    if rng.random() < 0.1:
        pattern = rng.choice(("v_proj", ".*gate", "layers.0.*", "(a|b)*", "(x+x+)+y", "("))
        found["alpha_pattern"] = {pattern: rng.choice((1, 2.5, "x", 1e300))}
    return found


def _tensor(rng: random.Random, shape: list[int]) -> tuple[str, list[int], bytes]:
    dtype, size = rng.choice((("F32", 4), ("F32", 4), ("F16", 2), ("BF16", 2)))
    if rng.random() < 0.02:
        dtype, size = "I32", 4
    if rng.random() < 0.02:
        shape = [rng.choice((0, 1, 2, 5, 8, 16, 24, 40)) for _ in range(rng.randrange(4))]
    count = 1
    for one in shape:
        count *= one
    data = weights.norm(count, rng) if dtype == "F32" else bytes(size * count)
    return dtype, shape, data


def _modules(rng: random.Random) -> list[tuple[str, int, int]]:
    found = [
        (f"model.layers.{rng.choice((0, 0, 1, 2))}.{module}", out, width)
        for module, out, width in rng.sample([*_LINEARS.values(), *_TOGETHER], k=2)
    ]
    if rng.random() < 0.2:
        found += [
            (f"model.layers.0.block_sparse_moe.experts.{expert}.w1", _WIDE, _HIDDEN)
            for expert in range(rng.choice((1, _EXPERTS)))
        ]
    if rng.random() < 0.2:
        found.append(("model.layers.0.mlp.experts", _HIDDEN, _WIDE))
    return [*found, ("lm_head", _TOKENS, _HIDDEN)] if rng.random() < 0.3 else found


def _peft(rng: random.Random) -> Tensors:
    found: Tensors = {}
    for module, out, width in _modules(rng):
        rank = rng.choice((1, 3, 4, 6))
        name = f"base_model.model.{module}"
        found[f"{name}.lora_A.weight"] = _tensor(rng, [rank, width])
        if rng.random() < 0.97:
            found[f"{name}.lora_B.weight"] = _tensor(rng, [out, rank])
    if rng.random() < 0.1:
        end = rng.choice(
            ("bias", "weight", "lora_B.bias", "lora_magnitude_vector", values.text(rng))
        )
        found[f"base_model.model.lm_head.{end}"] = _tensor(rng, [4])
    return found


def _mlx(rng: random.Random) -> Tensors:
    found: Tensors = {}
    for module, out, width in _modules(rng):
        rank = rng.choice((1, 3, 4))
        found[f"{module}.lora_a"] = _tensor(rng, [width, rank])
        if rng.random() < 0.97:
            found[f"{module}.lora_b"] = _tensor(rng, [rank, out])
    return found


def _gguf(rng: random.Random) -> bytes:
    draft = Draft()
    draft.keys = [
        ("general.architecture", Value(STRING, "llama")),
        ("general.type", Value(STRING, "adapter")),
        ("adapter.type", Value(STRING, "lora")),
        ("adapter.lora.alpha", Value(F32, 8.0)),
    ]
    for name, (_, out, width) in _LINEARS.items():
        if rng.random() < 0.5:
            continue
        rank, whole = rng.choice((1, 4)), f"blk.{rng.choice((0, 0, 0, 3))}.{name}.weight"
        for end, dims in (("a", [width, rank]), ("b", [rank, out])):
            if rng.random() < 0.03:
                dims = dims[::-1]
            data = weights.norm(dims[0] * dims[1], rng)
            if rng.random() < 0.03:
                data = struct.pack("<f", values.real(rng) % 1e38) * (len(data) // 4)
            draft.tensors.append(Tensor(f"{whole}.lora_{end}", dims, 0, data))
    if rng.random() < 0.3:
        at = rng.randrange(len(draft.keys))
        draft.keys[at] = draft.keys[at][0], any_value(rng)
    out_bytes, marks, bounds = draft.encode()
    if rng.random() < 0.3:
        injure(rng, out_bytes, marks, bounds)
    return bytes(out_bytes)
