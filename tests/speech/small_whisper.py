"""Directories of small random Whisper models in transformers' format."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tests.formats.raw_safetensors import bfloat16, write_safetensors

CONFIG: dict[str, object] = {
    "model_type": "whisper", "d_model": 48, "vocab_size": 71, "num_mel_bins": 10,
    "encoder_layers": 2, "encoder_attention_heads": 3, "encoder_ffn_dim": 70,
    "max_source_positions": 21, "decoder_layers": 3, "decoder_attention_heads": 4,
    "decoder_ffn_dim": 56, "max_target_positions": 140, "decoder_start_token_id": 50,
    "eos_token_id": 49,
}  # fmt: skip


def shapes(config: dict[str, object]) -> dict[str, tuple[int, ...]]:
    """Every tensor that a model of such a configuration has."""
    sizes = {key: value for key, value in config.items() if isinstance(value, int)}
    d = sizes["d_model"]
    found: dict[str, tuple[int, ...]] = {
        "encoder.conv1.weight": (d, sizes["num_mel_bins"], 3),
        "encoder.conv1.bias": (d,),
        "encoder.conv2.weight": (d, d, 3),
        "encoder.conv2.bias": (d,),
        "encoder.embed_positions.weight": (sizes["max_source_positions"], d),
        "decoder.embed_positions.weight": (sizes["max_target_positions"], d),
        "decoder.embed_tokens.weight": (sizes["vocab_size"], d),
    }
    for side in ("encoder", "decoder"):
        norms, attentions = [f"{side}.layer_norm"], []
        inner = sizes[f"{side}_ffn_dim"]
        for layer in range(sizes[f"{side}_layers"]):
            p = f"{side}.layers.{layer}."
            kinds = ["self_attn", "encoder_attn"][: 1 + (side == "decoder")]
            attentions += [p + kind for kind in kinds]
            norms += [f"{p}{kind}_layer_norm" for kind in kinds] + [f"{p}final_layer_norm"]
            found |= {f"{p}fc1.weight": (inner, d), f"{p}fc1.bias": (inner,)}
            found |= {f"{p}fc2.weight": (d, inner), f"{p}fc2.bias": (d,)}
        for name in norms:
            found |= {f"{name}.weight": (d,), f"{name}.bias": (d,)}
        for name in attentions:
            for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                found[f"{name}.{part}.weight"] = (d, d)
                if part != "k_proj":
                    found[f"{name}.{part}.bias"] = (d,)
    return found


def write_model(folder: Path, dtype: str, **changes: object) -> dict[str, NDArray[np.float64]]:
    """Write config.json and model.safetensors; the tensors as float64."""
    config = {**CONFIG, **changes}
    draws = np.random.default_rng(7)
    values, stored = {}, {}
    for name, shape in shapes(config).items():
        raw = draws.normal(scale=0.3, size=shape).astype(np.float32)
        if "norm.weight" in name:
            raw += 1
        kept: NDArray[np.generic] = raw.astype(np.float16) if dtype == "F16" else raw
        if dtype == "BF16":
            kept = bfloat16(raw)
            raw = (kept.astype(np.uint32) << 16).view(np.float32)
        stored[f"model.{name}"] = kept
        values[name] = (kept if dtype == "F16" else raw).astype(np.float64)
    write_safetensors(folder / "model.safetensors", stored)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return values


def write_short_model(folder: Path, source: Path, positions: int = 96) -> None:
    """Copy a directory with so few positions of the decoder: random weights seldom end a text."""
    folder.mkdir()
    for path in source.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    tensors = load_file(folder / "model.safetensors")
    name = "model.decoder.embed_positions.weight"
    tensors[name] = tensors[name][:positions]
    write_safetensors(folder / "model.safetensors", tensors)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["max_target_positions"] = positions
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
