"""Wrong input gives a TrinityError with advice, and leaves no file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.formats import raw_gguf as raw
from tests.quantization.test_quantize import split
from tests.tiny_models import write_tiny_model
from trinity.errors import ConfigError, FormatError, InputError, UnsupportedError
from trinity.formats import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter
from trinity.quantization import quantization, quantize, rows
from trinity_kernels.quants import TYPES


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.gguf"
    write_tiny_model(path)
    return path


def changed(
    source: Path,
    out: Path,
    name: str,
    values: np.ndarray[Any, Any],
    kind: str,
    data: np.ndarray[Any, Any] | None = None,
) -> Path:
    """Write the model with another tensor of the shape of ``values``."""
    with GGUFProvider(source) as given, GGUFWriter(out) as writer:
        for key in given.metadata:
            writer.add_encoded(key, given.metadata.encoded(key))
        for other in given.tensor_names():
            tensor = given.tensor(other)
            if other == name:
                writer.add_tensor(name, values.shape, kind, values if data is None else data)
            else:
                writer.add_tensor(other, tensor.shape, tensor.type, tensor.data)
    return out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"type": "Q4_K_X"}, r"type is 'Q4_K_X'; it must be one of .*Did you mean Q4_K"),
        ({"type": ""}, "type is ''; it must be one of"),
        ({"token_embedding_type": "Q4_K_M"}, "--token-embedding-type: Q4_K_M is a mix"),
        ({"output_tensor_type": "q9"}, "--output-tensor-type is 'q9'"),
        ({"tensor_types": [("attn_v", "x")]}, "--tensor-type attn_v is 'x'"),
        (
            {"tensor_types": [("attn_v(", "Q8_0")]},
            r"attn_v\(: not a regular expression: missing \)",
        ),
        ({"tensor_types": [("", "Q8_0")]}, "the pattern is empty"),
        ({"tensor_types": [("attn_x", "Q8_0")]}, "attn_x=Q8_0: no quantized tensor"),
        ({"threads": 0}, "threads is 0; it must be an integer from 1 to 1024"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str, source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        quantize(source, tmp_path / "out.gguf", **({"type": "Q4_0"} | options))
    assert os.listdir(tmp_path) == ["source.gguf"]


def test_a_target_that_exists(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_text("precious")
    with pytest.raises(InputError, match="exists already; give another name, or --force"):
        quantize(source, out, "Q4_0")
    assert out.read_text() == "precious"
    quantize(source, out, "Q4_0", dry_run=True)
    assert out.read_text() == "precious"
    quantize(source, out, "Q4_0", overwrite=True)
    assert GGUFProvider(out).metadata["general.file_type"] == 2


def test_the_source_is_no_target(source: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.gguf"
    link.symlink_to(source)
    hard = tmp_path / "hard.gguf"
    os.link(source, hard)
    before = source.read_bytes()
    for target in (source, link, hard, tmp_path / "." / "source.gguf"):
        with pytest.raises(InputError, match="this is the source model"):
            quantize(source, target, "Q4_0", overwrite=True)
    part = split(source, tmp_path / "part")
    second = Path(str(part).replace("00001-of", "00002-of"))
    with pytest.raises(InputError, match="this is the source model"):
        quantize(part, second, "Q4_0", overwrite=True)
    assert source.read_bytes() == before


def test_no_folder_and_a_folder(source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no folder .*missing; create it first"):
        quantize(source, tmp_path / "missing" / "out.gguf", "Q4_0")
    with pytest.raises(InputError, match=r"a directory; give the name of the \.gguf file"):
        quantize(source, tmp_path, "Q4_0")


def test_too_little_space(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(quantization.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(InputError, match=r"needs [\d,]+ bytes, but .* has only 1,000 free"):
        quantize(source, tmp_path / "out.gguf", "Q4_0")
    assert os.listdir(tmp_path) == ["source.gguf"]


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("missing.gguf", InputError, "there is no such file"),
        ("text.gguf", FormatError, "not a GGUF file"),
        ("empty", InputError, "no config.json and no .gguf file"),
        ("vocab.gguf", ConfigError, "embedding_length"),
    ],
)
def test_what_is_no_model(name: str, error: type[Exception], message: str, tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello, this is a text")
    (tmp_path / "empty").mkdir()
    key = raw.key_value("general.architecture", raw.STRING, raw.string("llama"))
    (tmp_path / "vocab.gguf").write_bytes(raw.gguf([key], [], b""))
    with pytest.raises(error, match=message):
        quantize(tmp_path / name, tmp_path / "out.gguf", "Q4_0")
    assert not (tmp_path / "out.gguf").exists()


def test_architectures_that_trinity_does_not_run(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "a.gguf", arch="bloom")
    with pytest.raises(UnsupportedError, match="architecture 'bloom' is not supported"):
        quantize(tmp_path / "a.gguf", tmp_path / "out.gguf", "Q4_0")


def test_a_vocabulary_without_a_model(shared_data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a vocabulary without weights"):
        quantize(shared_data / "vocab" / "ggml-vocab-gpt-2.gguf", tmp_path / "out.gguf", "Q4_0")


@pytest.mark.parametrize("dry_run", [False, True])
def test_pipes_and_devices_are_not_replaced(dry_run: bool, source: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="a folder, a pipe or a device"):
        quantize(source, pipe, "Q4_0", overwrite=True, dry_run=dry_run)
    assert pipe.is_fifo()


def test_a_file_cut_short(source: Path, tmp_path: Path) -> None:
    source.write_bytes(source.read_bytes()[:-5000])
    with pytest.raises(FormatError, match=r"takes .* bytes"):
        quantize(source, tmp_path / "out.gguf", "Q4_0")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("type_name", ["Q4_0", "F16", "I2_S"])
def test_values_that_are_no_numbers(
    value: float, type_name: str, source: Path, tmp_path: Path
) -> None:
    weights = np.zeros((64, 64), np.float32)
    weights[40, 7] = value
    path = changed(source, tmp_path / "bad.gguf", "blk.0.attn_q.weight", weights, "F32")
    with pytest.raises((FormatError, UnsupportedError), match=r"no.*finite|is not ternary"):
        quantize(path, tmp_path / "out.gguf", type_name)
    assert sorted(os.listdir(tmp_path)) == ["bad.gguf", "source.gguf"]


@pytest.mark.parametrize(
    ("name", "kind", "raw", "wanted"),
    [
        ("output_norm.weight", "F32", b"\x00\x00\xc0\x7f", "Q4_0"),
        ("output_norm.weight", "F32", b"\x00\x00\x80\xff", "F32"),
        ("blk.0.attn_q.weight", "F16", b"\x00\x00\x01\x7c", "F16"),
        ("blk.0.attn_q.weight", "BF16", b"\x80\xff", "BF16"),
        ("blk.0.attn_q.weight", "Q4_0", b"\x00\x7e", "Q4_0"),
        ("blk.0.attn_q.weight", "Q5_1", b"\x00\x00\x00\xfc", "Q5_1"),
    ],
)
def test_values_that_are_copied_are_looked_at(
    name: str, kind: str, raw: bytes, wanted: str, source: Path, tmp_path: Path
) -> None:
    """llama.cpp's quantizer also checks them."""
    shape = (64,) if "norm" in name else (64, 64)
    data = TYPES[kind].quantize(np.ones(shape, np.float32))
    data[: len(raw)] = np.frombuffer(raw, np.uint8)
    path = changed(source, tmp_path / "bad.gguf", name, np.empty(shape), kind, data)
    with pytest.raises(FormatError, match=f"{name}' has values that are not finite numbers"):
        quantize(path, tmp_path / "out.gguf", wanted)
    assert sorted(os.listdir(tmp_path)) == ["bad.gguf", "source.gguf"]


