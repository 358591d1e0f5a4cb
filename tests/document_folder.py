"""Makes the files that the documents' commands name, from small models."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

import trinity
from scripts.models.make_directory import write_directory
from scripts.models.make_synthetic import SHAPES
from tests.models.adapter_files import peft_directory
from tests.ollama_stores import layer, write_manifest, write_store
from tests.speech.small_whisper import write_short_model
from tests.tiny_models import write_tiny_model
from trinity.tools.convert import convert_adapter

TINY = replace(
    SHAPES["llama-100m"], hidden_size=256, intermediate_size=512, num_layers=2, num_heads=4,
    num_kv_heads=2, vocab_size=258, context_length=2048,
)  # fmt: skip
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}},
    "required": ["name"],
    "additionalProperties": False,
}
ROW = {
    "custom_id": "a",
    "method": "POST",
    "url": "/v1/chat/completions",
    "body": {"messages": [{"role": "user", "content": "Who is Pierre?"}], "max_tokens": 8},
}
TEXTS = {
    "person.json": json.dumps(PERSON),
    "answer.lark": 'start: "yes" | "no"\n',
    "in.jsonl": json.dumps(ROW) + "\n",
    "text.txt": "Once upon a time the red cat sat on the mat. " * 100,
    "texts.txt": "The license applies to any work.\nFoxes jump.\n",
}
QUANTIZED = "model-Q4_K_M-0123456789abcdef-0123456789abcdef.gguf"  # in the cache folder


def write_folder(folder: Path, encoders: Path) -> None:
    """Write every file; ``encoders`` is the folder of that name of the reference data."""
    model = folder / "model.gguf"
    shutil.copyfile(trinity.chat_model(), model)
    for name in ("chat", "ggml-model-i2_s"):
        (folder / f"{name}.gguf").symlink_to(model)
    write_tiny_model(folder / "model-f16.gguf", type="F16", hidden_size=256, context_length=512)
    write_tiny_model(folder / "bitnet-tq2_0.gguf", arch="bitnet", type="TQ2_0")
    for name, source in (("embedder", "bert_mean"), ("reranker", "bert_rerank")):
        shutil.copyfile(encoders / source / "model.gguf", folder / f"{name}.gguf")
    _write_directories(folder, encoders / "whisper")
    write_store(folder / "ollama", model, "library/llama3.2/latest")
    write_store(folder / "ollama", model, "library/llama3.2/1b")
    weights = layer(folder / "ollama", "model", model.read_bytes())
    write_manifest(folder / "ollama", "hf.co/user/repo/Q4_K_M", [weights])
    for name, text in TEXTS.items():
        (folder / name).write_text(text, "utf-8")


def _write_directories(folder: Path, whisper: Path) -> None:
    paths = folder / "path" / "to"
    paths.mkdir(parents=True)
    for name, bits in (("huggingface-model", None), ("mlx-model", 4)):
        write_directory(TINY, paths / name, bits=bits)
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
        (paths / name / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    write_short_model(paths / "whisper-base", whisper / "hf")
    shutil.copyfile(whisper / "audio.wav", folder / "talk.wav")
    pair = {
        "model.layers.0.mlp.up_proj.lora_A.weight": np.ones((3, 256), "f4"),
        "model.layers.0.mlp.up_proj.lora_B.weight": np.zeros((768, 3), "f4"),
    }
    for name in ("adapter", "peft-adapter"):
        peft_directory(paths / name, pair, target_modules=["up_proj"])
    convert_adapter(paths / "adapter", folder / "style.gguf", folder / "model.gguf")
