"""Deterministic small rerankers, as directories and as a file of llama.cpp's converter.

Their weights are drawn. tests/data stores only tokens and scores, which
``tests/goldens/rank_goldens.py`` computes with transformers and sentence-transformers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from scripts.models.make_directory import byte_tokenizer
from scripts.models.make_synthetic import byte_characters
from tests.formats.huggingface.drawn import drawn_tensor
from tests.formats.raw_safetensors import write_safetensors

PAIRS = [
    ("what is a license", "The license applies to any work."),
    ("what is a license", "Foxes jump over <|im_end|> {query} dogs."),
    ("{document}?", "A text\nof two lines, and ümläute"),
]
SPECIALS = ("<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>")
YES, NO = byte_characters().index("y"), byte_characters().index("n")
# As sentence-transformers renders it, and as llama.cpp fills it.
ROLES = (
    '{%- set asked = messages | selectattr("role", "eq", "query") | map(attribute="content") '
    '| first -%}\n<|im_start|>system\nAnswer "y" or "n".<|im_end|>\n<|im_start|>user\n'
    "<Query>: {{ asked }}\n<Document>: "
    '{{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}'
    "<|im_end|>\n<|im_start|>assistant\n"
)
PLACES = (
    '<|im_start|>system\nAnswer "y" or "n".<|im_end|>\n<|im_start|>user\n<Query>: {query}\n'
    "<Document>: {document}<|im_end|>\n<|im_start|>assistant\n"
)
# With a beginning of the answer where it is asked for.
BEGUN = ROLES.replace(
    "<|im_start|>assistant\n",
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>{% endif %}",
)
CHATS = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
_QWEN: dict[str, Any] = {
    "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 96, "vocab_size": 264,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "dtype": "float32",
    "bos_token_id": None, "eos_token_id": 259, "pad_token_id": 257, "tie_word_embeddings": True,
    "attention_bias": False, "use_sliding_window": False,
}  # fmt: skip
_QWEN3 = _QWEN | {"model_type": "qwen3"}
_ONE = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3_classifier": _QWEN3 | {"architectures": ["Qwen3ForSequenceClassification"]} | _ONE,
    "qwen2_classifier": _QWEN
    | {"architectures": ["Qwen2ForSequenceClassification"], "model_type": "qwen2"}
    | _ONE,
    "qwen3_ended": _QWEN3 | {"architectures": ["Qwen3ForSequenceClassification"]} | _ONE,
    "qwen3_roles": _QWEN3 | {"architectures": ["Qwen3ForSequenceClassification"]} | _ONE,
    "qwen3_logits": _QWEN3 | {"architectures": ["Qwen3ForCausalLM"]},
    "qwen3_one_logit": _QWEN3
    | {"architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": False},
}
# Classifiers of single texts; to the second one's texts several labels apply.
LABELS = ("sad", "glad", "other")
_LABELLED = _QWEN3 | {
    "architectures": ["Qwen3ForSequenceClassification"],
    "id2label": {str(i): label for i, label in enumerate(LABELS)},
    "label2id": {label: i for i, label in enumerate(LABELS)},
}
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "qwen3_labels": _LABELLED,
    "qwen3_several": _LABELLED | {"problem_type": "multi_label_classification"},
}
TEMPLATES = {
    "qwen3_classifier": CHATS,
    "qwen3_roles": ROLES,
    "qwen3_logits": ROLES,
    "qwen3_one_logit": BEGUN,
}
TOKENS: dict[str, tuple[int, int | None]] = {
    "qwen3_logits": (YES, NO),
    "qwen3_one_logit": (YES, None),
}
FILE = "qwen3_file"  # by llama.cpp's converter of qwen3_logits, without its chat template


def tokenizer(name: str) -> dict[str, Any]:
    """Return the bytes and Qwen's delimiters; in qwen3_ended a padding token ends each text."""
    made: dict[str, Any] = byte_tokenizer()
    one = made["added_tokens"][0]
    made["added_tokens"] = [one | {"id": 256 + i, "content": t} for i, t in enumerate(SPECIALS)]
    if name == "qwen3_ended":
        end = {"SpecialToken": {"id": SPECIALS[1], "type_id": 0}}
        first, second = ({"Sequence": {"id": part, "type_id": 0}} for part in "AB")
        made["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [first, end],
            "pair": [first, end, second, end],
            "special_tokens": {
                SPECIALS[1]: {"id": SPECIALS[1], "ids": [257], "tokens": [SPECIALS[1]]}
            },
        }
    return made


