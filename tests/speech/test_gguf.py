"""Whisper models as GGUF files: conversion, and invalid files."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from trinity.errors import ConfigError, InputError, TrinityError, UnsupportedError
from trinity.formats.gguf import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter
from trinity.providers import open_weights
from trinity.quantization import quantize
from trinity.speech.audio import open_audio
from trinity.speech.clip import Clip
from trinity.tools.convert import convert
from trinity_kernels.isa import available_levels


@pytest.fixture(scope="module")
def file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory's weights, F16, as they are."""
    path = tmp_path_factory.mktemp("gguf") / "whisper.gguf"
    convert(folder / "hf", path, "f16")
    return path


def states_and_logits(
    path: Path, folder: Path, ids: list[int], isa: str | None = None
) -> tuple[Any, Any]:
    with trinity.SpeechModel(path, threads=1, isa=isa) as model:
        clip = Clip(open_audio(folder / "audio.wav"), 80, 3000)
        states = model._encoder.run(model._team, clip.features(0, silence=True)).copy()
        history = model._decoder.begin()
        rows = [(token, history) for token in ids]
        return states, model._decoder.run(model._team, rows, range(len(rows))).copy()


IDS = [321, 322, 329, 333, 40, 41, 42, 43]


@pytest.mark.few(1)
@pytest.mark.parametrize("outtype", ["f32", "f16", None])
def test_a_file_gives_what_its_directory_gives(
    folder: Path, tmp_path: Path, outtype: str | None
) -> None:
    """The bits are equal, since F16 weights are exact in F32; without a type they are copied."""
    path = tmp_path / "whisper.gguf"
    convert(folder / "hf", path, outtype)
    # The tiles of AMX round F16 weights, and F32 weights not.
    exact = "avx512vnni" if outtype == "f32" and available_levels()[0] == "amx" else None
    for found, wanted in zip(
        states_and_logits(path, folder, IDS, exact),
        states_and_logits(folder / "hf", folder, IDS, exact),
        strict=True,
    ):
        if outtype == "f32":
            np.testing.assert_allclose(found, wanted, atol=1e-5)
        else:
            assert (found == wanted).all()
    with (
        trinity.SpeechModel(path, isa=exact) as one,
        trinity.SpeechModel(folder / "hf", isa=exact) as other,
    ):
        options: dict[str, Any] = {"fallback": False, "beams": 2, "initial_prompt": "M"}
        audio = folder / "audio.wav"
        assert one.transcribe(audio, **options) == other.transcribe(audio, **options)
        assert one.languages == other.languages
        assert one.detect_language(audio).keys() == other.detect_language(audio).keys()
        assert vars(one._tokens).keys() == vars(other._tokens).keys()
        for name in ("start", "end", "tasks", "no_speech", "before", "first_time"):
            assert getattr(one._tokens, name) == getattr(other._tokens, name)
        for name in (
            "suppressed",
            "suppressed_first",
            "latest_first_time",
            "activation",
            "alignment_heads",
        ):
            assert getattr(one.config, name) == getattr(other.config, name)


def test_weights_stay_in_the_mapping(file: Path) -> None:
    with trinity.SpeechModel(file) as model:
        weight = model._weights(None).linear("enc.blk.1.ffn_up", 128, 64)
        assert np.shares_memory(weight.data, model._provider.tensor("enc.blk.1.ffn_up.weight").data)


def test_keys_and_names_are_those_of_the_description(file: Path) -> None:
    with GGUFProvider(file) as found:
        keys = dict(found.metadata)
        names = set(found.tensor_names())
    assert keys["general.architecture"] == "whisper"
    wanted = {
        "encoder.context_length": 1500, "encoder.embedding_length": 64, "encoder.block_count": 2,
        "encoder.mels_count": 80, "encoder.attention.head_count": 4,
        "encoder.feed_forward_length": 128, "decoder.context_length": 448,
        "decoder.embedding_length": 64, "decoder.block_count": 2,
        "decoder.attention.head_count": 4, "vocab_size": 1835, "multilingual": True,
        "languages": ["en", "zh", "de", "es", "ru", "ko"], "decoder_start_token_id": 321,
        "max_initial_timestamp_index": 50,
    }  # fmt: skip
    assert {key: keys[f"whisper.{key}"] for key in wanted} == wanted
    suppressed = keys["whisper.begin_suppress_tokens"]
    assert isinstance(suppressed, np.ndarray)
    assert suppressed.tolist() == [220, 320]
    assert keys["tokenizer.ggml.model"] == "gpt2"
    assert keys["tokenizer.ggml.eos_token_id"] == 320
    assert {
        "token_embd.weight", "enc.conv1d.1.weight", "enc.position_embd.weight",
        "enc.blk.1.attn_q.bias", "enc.output_norm.weight", "dec.blk.0.cross_attn_o.weight",
    } <= names  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("type", ["Q8_0", "Q4_0", "Q4_K_M", "Q6_K", "F32", "BF16"])
