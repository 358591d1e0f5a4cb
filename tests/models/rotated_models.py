"""A small qwen35 model with rotated ternary weights, and the same model without rotation.

The weights of the second one are computed from those of the first by the definition of the
transform: a row w of a weight that is stored as v is w = s * (H v).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.models.family_models import vocab_size, vocabulary
from trinity.config import SSMConfig
from trinity.formats.configuration import config_from_metadata
from trinity.formats.gguf_writer import GGUFWriter
from trinity.models import ARCHITECTURES
from trinity.models.decoder import Decoder
from trinity_kernels.quants import dequantize, quantize

HIDDEN, FFN, INNER, BLOCK = 128, 384, 256, 128
SSM = SSMConfig(4, INNER, 32, 2, 8)
METADATA: dict[str, object] = {
    "general.architecture": "qwen35",
    "qwen35.embedding_length": HIDDEN, "qwen35.feed_forward_length": FFN,
    "qwen35.block_count": 4, "qwen35.attention.head_count": 4, "qwen35.attention.head_count_kv": 2,
    "qwen35.attention.key_length": 64, "qwen35.attention.value_length": 64,
    "qwen35.attention.layer_norm_rms_epsilon": 1e-6, "qwen35.context_length": 512,
    "qwen35.rope.dimension_count": 16, "qwen35.rope.freq_base": 1e7,
    "qwen35.rope.dimension_sections": np.array([3, 3, 2, 0], np.int32),
    "qwen35.full_attention_interval": 4,
    "qwen35.ssm.conv_kernel": SSM.conv_kernel, "qwen35.ssm.inner_size": SSM.inner_size,
    "qwen35.ssm.state_size": SSM.state_size, "qwen35.ssm.group_count": SSM.num_groups,
    "qwen35.ssm.time_step_rank": SSM.num_heads,
}  # fmt: skip
# Weights of a layer that published files rotate.
ROTATED = (
    "attn_q", "attn_k", "attn_v", "attn_output", "attn_qkv", "attn_gate", "ssm_out", "ffn_gate",
    "ffn_up", "ffn_down",
)  # fmt: skip
PROMPT = [(11 * i * i + 7 * i + 3) % 250 for i in range(21)]
Tensors = dict[str, NDArray[np.float32]]


def keys(sign_mode: str = "explicit", **changes: object) -> dict[str, object]:
    """The keys of the rotation; ``changes`` with the value None leave a key out."""
    found: dict[str, object] = {
        "version": np.uint32(1), "block_size": np.uint32(BLOCK),
        "transform": "normalized-sylvester-walsh-hadamard", "axis": "input-last-dimension",
        "sign_mode": sign_mode, "gdn_v_grouped": True,
        "weight_names": [name for name in shapes() if _is_rotated(name)],
        "inverse_weight_names": ["token_embd.weight"],
    }  # fmt: skip
    if sign_mode == "explicit":
        signs = signs_of(sign_mode)
        found["sign_widths"] = np.array(list(signs), np.int32)
        found["sign_values"] = np.concatenate(list(signs.values())).astype(np.int32)
    found |= changes
    return {f"prism.hadamard.{key}": value for key, value in found.items() if value is not None}


def signs_of(sign_mode: str) -> dict[int, NDArray[np.float64]]:
    """The signs of each width."""
    rng = np.random.default_rng(7)
    drawn = {width: rng.choice([-1.0, 1.0], width) for width in (HIDDEN, INNER, FFN)}
    return drawn if sign_mode == "explicit" else {k: np.ones(k) for k in drawn}


def shapes() -> dict[str, tuple[int, ...]]:
    """The tensors of the model."""
    config = config_from_metadata(
        METADATA, {"output.weight": ()}, source="", num_tokens=vocab_size()
    )
    return Decoder(ARCHITECTURES["qwen35"], config, ()).tensors()


def _is_rotated(name: str) -> bool:
    return name == "output.weight" or name.removesuffix(".weight").rpartition(".")[2] in ROTATED


def stored(type_name: str) -> tuple[Tensors, dict[str, NDArray[np.uint8]]]:
    """The values of all stored tensors, and the bytes of those that have the type."""
    rng = np.random.default_rng(3)
    values, blocks = {}, {}
    for name, shape in shapes().items():
        x = rng.standard_normal(shape).astype(np.float32)
        if name.endswith("ssm_a"):
            x = -np.abs(x)
        elif "norm" in name:
            x = 1 + x / 5
        elif _is_rotated(name) or name == "token_embd.weight":
            scales = rng.uniform(0.5, 1.5, (*shape[:-1], shape[-1] // 128, 1)) * shape[-1] ** -0.5
            if name == "token_embd.weight":
                scales = scales * 8
            codes = rng.integers(-1, 2, (*shape[:-1], shape[-1] // 128, 128))
            x = (codes * scales.astype(np.float16)).astype(np.float32).reshape(shape)
            blocks[name] = quantize(type_name, x)
            x = dequantize(type_name, blocks[name], shape)
        else:
            x = x / 8
        values[name] = x
    return values, blocks


def _transformed(rows: NDArray[Any], block: int) -> NDArray[np.float64]:
    """H of each row in blocks, by the definition of the Sylvester matrix."""
    matrix = np.ones((1, 1))
    while len(matrix) < block:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    parts = rows.astype(np.float64).reshape(len(rows), -1, block)
    return (parts @ matrix / np.sqrt(block)).reshape(rows.shape)


def without_rotation(values: Tensors, sign_mode: str) -> Tensors:
    """The weights of the same model without rotation; the heads of ``ssm_out`` are in turns."""
    signs, found = signs_of(sign_mode), dict(values)
    for name, value in values.items():
        if not _is_rotated(name) and name != "token_embd.weight":
            continue
        plain = signs[value.shape[1]] * _transformed(value, BLOCK)
        if name.endswith("ssm_out.weight"):
            shared = SSM.num_heads // SSM.num_groups
            heads = plain.reshape(len(plain), SSM.num_groups, shared, SSM.head_dim)
            plain = heads.swapaxes(1, 2).reshape(plain.shape)
        found[name] = plain.astype(np.float32)
    return found


def write(
    path: Path, metadata: dict[str, object], values: Tensors, type_name: str = "F32",
    blocks: dict[str, NDArray[np.uint8]] | None = None,
) -> Path:  # fmt: skip
    """Write a file; tensors in ``blocks`` have the type, the others are float32."""
    with GGUFWriter(path) as writer:
        for key, value in (METADATA | metadata | vocabulary()).items():
            writer.add(key, value)
        for name, value in values.items():
            if blocks and name in blocks:
                writer.add_tensor(name, value.shape, type_name, blocks[name])
            else:
                writer.add_tensor(name, value.shape, "F32", np.ascontiguousarray(value))
    return path
