"""Convert a Whisper model of CTranslate2's format to a directory of Hugging Face's format.

    python scripts/models/whisper_from_ctranslate2.py SOURCE TARGET

SOURCE has model.bin, config.json and tokenizer.json, as faster-whisper reads them. Source of the
format of model.bin: CTranslate2, python/ctranslate2/specs/model_spec.py (ModelSpec._serialize) and
src/models/model.cc; of the names of variables: its converters/transformers.py (WhisperLoader).
"""

from __future__ import annotations

import argparse
import json
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

Values = NDArray[Any]
VERSIONS = range(4, 7)  # of model.bin, with the same layout
SPEC = "WhisperSpec"
MOST_VARIABLES, MOST_DIMENSIONS = 100_000, 4
BFLOAT16 = 5
DTYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16, BFLOAT16: np.uint16}
SPECIAL = ("<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>", "<|startofprev|>")
LANGUAGE = re.compile(r"<\|[a-z]{2,3}\|>")

# Variables of a layer by their modules in the checkpoint. Several modules: rows in this order.
ENCODER_LAYER = {
    "self_attention/layer_norm": ["self_attn_layer_norm"],
    "self_attention/linear_0": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "self_attention/linear_1": ["self_attn.out_proj"],
    "ffn/layer_norm": ["final_layer_norm"],
    "ffn/linear_0": ["fc1"],
    "ffn/linear_1": ["fc2"],
}
DECODER_LAYER = ENCODER_LAYER | {
    "attention/layer_norm": ["encoder_attn_layer_norm"],
    "attention/linear_0": ["encoder_attn.q_proj"],
    "attention/linear_1": ["encoder_attn.k_proj", "encoder_attn.v_proj"],
    "attention/linear_2": ["encoder_attn.out_proj"],
}
OTHERS = {
    "encoder/conv1": "encoder.conv1",
    "encoder/conv2": "encoder.conv2",
    "encoder/layer_norm": "encoder.layer_norm",
    "encoder/position_encodings": "encoder.embed_positions",
    "decoder/layer_norm": "decoder.layer_norm",
    "decoder/position_encodings": "decoder.embed_positions",
    "decoder/embeddings": "decoder.embed_tokens",
}
PARTS = {
    "weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias", "encodings": "weight",
}  # fmt: skip


class MalformedError(ValueError):
    """The file is not a Whisper model of CTranslate2's format."""


@dataclass
class Reader:
    """Reads the values of a file in order. Raises: MalformedError if the file is too short."""

    data: memoryview
    path: Path
    at: int = 0

    def take(self, count: int, what: str) -> memoryview:
        if count > len(self.data) - self.at:
            raise MalformedError(
                f"{self.path}: {what} at byte {self.at} needs {count} bytes, and the file has "
                f"{len(self.data) - self.at} more: it is cut or damaged; download it again"
            )
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form: str, what: str) -> int:
        value = struct.unpack(f"<{form}", self.take(struct.calcsize(form), what))[0]
        return int(value)

    def text(self, what: str) -> str:
        raw = bytes(self.take(self.number("H", what), what))
        return raw.removesuffix(b"\0").decode("utf-8", "replace")


def read_model(path: Path) -> dict[str, Values]:
    """Return the variables of a model.bin by name; int8 and bfloat16 weights become float32."""
    reader = Reader(memoryview(path.read_bytes()), path)
    version, spec = reader.number("I", "the version"), reader.text("the name of the spec")
    if version not in VERSIONS or spec != SPEC:
        raise MalformedError(
            f"{path}: version {version} of {spec!r:.40}; this script reads versions "
            f"{VERSIONS[0]} to {VERSIONS[-1]} of {SPEC}"
        )
    reader.number("I", "the revision")
    count = reader.number("I", "the number of variables")
    if count > MOST_VARIABLES:
        raise MalformedError(f"{path}: {count} variables; at most {MOST_VARIABLES} are read")
    found = dict(read_variable(reader) for _ in range(count))
    for _ in range(reader.number("I", "the number of aliases")):
        alias, name = reader.text("an alias"), reader.text("the name of an alias")
        if name not in found:
            raise MalformedError(
                f"{path}: {alias!r:.80} is an alias of {name!r:.80}, which is missing"
            )
    scales = {name: found.pop(name) for name in list(found) if name.endswith("_scale")}
    for name, values in found.items():
        if values.dtype == np.int8 and values.ndim == 2:
            scale = scales.get(f"{name}_scale")
            if scale is None or scale.shape != values.shape[:1]:
                raise MalformedError(f"{path}: {name} is of int8 and has no scale for each row")
            found[name] = values.astype(np.float32) / scale.astype(np.float32)[:, None]
    return found


def read_variable(reader: Reader) -> tuple[str, Values]:
    name = reader.text("the name of a variable")
    rank = reader.number("B", f"the rank of {name}")
    if rank > MOST_DIMENSIONS:
        raise MalformedError(f"{reader.path}: {name!r:.80} has {rank} dimensions")
    shape = [reader.number("I", f"the shape of {name}") for _ in range(rank)]
    kind = reader.number("B", f"the type of {name}")
    size = reader.number("I", f"the size of {name}")
    dtype = DTYPES.get(kind)
    if dtype is None or size != math.prod(shape) * np.dtype(dtype).itemsize:
        raise MalformedError(
            f"{reader.path}: {name!r:.80} of shape {shape} and type {kind} has {size} bytes"
        )
    values = np.frombuffer(reader.take(size, name), dtype).reshape(shape)
    if kind == BFLOAT16:
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return name, values