@pytest.mark.parametrize("value", [3.39e38, -3.4e38])
def test_values_beyond_bfloat16(value: float, source: Path, tmp_path: Path) -> None:
    weights = np.full((64, 64), value, np.float32)
    path = changed(source, tmp_path / "bad.gguf", "blk.0.attn_q.weight", weights, "F32")
    with pytest.raises(InputError, match=r"beyond the largest of BF16; F32 holds them"):
        quantize(path, tmp_path / "out.gguf", "BF16")


@pytest.mark.parametrize("type_name", ["Q4_0", "F16", "Q8_0"])
def test_values_beyond_half_precision(type_name: str, source: Path, tmp_path: Path) -> None:
    weights = np.full((64, 64), -1e5, np.float32)
    path = changed(source, tmp_path / "bad.gguf", "blk.0.attn_q.weight", weights, "F32")
    with pytest.raises(InputError, match=r"has values up to 1e\+05, beyond the half precision"):
        quantize(path, tmp_path / "out.gguf", type_name)
    quantize(path, tmp_path / "out.gguf", "BF16")


def test_types_that_cannot_be_read(source: Path, tmp_path: Path) -> None:
    blocks = np.zeros((1, 256 // 256 * 66), np.uint8)
    write_tiny_model(source, hidden_size=256, num_heads=4)
    with GGUFProvider(source) as given, GGUFWriter(tmp_path / "iq.gguf") as writer:
        for key in given.metadata:
            writer.add_encoded(key, given.metadata.encoded(key))
        for name in given.tensor_names():
            tensor = given.tensor(name)
            if name == "blk.0.attn_q.weight":
                writer.add_tensor(name, tensor.shape, "IQ2_XXS", np.tile(blocks, (256, 1)))
            else:
                writer.add_tensor(name, tensor.shape, tensor.type, tensor.data)
    with pytest.raises((UnsupportedError, InputError), match=r"IQ2_XXS"):
        quantize(tmp_path / "iq.gguf", tmp_path / "out.gguf", "Q4_0")


def test_an_error_in_a_thread_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = rows.quantize_rows
    calls = []

    def failing(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(rows, "quantize_rows", failing)
    with pytest.raises(KeyboardInterrupt):
        quantize(source, tmp_path / "out.gguf", "Q4_0")
    assert os.listdir(tmp_path) == ["source.gguf"]