def weights(name: str) -> dict[str, NDArray[np.float32]]:
    """Return the checkpoint's tensors, drawn from their names."""
    config = {**CONFIGS, **CLASSIFIERS}[name]
    hidden, width, dim = (config[k] for k in ("hidden_size", "intermediate_size", "head_dim"))
    query, keys = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    if config["architectures"][0].endswith("Classification"):
        shapes["score.weight"] = (len(config["id2label"]), hidden)
    elif not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (query, hidden), "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden), "self_attn.o_proj.weight": (hidden, query),
        "mlp.gate_proj.weight": (width, hidden), "mlp.up_proj.weight": (width, hidden),
        "mlp.down_proj.weight": (hidden, width),
    }  # fmt: skip
    if config["model_type"] == "qwen3":
        layer |= {f"self_attn.{part}_norm.weight": (dim,) for part in "qk"}
    else:
        layer |= {f"self_attn.{p}_proj.bias": (query if p == "q" else keys,) for p in "qkv"}
    for index in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{index}.{part}": shape for part, shape in layer.items()}
    return {tensor: drawn_tensor(f"{name} {tensor}", shape) for tensor, shape in shapes.items()}


def write(name: str, folder: Path) -> Path:
    """Write a model's directory."""
    folder.mkdir(parents=True)
    config = {**CONFIGS, **CLASSIFIERS}[name]
    (folder / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(name)), "utf-8")
    names = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": SPECIALS[1],
        "eos_token": SPECIALS[1 if name == "qwen3_ended" else 3],
        "padding_side": "left",
    }
    if name in TEMPLATES:
        names["chat_template"] = TEMPLATES[name]
    (folder / "tokenizer_config.json").write_text(json.dumps(names), "utf-8")
    write_safetensors(folder / "model.safetensors", weights(name))
    if name in TOKENS:
        _write_modules(folder, *TOKENS[name], begun=TEMPLATES[name] == BEGUN)
    return folder


def _write_modules(folder: Path, yes: int, no: int | None, *, begun: bool) -> None:
    kinds = ("base.modules.transformer.Transformer", "cross_encoder.modules.logit_score.LogitScore")
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.{kind}"}
        for i, (path, kind) in enumerate(zip(("", "1_LogitScore"), kinds, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_LogitScore").mkdir()
    tokens = {"true_token_id": yes, "false_token_id": no}
    (folder / "1_LogitScore/config.json").write_text(json.dumps(tokens))
    form = {"method": "forward", "method_output_name": "logits"}
    config: dict[str, Any] = {
        "transformer_task": "text-generation",
        "module_output_name": "causal_logits",
        "modality_config": {"text": form, "message": {**form, "format": "flat"}},
    }
    if begun:
        config["processing_kwargs"] = {"chat_template": {"add_generation_prompt": True}}
    (folder / "sentence_bert_config.json").write_text(json.dumps(config))
    (folder / "config_sentence_transformers.json").write_text('{"model_type": "CrossEncoder"}')


def write_file(path: Path, template: str | None = PLACES) -> Path:
    """Write the GGUF file that llama.cpp's converter makes of qwen3_logits.

    Source: llama.cpp conversion/qwen.py, Qwen3Model.
    """
    config, tensors = CONFIGS["qwen3_logits"], weights("qwen3_logits")
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_pooling_type(gguf.PoolingType.RANK)
    writer.add_classifier_output_labels(["yes", "no"])
    if template is not None:
        writer.add_chat_template([{"name": "rerank", "template": template}])
    # The format knows no empty list of merges, so there is one of letters that no text has.
    texts = [*byte_characters(), *SPECIALS, "QQ", *(f"[PAD{i}]" for i in range(3))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(texts)
    kinds = [gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * 4
    kinds += [gguf.TokenType.NORMAL] + [gguf.TokenType.UNUSED] * 3
    writer.add_token_types(kinds)
    writer.add_token_merges(["Q Q"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config["num_hidden_layers"])
    embedding = tensors["model.embed_tokens.weight"]
    writer.add_tensor("cls.output.weight", np.stack([embedding[YES], embedding[NO]]))
    for name, values in tensors.items():
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