def checkpoint(variables: dict[str, Values]) -> dict[str, Values]:
    """Return the tensors of the checkpoint by name."""
    found: dict[str, Values] = {}
    for name, values in variables.items():
        if values.ndim == 0 or name == "decoder/alignment_heads":
            continue  # a setting
        for module, part, rows in modules_of(name, values):
            if module.endswith("k_proj") and part == "bias":
                if rows.any():
                    raise MalformedError(f"{name}: Whisper's keys have no bias, and these have one")
                continue
            found[f"model.{module}.{part}"] = np.ascontiguousarray(rows)
    return found


def modules_of(name: str, values: Values) -> Iterator[tuple[str, str, Values]]:
    """Return module, "weight" or "bias", and rows of each tensor in the variable."""
    stem, _, last = name.rpartition("/")
    if last in PARTS and stem in OTHERS:
        yield OTHERS[stem], PARTS[last], values
        return
    layer = re.fullmatch(r"(encoder|decoder)/layer_(\d+)/(.+)", stem)
    modules = DECODER_LAYER if layer and layer[1] == "decoder" else ENCODER_LAYER
    if not layer or last not in PARTS or layer[3] not in modules:
        raise MalformedError(f"{name!r:.80} is not a variable of a Whisper model")
    parts = modules[layer[3]]
    if len(values) % len(parts):
        raise MalformedError(
            f"{name} has {len(values)} rows, which are not {len(parts)} equal parts"
        )
    for module, rows in zip(parts, np.split(values, len(parts)), strict=True):
        yield f"{layer[1]}.layers.{layer[2]}.{module}", PARTS[last], rows


def model_config(variables: dict[str, Values], tensors: dict[str, Values]) -> dict[str, Any]:
    """Return the sizes of config.json."""
    vocab_size, width = tensors["model.decoder.embed_tokens.weight"].shape
    sizes: dict[str, Any] = {
        "architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper",
        "activation_function": "gelu", "is_encoder_decoder": True, "scale_embedding": False,
        "tie_word_embeddings": True, "vocab_size": vocab_size, "d_model": width,
        "num_mel_bins": tensors["model.encoder.conv1.weight"].shape[1],
        "max_source_positions": len(tensors["model.encoder.embed_positions.weight"]),
        "max_target_positions": len(tensors["model.decoder.embed_positions.weight"]),
    }  # fmt: skip
    for side in ("encoder", "decoder"):
        layers = {name.split(".")[3] for name in tensors if f"{side}.layers." in name}
        sizes[f"{side}_layers"] = len(layers)
        sizes[f"{side}_attention_heads"] = int(variables[f"{side}/num_heads"])
        sizes[f"{side}_ffn_dim"] = len(tensors[f"model.{side}.layers.0.fc1.weight"])
    sizes["num_hidden_layers"] = sizes["encoder_layers"]
    return sizes


def convert(source: Path, target: Path) -> None:
    """Write the directory ``target``: the files that OpenAI's directories have.

    Raises: MalformedError, OSError.
    """
    variables = read_model(source / "model.bin")
    tensors = checkpoint(variables)
    settings = json.loads((source / "config.json").read_text(encoding="utf-8"))
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    ids = {one["content"]: one["id"] for one in tokenizer["added_tokens"]}
    end, start, without_times, before = (ids[name] for name in SPECIAL)
    config = model_config(variables, tensors)
    common = {
        "bos_token_id": end, "eos_token_id": end, "pad_token_id": end,
        "decoder_start_token_id": start, "suppress_tokens": settings["suppress_ids"],
        "begin_suppress_tokens": settings["suppress_ids_begin"],
    }  # fmt: skip
    languages = {name: one for name, one in ids.items() if LANGUAGE.fullmatch(name)}
    generation = common | {
        "alignment_heads": settings["alignment_heads"], "is_multilingual": bool(languages),
        "max_initial_timestamp_index": 50, "max_length": config["max_target_positions"],
        "no_timestamps_token_id": without_times, "prev_sot_token_id": before,
        "return_timestamps": False,
    }  # fmt: skip
    if languages:
        generation["lang_to_id"] = languages
        generation["task_to_id"] = {
            task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")
        }
    features = {
        "chunk_length": 30, "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": config["num_mel_bins"], "hop_length": 160, "n_fft": 400,
        "n_samples": 480000, "nb_max_frames": 3000, "padding_side": "right", "padding_value": 0.0,
        "processor_class": "WhisperProcessor", "return_attention_mask": False,
        "sampling_rate": 16000,
    }  # fmt: skip
    names = {f"{kind}_token": SPECIAL[0] for kind in ("bos", "eos", "unk", "pad")}
    target.mkdir(parents=True, exist_ok=True)
    for name, content in {
        "config.json": config | common,
        "generation_config.json": generation,
        "preprocessor_config.json": features,
        "tokenizer_config.json": names
        | {"tokenizer_class": "WhisperTokenizer", "model_max_length": 1024},
        "tokenizer.json": tokenizer,
    }.items():
        text = json.dumps(content, ensure_ascii=False, indent=1)
        (target / name).write_text(f"{text}\n", encoding="utf-8")
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("source", type=Path, metavar="SOURCE")
    parser.add_argument("target", type=Path, metavar="TARGET")
    given = parser.parse_args()
    try:
        convert(given.source, given.target)
    except (MalformedError, OSError) as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
