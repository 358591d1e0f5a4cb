"""Random small models with an MTP layer, which proposes tokens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.formats.huggingface import routed_models
from tests.formats.raw_safetensors import write_safetensors

PROMPT = [(7 * i * i + 3 * i + 5) % 256 for i in range(45)]
LENGTHS = (1, 2, 16, 17, 33, 45)  # of the prompts whose drafts are known
TOKENS = 4  # of each draft
DRAWN = ("glm4_moe", "deepseek_v3")  # as a whole; the others' other layers are those of shared data
MODELS = ("qwen3_5", "deepseek_v2", *DRAWN)
Tensors = dict[str, NDArray[np.float32]]


def weights(config: dict[str, int], tensors: Tensors) -> Tensors:
    """The tensors of the layer, by their names in a checkpoint that has these ``tensors``."""
    gated = "layer_types" in config
    shapes = _gated(config) if gated else _behind_the_last(config, tensors)
    random = np.random.default_rng(17)
    return {
        name: (random.standard_normal(shape) * (2 / shape[-1]) ** 0.5).astype(np.float32)
        for name, shape in shapes.items()
    }


def _behind_the_last(config: dict[str, int], tensors: Tensors) -> dict[str, tuple[int, ...]]:
    """Behind the last layer another one like it."""
    hidden, count = config["hidden_size"], config["num_hidden_layers"]
    last, layer = f"model.layers.{count - 1}.", f"model.layers.{count}."
    return {
        f"{layer}eh_proj.weight": (hidden, 2 * hidden),
        **{f"{layer}{n}.weight": (hidden,) for n in ("enorm", "hnorm", "shared_head.norm")},
        **{n.replace(last, layer): t.shape for n, t in tensors.items() if n.startswith(last)},
    }


def _gated(config: dict[str, int]) -> dict[str, tuple[int, ...]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    dim = config["head_dim"]
    queries, keys = dim * config["num_attention_heads"], dim * config["num_key_value_heads"]
    layer = "mtp.layers.0."
    return {
        "mtp.fc.weight": (hidden, 2 * hidden),
        f"{layer}self_attn.q_proj.weight": (2 * queries, hidden),
        f"{layer}self_attn.k_proj.weight": (keys, hidden),
        f"{layer}self_attn.v_proj.weight": (keys, hidden),
        f"{layer}self_attn.o_proj.weight": (hidden, queries),
        f"{layer}mlp.gate_proj.weight": (inner, hidden),
        f"{layer}mlp.up_proj.weight": (inner, hidden),
        f"{layer}mlp.down_proj.weight": (hidden, inner),
        **{f"mtp.{n}.weight": (hidden,) for n in (
            "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "layers.0.input_layernorm",
            "layers.0.post_attention_layernorm",
        )},
        f"{layer}self_attn.q_norm.weight": (dim,),
        f"{layer}self_attn.k_norm.weight": (dim,),
    }  # fmt: skip


def base_of(name: str, data: Path, temporary: Path) -> Path:
    """The directory of a model without the layer, of those in ``data`` or else written anew."""
    if name in DRAWN:
        return routed_models.write(name, temporary / name)
    return data / name / "hf"


def write(base: Path, folder: Path, without: str = "") -> Path:
    """Copy the float32 checkpoint of ``base`` to ``folder``, with the layer, less one tensor."""
    shutil.copytree(base, folder, copy_function=shutil.copyfile)
    folder.chmod(0o755)
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    tensors = {
        name: np.frombuffer(raw, "<f4", (end - first) // 4, start + first).reshape(info["shape"])
        for name, info in header.items()
        if name != "__metadata__"
        for first, end in [info["data_offsets"]]
    }
    config = json.loads((folder / "config.json").read_text())
    tensors |= weights(config, tensors)
    (folder / "config.json").write_text(json.dumps({**config, "num_nextn_predict_layers": 1}))
    tensors.pop(without, None)
    write_safetensors(path, tensors)
    return folder
