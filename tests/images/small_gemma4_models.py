"""Small vision models of Gemma 4: their configurations, names and shapes of their tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, normalizers

SPECIAL = (
    "<bos>", "<eos>", "<|turn>", "<turn|>", "<|image|>", "<|image>", "<image|>", "<|video|>",
    "<|audio|>", "<|audio>", "<audio|>",
)  # fmt: skip
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|turn>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] | trim }}{% else %}"
    "{% for item in message['content'] %}{% if item['type'] == 'text' %}{{ item['text'] | trim }}"
    "{% elif item['type'] == 'image' %}{{ '\n\n<|image|>\n\n' }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<turn|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|turn>model\n' }}{% endif %}"
)
# The first is like 31B; the second like E4B, with an embedding for each layer and limits; the third
# like 12B, without a tower.
NAMES = ("gemma4", "gemma4_e", "gemma4_12b")
LIMITS = ("input_min", "input_max", "output_min", "output_max")
_LAYERS = ("sliding_attention", "full_attention") * 2


def config(name: str) -> dict[str, Any]:
    """Return a model's config.json."""
    ids = {token: 256 + number for number, token in enumerate(SPECIAL)}
    is_e, vocab_size = name == "gemma4_e", 256 + len(SPECIAL)
    text = {
        "model_type": "gemma4_text", "hidden_size": 48, "intermediate_size": 64,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 16,
        "num_hidden_layers": 4, "vocab_size": vocab_size, "max_position_embeddings": 2048,
        "sliding_window": 24, "layer_types": list(_LAYERS), "pad_token_id": 0,
        "vocab_size_per_layer_input": vocab_size, "tie_word_embeddings": True,
        "hidden_size_per_layer_input": 8 if is_e else 0, "num_kv_shared_layers": 0,
        "use_bidirectional_attention": None if is_e else "vision",
    }  # fmt: skip
    if name == "gemma4_12b":
        return _config_of_12b(text, ids)
    vision = {
        "model_type": "gemma4_vision", "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8,
        "patch_size": 4, "pooling_kernel_size": 2, "position_embedding_size": 150,
        "use_clipped_linears": is_e, "standardize": not is_e,
    }  # fmt: skip
    return {
        "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4",
        "text_config": text, "vision_config": vision, "audio_config": None,
        "tie_word_embeddings": True, "dtype": "float32", "image_token_id": ids["<|image|>"],
        "video_token_id": ids["<|video|>"], "audio_token_id": ids["<|audio|>"],
        "boi_token_id": ids["<|image>"], "eoi_token_id": ids["<image|>"],
        "boa_token_id": ids["<|audio>"], "eoa_token_index": ids["<audio|>"],
    }  # fmt: skip


def _config_of_12b(text: dict[str, Any], ids: dict[str, int]) -> dict[str, Any]:
    unread = "vocab_size_per_layer_input", "hidden_size_per_layer_input"
    text = {key: value for key, value in text.items() if key not in unread}
    vision = {
        "model_type": "gemma4_unified_vision", "patch_size": 4, "pooling_kernel_size": 2,
        "mm_embed_dim": 40, "mm_posemb_size": 75, "output_proj_dims": 40,
    }  # fmt: skip
    return {
        "architectures": ["Gemma4UnifiedForConditionalGeneration"], "model_type": "gemma4_unified",
        "text_config": {**text, "model_type": "gemma4_unified_text"}, "vision_config": vision,
        "audio_config": None, "tie_word_embeddings": True, "dtype": "float32",
        "image_token_id": ids["<|image|>"], "video_token_id": ids["<|video|>"],
        "audio_token_id": ids["<|audio|>"], "boi_token_id": ids["<|image>"],
        "eoi_token_id": ids["<image|>"], "boa_token_id": ids["<|audio>"],
        "eoa_token_index": ids["<audio|>"],
    }  # fmt: skip


def processor(name: str) -> dict[str, Any]:
    """Return a model's preprocessor_config.json: at most 70 rows for an image."""
    return {
        "image_processor_type": "Gemma4ImageProcessor", "patch_size": 4, "pooling_kernel_size": 2,
        "max_soft_tokens": 70, "resample": 3, "do_normalize": False, "image_mean": [0.0] * 3,
        "image_std": [1.0] * 3,
    }  # fmt: skip


