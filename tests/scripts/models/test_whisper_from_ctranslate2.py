"""A CTranslate2 model becomes the directory that transformers wrote."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

import trinity
from scripts.models.whisper_from_ctranslate2 import MalformedError, convert, read_model

Variables = dict[str, NDArray[Any]]
CODES = {"float32": 0, "int8": 1, "int16": 2, "float16": 4}


def text(value: str) -> bytes:
    return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"


def model_bin(variables: Variables) -> bytes:
    """A model.bin of version 6, as CTranslate2's ModelSpec writes it."""
    out = struct.pack("<I", 6) + text("WhisperSpec") + struct.pack("<II", 3, len(variables))
    for name, values in variables.items():
        out += text(name) + struct.pack(f"<B{values.ndim}I", values.ndim, *values.shape)
        out += struct.pack("<BI", CODES[values.dtype.name], values.nbytes) + values.tobytes()
    return (
        out
        + struct.pack("<I", 1)
        + text("decoder/projection/weight")
        + text("decoder/embeddings/weight")
    )


def variables_of(tensors: Variables, heads: int) -> Variables:
    """A checkpoint of transformers under CTranslate2's names, with q, k and v fused."""
    found: Variables = {
        f"{side}/num_heads": np.array(heads, np.int16) for side in ("encoder", "decoder")
    }
    for name, values in tensors.items():
        _, side, *place, part = name.split(".")
        norm = "norm" in name
        last = {"weight": "gamma", "bias": "beta"}[part] if norm else part
        if place[0] != "layers":
            stem = {"embed_positions": "position_encodings", "embed_tokens": "embeddings"}
            last = "encodings" if place[0] == "embed_positions" else last
            found[f"{side}/{stem.get(place[0], place[0])}/{last}"] = values
            continue
        layer, module = f"{side}/layer_{place[1]}", ".".join(place[2:])
        names = {
            "self_attn_layer_norm": "self_attention/layer_norm",
            "encoder_attn_layer_norm": "attention/layer_norm",
            "final_layer_norm": "ffn/layer_norm",
            "fc1": "ffn/linear_0",
            "fc2": "ffn/linear_1",
            "self_attn.out_proj": "self_attention/linear_1",
            "encoder_attn.q_proj": "attention/linear_0",
            "encoder_attn.out_proj": "attention/linear_2",
        }
        if module in names:
            found[f"{layer}/{names[module]}/{last}"] = values
    for name in [one for one in tensors if one.endswith("v_proj.weight")]:
        _, side, _, number, attention, _, _ = name.split(".")
        own = attention == "self_attn"
        stem = f"{side}/layer_{number}/" + (
            "self_attention/linear_0" if own else "attention/linear_1"
        )
        for part in ("weight", "bias"):
            pieces = []
            for one in "qkv" if own else "kv":
                piece = tensors.get(name.replace("v_proj.weight", f"{one}_proj.{part}"))
                zeros = np.zeros_like(tensors[name.replace("weight", "bias")])
                pieces.append(zeros if piece is None else piece)
            found[f"{stem}/{part}"] = np.concatenate(pieces)
    return found


@pytest.fixture
def hf(shared_data: Path) -> Path:
    return shared_data / "encoders" / "whisper" / "hf"


@pytest.fixture
def source(hf: Path, tmp_path: Path) -> Path:
    """The small random model of transformers in CTranslate2's format."""
    config = json.loads((hf / "config.json").read_text(encoding="utf-8"))
    generation = json.loads((hf / "generation_config.json").read_text(encoding="utf-8"))
    tensors = load_file(hf / "model.safetensors")
    tensors.pop("proj_out.weight", None)
    folder = tmp_path / "ctranslate2"
    folder.mkdir()
    variables = variables_of(tensors, config["encoder_attention_heads"])
    (folder / "model.bin").write_bytes(model_bin(variables))
    merged = {**config, **{key: one for key, one in generation.items() if one is not None}}
    settings = {
        "suppress_ids": merged.get("suppress_tokens") or [],
        "suppress_ids_begin": merged.get("begin_suppress_tokens") or [],
        "alignment_heads": merged.get("alignment_heads") or [[0, 0]],
    }
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    shutil.copy(hf / "tokenizer.json", folder)
    return folder


@pytest.mark.full
def test_the_directory_is_that_of_transformers(hf: Path, source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "made")
    made, wanted = (load_file(one / "model.safetensors") for one in (tmp_path / "made", hf))
    wanted.pop("proj_out.weight", None)
    assert made.keys() == wanted.keys()
    assert all(np.array_equal(made[name], wanted[name]) for name in wanted)
    config, given = (
        json.loads((one / "config.json").read_text(encoding="utf-8"))
        for one in (tmp_path / "made", hf)
    )
    generation = json.loads((hf / "generation_config.json").read_text(encoding="utf-8"))
    same = (config.keys() & given.keys()) - generation.keys()
    assert {key: config[key] for key in same} == {key: given[key] for key in same}
    assert {"d_model", "encoder_layers", "decoder_ffn_dim", "num_mel_bins"} <= same
    audio = hf.parent / "audio.wav"
    options: dict[str, Any] = {"language": "en", "fallback": False, "beams": 1}
    with trinity.SpeechModel(tmp_path / "made", threads=1) as ours:
        found = ours.transcribe(audio, **options)
    with trinity.SpeechModel(hf, threads=1) as theirs:
        assert found.text == theirs.transcribe(audio, **options).text


def test_weights_of_int8_have_a_scale_for_each_row(tmp_path: Path) -> None:
    """CTranslate2's factor, which is stored, is 127 / the row's largest value."""
    weights = np.array([[1.0, -0.5], [0.02, 0.01]], np.float32)
    scale = 127 / np.abs(weights).max(1)
    codes = np.round(weights * scale[:, None]).astype(np.int8)
    variables = {"decoder/embeddings/weight": codes, "decoder/embeddings/weight_scale": scale}
    (tmp_path / "model.bin").write_bytes(model_bin(variables))
    (found,) = read_model(tmp_path / "model.bin").values()
    assert np.allclose(found, weights, atol=1 / 254)
    variables.pop("decoder/embeddings/weight_scale")
    (tmp_path / "model.bin").write_bytes(model_bin(variables))
    with pytest.raises(MalformedError, match="no scale"):
        read_model(tmp_path / "model.bin")


def test_damaged_files_are_refused(source: Path) -> None:
    path = source / "model.bin"
    whole = path.read_bytes()
    head = whole[:600]
    for length in range(0, len(head), 7):
        path.write_bytes(head[:length])
        with pytest.raises(MalformedError, match="it is cut or damaged"):
            read_model(path)
    for wrong, message in (
        (struct.pack("<I", 3) + whole[4:], "version 3"),
        (whole.replace(b"WhisperSpec", b"MarianXSpec"), "of 'MarianXSpec'"),
        (whole.replace(b"decoder/layer_0", b"decoder/later_0"), "is not a variable"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(MalformedError, match=message):
            convert(source, source / "made")
