"""The files that describe a model of Hugging Face's format, without its weights, by name.

Readers take them as a mapping of names to paths, so that a store that keeps them elsewhere under
other names can be read in the same way.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from trinity.formats.directory_file import directory_file
from trinity.formats.json_object import read_json_object

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER_JSON = "tokenizer.json"
TOKENIZER_MODEL = "tokenizer.model"
TIKTOKEN = "qwen.tiktoken"
RWKV_VOCABULARY = "rwkv_vocab_v20230424.txt"
TOKENIZER_CONFIG = "tokenizer_config.json"
QUANT_CONFIG = "hf_quant_config.json"
ADDED_TOKENS = "added_tokens.json"
CHAT_TEMPLATE = "chat_template.jinja"
IMAGE_PROCESSOR = "preprocessor_config.json"
PROCESSOR = "processor_config.json"
MODULES = "modules.json"
# The settings of the module Transformer, in the order in which sentence-transformers looks.
TRANSFORMER = (
    "sentence_bert_config.json", "sentence_roberta_config.json", "sentence_distilbert_config.json",
    "sentence_camembert_config.json", "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json", "sentence_xlnet_config.json",
)  # fmt: skip
SENTENCE_TRANSFORMERS = "config_sentence_transformers.json"
POOLING = "1_Pooling/config.json"
LOGIT_SCORE = "1_LogitScore/config.json"
DENSE = ("2_Dense", "3_Dense")
DENSE_FILES = tuple(
    f"{folder}/{name}" for folder in DENSE for name in ("config.json", "model.safetensors")
)
NAMES = (
    CONFIG, GENERATION_CONFIG, TOKENIZER_JSON, TOKENIZER_MODEL, TIKTOKEN, RWKV_VOCABULARY,
    TOKENIZER_CONFIG, ADDED_TOKENS, CHAT_TEMPLATE, QUANT_CONFIG, IMAGE_PROCESSOR, PROCESSOR,
    MODULES, *TRANSFORMER, SENTENCE_TRANSFORMERS, POOLING, LOGIT_SCORE, *DENSE_FILES,
)  # fmt: skip


def files_of_directory(directory: str) -> dict[str, str]:
    """Return the paths by name of those files that exist. Raises as ``directory_file``."""
    paths = {name: directory_file(directory, name) for name in NAMES}
    return {name: path for name, path in paths.items() if os.path.lexists(path)}


def optional_object(files: Mapping[str, str], name: str) -> dict[str, object]:
    """Return the object of a JSON file, or {} if the file does not exist.

    Raises as ``read_json_object``.
    """
    return read_json_object(files[name]) if name in files else {}


def model_name(directory: str) -> str:
    """Return the directory's name; for models--OWNER--NAME/snapshots/HASH in a cache, NAME."""
    *_, model, above, last = ("", "", *os.path.abspath(directory).split(os.sep))
    if above == "snapshots" and model.startswith("models--"):
        return model.rpartition("--")[2]
    return last