def shapes(name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of all tensors."""
    values = config(name)
    text, vision = values["text_config"], values["vision_config"]
    if name == "gemma4_12b":
        yield from _embedder(vision)
    else:
        yield from _tower(vision)
        yield "model.embed_vision.embedding_projection.weight", (48, vision["hidden_size"])
    width, inner, vocab_size = text["hidden_size"], text["intermediate_size"], text["vocab_size"]
    heads, keys, dim = text["num_attention_heads"], text["num_key_value_heads"], text["head_dim"]
    model, own = "model.language_model.", text.get("hidden_size_per_layer_input", 0)
    yield f"{model}embed_tokens.weight", (vocab_size, width)
    yield f"{model}norm.weight", (width,)
    if own:
        every = own * len(_LAYERS)
        yield f"{model}embed_tokens_per_layer.weight", (vocab_size, every)
        yield f"{model}per_layer_model_projection.weight", (every, width)
        yield f"{model}per_layer_projection_norm.weight", (own,)
    for layer in range(len(_LAYERS)):
        prefix = f"{model}layers.{layer}."
        for norm in _NORMS:
            yield f"{prefix}{norm}.weight", (width,)
        yield f"{prefix}layer_scalar", (1,)
        if own:
            yield f"{prefix}per_layer_input_gate.weight", (own, width)
            yield f"{prefix}per_layer_projection.weight", (width, own)
            yield f"{prefix}post_per_layer_input_norm.weight", (width,)
        for norm in ("q", "k"):
            yield f"{prefix}self_attn.{norm}_norm.weight", (dim,)
        yield f"{prefix}self_attn.q_proj.weight", (heads * dim, width)
        yield f"{prefix}self_attn.k_proj.weight", (keys * dim, width)
        yield f"{prefix}self_attn.v_proj.weight", (keys * dim, width)
        yield f"{prefix}self_attn.o_proj.weight", (width, heads * dim)
        for part in ("gate", "up"):
            yield f"{prefix}mlp.{part}_proj.weight", (inner, width)
        yield f"{prefix}mlp.down_proj.weight", (width, inner)


_NORMS = (
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)  # fmt: skip


def _tower(vision: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    d, inner, tower = vision["hidden_size"], vision["intermediate_size"], "model.vision_tower."
    table = 2, vision["position_embedding_size"], d
    yield f"{tower}patch_embedder.input_proj.weight", (d, 3 * vision["patch_size"] ** 2)
    yield f"{tower}patch_embedder.position_embedding_table", table
    if vision["standardize"]:
        yield f"{tower}std_bias", (d,)
        yield f"{tower}std_scale", (d,)
    for layer in range(vision["num_hidden_layers"]):
        prefix = f"{tower}encoder.layers.{layer}."
        for norm in _NORMS:
            yield f"{prefix}{norm}.weight", (d,)
        for norm in ("q", "k"):
            yield f"{prefix}self_attn.{norm}_norm.weight", (vision["head_dim"],)
        for module, shape in {
            **{f"self_attn.{which}_proj": (d, d) for which in "qkvo"},
            "mlp.gate_proj": (inner, d), "mlp.up_proj": (inner, d), "mlp.down_proj": (d, inner),
        }.items():  # fmt: skip
            yield f"{prefix}{module}.linear.weight", shape
            for limit in LIMITS if vision["use_clipped_linears"] else ():
                yield f"{prefix}{module}.{limit}", ()


def _embedder(vision: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    d, patch = vision["mm_embed_dim"], 3 * 8**2
    for norm, size in (("patch_ln1", patch), ("patch_ln2", d), ("pos_norm", d)):
        yield f"model.embed_vision.{norm}.weight", (size,)
        yield f"model.embed_vision.{norm}.bias", (size,)
    yield "model.embed_vision.patch_dense.weight", (d, patch)
    yield "model.embed_vision.patch_dense.bias", (d,)
    yield "model.embed_vision.pos_embedding", (vision["mm_posemb_size"], 2, d)
    yield "model.embed_vision.multimodal_embedder.embedding_projection.weight", (48, d)


def adjusted(tensors: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """Return drawn tensors with limits that some values exceed, and scales near 1.

    Queries and keys have the same limits, and values others.
    """
    limits = {"input_min": -0.8, "input_max": 0.9, "output_min": -0.25, "output_max": 0.5}
    found = dict(tensors)
    for name, values in tensors.items():
        kind = name.rpartition(".")[2]
        if kind in limits:
            own = limits[kind] * (1.25 if "v_proj" in name else 1)
            found[name] = np.array(own, np.float32)
        elif kind in ("std_scale", "layer_scalar"):
            found[name] = values + np.float32(1)
    return found


def tokenizer() -> Tokenizer:
    """Return a tokenizer with one token for each byte, in the form of Gemma 4's tokenizer."""
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    made.normalizer = normalizers.Replace(" ", "\u2581")
    made.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return made
