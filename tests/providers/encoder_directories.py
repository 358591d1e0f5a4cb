"""Directories of encoders, with the files of transformers and sentence-transformers.

The weights are those of the reference data's GGUF files, under the names of transformers.
"""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

import trinity

Arrays = dict[str, NDArray[np.float32]]
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
NAMES = (
    ("token_embd_norm", "embeddings.LayerNorm"), ("token_embd", "embeddings.word_embeddings"),
    ("position_embd", "embeddings.position_embeddings"),
    ("token_types", "embeddings.token_type_embeddings"), ("cls.output", "classifier"),
    ("attn_output_norm", "attention.output.LayerNorm"), ("attn_output", "attention.output.dense"),
    ("attn_q", "attention.self.query"), ("attn_k", "attention.self.key"),
    ("attn_v", "attention.self.value"), ("ffn_up", "intermediate.dense"),
    ("ffn_down", "output.dense"), ("layer_output_norm", "output.LayerNorm"),
    ("blk.", "encoder.layer."),
)  # fmt: skip
QWEN3 = (
    ("token_embd", "embed_tokens"), ("output_norm", "norm"), ("blk.", "layers."),
    ("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm"),
    ("attn_q_norm", "self_attn.q_norm"), ("attn_k_norm", "self_attn.k_norm"),
    ("attn_q", "self_attn.q_proj"), ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"), ("attn_output", "self_attn.o_proj"),
    ("ffn_gate", "mlp.gate_proj"), ("ffn_up", "mlp.up_proj"), ("ffn_down", "mlp.down_proj"),
)  # fmt: skip

GEMMA = (
    ("attn_norm", "input_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
    *(pair for pair in QWEN3 if pair[0] not in ("attn_norm", "ffn_norm")),
)
# As the class that came with nomic-embed saved them, and as transformers names them.
NOMIC = (
    ("token_embd_norm", "emb_ln"), ("token_embd", "embeddings.word_embeddings"),
    ("token_types", "embeddings.token_type_embeddings"), ("blk.", "encoder.layers."),
    ("attn_qkv", "attn.Wqkv"), ("attn_output_norm", "norm1"), ("attn_output", "attn.out_proj"),
    ("ffn_up", "mlp.fc11"), ("ffn_gate", "mlp.fc12"), ("ffn_down", "mlp.fc2"),
    ("layer_output_norm", "norm2"),
)  # fmt: skip
NEWER_NOMIC = (
    ("emb_ln", "embeddings.LayerNorm"), ("encoder.layers.", "layers."),
    ("attn.out_proj", "self_attn.o_proj"), ("fc11", "up_proj"), ("fc12", "gate_proj"),
    ("fc2", "down_proj"), ("norm1", "post_attention_layernorm"), ("norm2", "post_mlp_layernorm"),
)  # fmt: skip
FAMILIES = {"qwen3": QWEN3, "gemma": GEMMA, "nomic": NOMIC}


def weights(path: Path, names: tuple[tuple[str, str], ...] = NAMES) -> Arrays:
    """Return a GGUF file's tensors under transformers' names."""
    found = {}
    with trinity.open_weights(path) as provider:
        for name in provider.tensor_names():
            tensor = provider.tensor(name)
            own = name
            for ours, theirs in names:
                if f"{ours}." in own or ours.endswith("."):
                    own = own.replace(ours, theirs)
            found[own] = tensor.dequantize().reshape(tensor.shape).copy()
    return found


def as_xlm_roberta(arrays: Arrays, folder: Path, target: Path) -> Arrays:
    """Two rows before positions, another classifier, and a tokenizer.json as transformers' own."""
    named = "embeddings.position_embeddings.weight"
    arrays[named] = np.concatenate([np.zeros((2, 64), np.float32), arrays[named]])
    for part in ("weight", "bias"):
        if f"classifier.{part}" in arrays:
            arrays[f"classifier.out_proj.{part}"] = arrays.pop(f"classifier.{part}")
            arrays[f"classifier.dense.{part}"] = arrays.pop(f"cls.{part}")
    with trinity.open_weights(folder / "model.gguf") as provider:
        found = {k.removeprefix("tokenizer.ggml."): v for k, v in provider.metadata.items()}
    tokens: list[str] = list(found["tokens"])  # type: ignore[call-overload]
    scores = np.asarray(found["scores"]).tolist()
    charsmap = base64.b64encode(np.asarray(found["precompiled_charsmap"]).astype("u1").tobytes())
    special = [i for i, text in enumerate(tokens) if text in SPECIAL]
    ends = {"<s>": 0, "</s>": 2}
    (target / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True} for i in special
        ],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": charsmap.decode()},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always",
             "split": True},
        ]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {
                text: {"id": text, "ids": [i], "tokens": [text]} for text, i in ends.items()
            },
        },
        "decoder": None,
        "model": {"type": "Unigram", "unk_id": 3, "byte_fallback": False,
                  "vocab": [list(pair) for pair in zip(tokens, scores, strict=True)]},
    }))  # fmt: skip
    return arrays


def encoder_directory(
    encoders: Path, family: str, parent: Path, *, prefix: str = "", more: Arrays | None = None,
    **config: Any,
) -> Path:  # fmt: skip
    """The directory of a family of the reference data's folder ``encoders``, made in ``parent``.

    ``prefix``: what names of tensors begin with; ``more``: further tensors; ``config``: values of
    config.json that are others.
    """
    folder, target = encoders / family, parent / family
    shutil.copytree(folder / "hf", target, copy_function=shutil.copyfile)
    names = FAMILIES.get(family.partition("_")[0], NAMES)
    arrays = weights(folder / "model.gguf", names)
    if names is GEMMA:  # which GGUF has with 1 added; dense layers have files of their own
        arrays = {
            name: array - (1 if "norm" in name else 0)
            for name, array in arrays.items()
            if not name.startswith("dense_")
        }
    if family.startswith("xlm"):
        arrays = as_xlm_roberta(arrays, folder, target)
    named = {k if k.startswith("classifier") else prefix + k: v for k, v in arrays.items()}
    save_file({**named, **(more or {})}, target / "model.safetensors")
    values = json.loads((folder / "hf/config.json").read_text())
    (target / "config.json").write_text(json.dumps({**values, **config}))
    return target