def test_quantized_files(file: Path, folder: Path, tmp_path: Path, type: str) -> None:
    """Convolutions and positions are unchanged, and the states have the same direction."""
    path = tmp_path / "small.gguf"
    done = quantize(file, path, type)
    types = {tensor.name: tensor.type for tensor in done.tensors}
    assert types["enc.conv1d.1.weight"] == "F16"
    assert types["dec.position_embd.weight"] == types["enc.blk.0.ffn_up.bias"] == "F32"
    directly = tmp_path / "directly.gguf"
    quantize(folder / "hf", directly, type)
    with GGUFProvider(path) as one, GGUFProvider(directly) as other:
        assert one.tensor_names() == other.tensor_names()
        for name in one.tensor_names():
            assert (one.tensor(name).data == other.tensor(name).data).all(), name
    states, _ = states_and_logits(path, folder, IDS)
    wanted, _ = states_and_logits(file, folder, IDS)
    cosines = (states * wanted).sum(1)
    cosines /= np.linalg.norm(states, axis=1) * np.linalg.norm(wanted, axis=1)
    assert cosines.mean() > (0.9 if type.startswith("Q4") else 0.998)
    if type not in ("F32", "BF16"):
        with pytest.raises(InputError, match=r"is \w+ already; quantizing twice loses"):
            trinity.SpeechModel(path, quantize="Q8_0")


@pytest.mark.full
def test_models_of_english_alone(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "hf", tmp_path / "hf")
    path = tmp_path / "hf" / "generation_config.json"
    path.chmod(0o644)
    path.parent.chmod(0o755)
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**values, "is_multilingual": False}), encoding="utf-8")
    convert(tmp_path / "hf", tmp_path / "english.gguf")
    for model in (tmp_path / "hf", tmp_path / "english.gguf"):
        with trinity.SpeechModel(model, threads=1) as found:
            assert found.languages == []


CHANGES: dict[str, tuple[dict[str, object], type[Exception], str]] = {
    "no layers": ({"encoder.block_count": None}, ConfigError, "encoder.block_count is missing"),
    "too many layers": ({"decoder.block_count": 1 << 30}, ConfigError, "from 1 to 512"),
    "more layers than there are": (
        {"decoder.block_count": 3}, ConfigError, "no tensor 'dec.blk.2.ffn_up.weight'",
    ),
    "fewer layers": ({"encoder.block_count": 1}, ConfigError, "'enc.blk.1.* belong to a Whisper"),
    "heads": ({"encoder.attention.head_count": 5}, ConfigError, "is 5; it must divide the width"),
    "text": ({"encoder.mels_count": "many"}, ConfigError, "mels_count is 'many'; it must be a"),
    "width": (
        {"encoder.embedding_length": 128, "decoder.embedding_length": 128},
        ConfigError, r"has shape \(1835, 64\), but the",
    ),
    "two widths": ({"decoder.embedding_length": 32}, ConfigError, "must equal the encoder's, 64"),
    "positions": ({"encoder.context_length": 1 << 13}, ConfigError, "position_embd.* has shape"),
    "inner": (
        {"encoder.feed_forward_length": 1 << 20}, ConfigError, "must not exceed 33554432",
    ),
    "activation": ({"hidden_activation": "relu"}, UnsupportedError, "hidden_activation is 'relu'"),
    "epsilon": (
        {"decoder.attention.layer_norm_epsilon": 1e-3}, UnsupportedError, "models have 1e-05",
    ),
    "suppressed": (
        {"suppress_tokens": np.array([5000], np.int32)}, ConfigError, "token ids below 1835",
    ),
    "suppressed text": ({"suppress_tokens": "40"}, ConfigError, "must be an array of token ids"),
    "heads that are not there": (
        {"alignment_heads": np.array([1, 0, 2, 0], np.int32)}, ConfigError, "must be pairs of a",
    ),
    "half a head": (
        {"alignment_heads": np.array([1, 0, 1], np.int32)}, ConfigError, "below 2 and a head",
    ),
    "start": ({"decoder_start_token_id": 1835}, ConfigError, "must be a token's id, below 1835"),
    "vocabulary": ({"vocab_size": 1836}, ConfigError, r"has shape \(1835, 64\), but the"),
}  # fmt: skip


