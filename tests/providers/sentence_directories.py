"""Directories of sentence-transformers, each with settings that change embeddings.

``tests/goldens/sentence_goldens.py`` lets sentence-transformers encode TEXTS with each of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.providers.encoder_directories import encoder_directory

TEXTS = (
    "", "a text", "The quick brown fox", "Some [MASK] words", "ÀÉÎ UPPER case",
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen " * 3,
)  # fmt: skip
MODULES = "sentence_transformers.models"
PROMPTS = {"query": "search query: ", "document": "a document, "}


def settings(folder: Path, name: str, **values: Any) -> None:
    """Write or change a JSON file of the directory."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    found = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**found, **values}), "utf-8")


def modules(folder: Path, *kinds: str) -> None:
    """Write modules.json: Transformer, Pooling and these."""
    paths = {"Dense": "2_Dense", "Normalize": "3_Normalize", "Dropout": "2_Dropout"}
    rows = [("", "Transformer"), ("1_Pooling", "Pooling"), *((paths[kind], kind) for kind in kinds)]
    (folder / "modules.json").write_text(json.dumps([
        {"idx": i, "name": str(i), "path": path, "type": f"{MODULES}.{kind}"}
        for i, (path, kind) in enumerate(rows)
    ]))  # fmt: skip
    if "Dropout" in kinds:
        settings(folder, "2_Dropout/config.json", dropout=0.2)


def dense(folder: Path, activation: str, *, bias: bool = True, rows: int = 24) -> None:
    """Write a dense layer of 64 to ``rows`` values, drawn from a seed."""
    rng = np.random.default_rng(rows)
    settings(
        folder, "2_Dense/config.json", in_features=64, out_features=rows, bias=bias,
        activation_function=f"torch.nn.modules.{activation}",
    )  # fmt: skip
    tensors = {"linear.weight": rng.normal(size=(rows, 64)).astype("f4")}
    if bias:
        tensors["linear.bias"] = rng.normal(size=rows).astype("f4")
    save_file(tensors, folder / "2_Dense" / "model.safetensors")


def limited(folder: Path) -> None:
    settings(folder, "sentence_bert_config.json", max_seq_length=16, do_lower_case=False)


def limited_by_the_tokenizer(folder: Path) -> None:
    settings(folder, "tokenizer_config.json", model_max_length=12, truncation_side="left")


def lowered(folder: Path) -> None:
    values = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    values["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(values), "utf-8")
    settings(folder, "tokenizer_config.json", do_lower_case=False)
    settings(folder, "sentence_bert_config.json", max_seq_length=32, do_lower_case=True)


def prompted(folder: Path) -> None:
    settings(
        folder, "config_sentence_transformers.json", prompts=PROMPTS, default_prompt_name="query"
    )


def prompt_left_out(folder: Path) -> None:
    prompted(folder)
    settings(folder, "1_Pooling/config.json", include_prompt=False)


def last_token(folder: Path) -> None:
    (folder / "1_Pooling/config.json").unlink()
    settings(folder, "1_Pooling/config.json", embedding_dimension=64, pooling_mode="lasttoken")


def dense_tanh(folder: Path) -> None:
    modules(folder, "Dense", "Normalize")
    dense(folder, "activation.Tanh")


def dense_gelu(folder: Path) -> None:
    modules(folder, "Dropout", "Dense")
    dense(folder, "activation.GELU", bias=False, rows=20)


def scalar_products(folder: Path) -> None:
    """Remove Normalize, so that vectors keep their length."""
    modules(folder)
    settings(folder, "config_sentence_transformers.json", similarity_fn_name="dot")


def fewer_dimensions(folder: Path) -> None:
    modules(folder)
    settings(folder, "config_sentence_transformers.json", truncate_dim=16, similarity_fn_name="dot")


VARIANTS: dict[str, Callable[[Path], None]] = {
    made.__name__: made
    for made in (
        limited, limited_by_the_tokenizer, lowered, prompted, prompt_left_out, last_token,
        dense_tanh, dense_gelu, scalar_products, fewer_dimensions,
    )
}  # fmt: skip


def sentence_directory(encoders: Path, variant: str, parent: Path) -> Path:
    """The directory of a small BERT with the settings of VARIANTS."""
    folder = encoder_directory(encoders, "bert_mean", parent / variant)
    VARIANTS[variant](folder)
    return folder