def changed(file: Path, path: Path, changes: dict[str, object], damaged: str = "") -> None:
    """The model with other values of keys under ``whisper.``, or without those of None.

    ``damaged``: a tensor that begins with a value that is no number.
    """
    with GGUFProvider(file) as source, GGUFWriter(path) as writer:
        for key in source.metadata:
            if key.removeprefix("whisper.") not in changes:
                writer.add_encoded(key, source.metadata.encoded(key))
        for key, value in changes.items():
            if value is not None:
                writer.add(f"whisper.{key}", value)
        for name in source.tensor_names():
            tensor = source.tensor(name)
            data = tensor.data.copy()
            if name == damaged:
                data[:4] = 0xFF
            writer.add_tensor(name, tensor.shape, tensor.type, data)


@pytest.mark.parametrize(("changes", "error", "message"), CHANGES.values(), ids=CHANGES)
def test_files_that_are_wrong(
    file: Path, tmp_path: Path, changes: dict[str, object], error: type[Exception], message: str
) -> None:
    changed(file, tmp_path / "wrong.gguf", changes)
    with pytest.raises(error, match=message):
        trinity.SpeechModel(tmp_path / "wrong.gguf", threads=1)


def test_what_a_file_may_lack(file: Path, tmp_path: Path) -> None:
    """Optional keys have the values that all Whisper models share, or none."""
    missing = (
        "encoder.feed_forward_length", "decoder.feed_forward_length", "decoder_start_token_id",
        "multilingual", "languages", "max_initial_timestamp_index", "hidden_activation",
        "vocab_size", "decoder.attention.layer_norm_epsilon",
    )  # fmt: skip
    changed(file, tmp_path / "less.gguf", dict.fromkeys(missing))
    with pytest.raises(ConfigError, match=r"has shape \(128, 64\), but the config.* \(256, 64\)"):
        trinity.SpeechModel(tmp_path / "less.gguf")
    changed(file, tmp_path / "less.gguf", dict.fromkeys(missing[2:]))
    with trinity.SpeechModel(tmp_path / "less.gguf") as one, trinity.SpeechModel(file) as other:
        assert one.languages == other.languages
        assert one._tokens.start == other._tokens.start


def test_commands_for_texts_name_those_for_speech(file: Path) -> None:
    for use in (trinity.load, lambda path: trinity.generate(path, "a")):
        with pytest.raises(UnsupportedError, match=r"speech to text: .* `trinity transcribe`"):
            use(file)
    with closing(open_weights(file)) as provider:
        assert provider.config.num_layers == 2


def test_a_file_without_its_end(file: Path, tmp_path: Path) -> None:
    raw = file.read_bytes()
    for size in (40, 1000, len(raw) // 2, len(raw) - 1000):
        (tmp_path / "cut.gguf").write_bytes(raw[:size])
        with pytest.raises(TrinityError):
            trinity.SpeechModel(tmp_path / "cut.gguf", threads=1)


def test_values_that_are_no_numbers(file: Path, folder: Path, tmp_path: Path) -> None:
    """A damaged weight causes an error, not a text."""
    for name in ("enc.blk.0.attn_q.bias", "dec.position_embd.weight"):
        changed(file, tmp_path / "wrong.gguf", {}, damaged=name)
        with (
            trinity.SpeechModel(tmp_path / "wrong.gguf", threads=1) as model,
            pytest.raises(TrinityError, match="output is not finite"),
        ):
            model.transcribe(folder / "audio.wav", fallback=False)


@pytest.mark.few(1)
@pytest.mark.parametrize("beams", [1, 2])
def test_lists_that_leave_no_token(file: Path, folder: Path, tmp_path: Path, beams: int) -> None:
    """All tokens are suppressed, so the transcript is empty."""
    nothing = {"suppress_tokens": np.arange(1835, dtype=np.int32)}
    changed(file, tmp_path / "silent.gguf", dict(nothing))
    with trinity.SpeechModel(tmp_path / "silent.gguf", threads=1) as model:
        found = model.transcribe(folder / "audio.wav", beams=beams)
    assert (found.text, found.segments, found.complete) == ("", (), True)
