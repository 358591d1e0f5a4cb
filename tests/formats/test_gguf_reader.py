"""Valid GGUF files: every value type, both versions, tensors as views."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.formats import raw_gguf as raw
from trinity.errors import FormatError, InputError, TrinityError, UnsupportedError
from trinity.formats import GGUFProvider
from trinity.providers import open_weights

SCALARS = [
    (raw.U8, "<B", 255, "uint8"),
    (raw.I8, "<b", -128, "int8"),
    (raw.U16, "<H", 65535, "uint16"),
    (raw.I16, "<h", -32768, "int16"),
    (raw.U32, "<I", 2**32 - 1, "uint32"),
    (raw.I32, "<i", -(2**31), "int32"),
    (raw.F32, "<f", 0.5, "float32"),
    (raw.U64, "<Q", 2**64 - 1, "uint64"),
    (raw.I64, "<q", -(2**63), "int64"),
    (raw.F64, "<d", 1e300, "float64"),
]


def write(folder: Path, content: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("type_id", "code", "value", "name"), SCALARS)
def test_number_types(tmp_path: Path, type_id: int, code: str, value: float, name: str) -> None:
    payload = struct.pack(code, value)
    keys = [
        raw.key_value("one", type_id, payload),
        raw.key_value("many", raw.ARRAY, raw.array(type_id, 3, payload * 3)),
        raw.key_value("none", raw.ARRAY, raw.array(type_id, 0)),
    ]
    with GGUFProvider(write(tmp_path, raw.gguf(keys))) as model:
        assert model.metadata["one"] == value
        assert type(model.metadata["one"]) is type(value)
        many = model.metadata["many"]
        assert isinstance(many, np.ndarray)
        assert many.dtype == np.dtype(name)
        assert many.tolist() == [value] * 3
        assert not many.flags.writeable
        assert len(model.metadata["none"]) == 0  # type: ignore[arg-type]
        assert model.metadata.value_type("one") == name
        assert model.metadata.value_type("many") == f"array[{name}]"
        assert model.metadata.array_length("many") == 3
        assert model.metadata.array_length("one") is None


def test_any_byte_but_zero_is_true(tmp_path: Path) -> None:
    keys = [
        raw.key_value("yes", raw.BOOL, b"\x02"),
        raw.key_value("no", raw.BOOL, b"\x00"),
        raw.key_value("both", raw.ARRAY, raw.array(raw.BOOL, 3, b"\x00\x01\xff")),
    ]
    metadata = GGUFProvider(write(tmp_path, raw.gguf(keys))).metadata
    assert metadata["yes"] is True
    assert metadata["no"] is False
    both = metadata["both"]
    assert isinstance(both, np.ndarray)
    assert both.tolist() == [False, True, True]


def test_text_and_nested_arrays(tmp_path: Path) -> None:
    nested = raw.array(raw.ARRAY, 2, raw.array(raw.U8, 2, b"\x01\x02") + raw.strings("x", ""))
    keys = [
        raw.key_value("text", raw.STRING, raw.string("Fuß ▁ 🦜")),
        raw.key_value("texts", raw.ARRAY, raw.strings("a", "", "ĠÄ")),
        raw.key_value("nested", raw.ARRAY, nested),
        raw.key_value("after", raw.U8, b"\x07"),
    ]
    metadata = GGUFProvider(write(tmp_path, raw.gguf(keys))).metadata
    assert list(metadata) == ["text", "texts", "nested", "after"]
    assert metadata["text"] == "Fuß ▁ 🦜"
    assert metadata["texts"] == ["a", "", "ĠÄ"]
    assert metadata["texts"] is metadata["texts"], "decoded once, then kept"
    nested_value = metadata["nested"]
    assert isinstance(nested_value, list)
    first, second = nested_value
    assert first.tolist() == [1, 2]
    assert second == ["x", ""]
    assert metadata["after"] == 7
    assert len(metadata) == 4
    assert metadata.get("absent") is None
    with pytest.raises(KeyError):
        metadata["absent"]


@pytest.mark.parametrize("version", [2, 3])
def test_tensors_are_views_in_numpy_order(tmp_path: Path, version: int) -> None:
    values = np.arange(6, dtype="<f4")
    infos = [raw.info("a.weight", [3, 2]), raw.info("b", [], 1, 32)]
    content = raw.gguf((), infos, values.tobytes() + bytes(8) + b"\x00\x3c", version=version)
    path = write(tmp_path, content)
    with GGUFProvider(path) as model:
        assert open_weights(path).tensor_names() == model.tensor_names()
        assert model.version == version
        assert model.path == str(path)
        assert model.tensor_names() == ["a.weight", "b"]
        tensor = model.tensor("a.weight")
        assert (tensor.name, tensor.shape, tensor.type) == ("a.weight", (2, 3), "F32")
        assert tensor.source == str(path)
        assert tensor.data.dtype == np.uint8
        assert not tensor.data.flags.writeable
        assert not tensor.data.flags.owndata
        assert tensor.data.view("<f4").tolist() == values.tolist()
        assert model.tensor("b").shape == ()
        assert model.tensor("b").nbytes == 2
        assert model.rope_interleaved is True
        with pytest.raises(FormatError, match="no tensor 'c'"):
            model.tensor("c")


def test_gaps_and_another_order_than_the_infos_are_fine(tmp_path: Path) -> None:
    infos = [raw.info("second", [1], 0, 96), raw.info("first", [1], 0, 32)]
    data = bytes(32) + struct.pack("<f", 1) + bytes(60) + struct.pack("<f", 2)
    model = GGUFProvider(write(tmp_path, raw.gguf((), infos, data)))
    assert model.tensor("first").data.view("<f4")[0] == 1
    assert model.tensor("second").data.view("<f4")[0] == 2


@pytest.mark.parametrize("alignment", [1, 8, 64, 1 << 21])
def test_alignment_moves_the_data(tmp_path: Path, alignment: int) -> None:
    key = raw.key_value("general.alignment", raw.U32, raw.u32(alignment))
    content = raw.gguf([key], [raw.info("a", [4], 24)], b"\x01\x02\x03\x04", alignment=alignment)
    model = GGUFProvider(write(tmp_path, content))
    assert model.alignment == alignment
    assert model.tensor("a").data.tolist() == [1, 2, 3, 4]


def test_close_is_final_and_safe(tmp_path: Path) -> None:
    keys = [
        raw.key_value("read", raw.STRING, raw.string("early")),
        raw.key_value("unread", raw.STRING, raw.string("late")),
    ]
    path = write(tmp_path, raw.gguf(keys, [raw.info("a", [2], 24)], b"\x05\x06"))
    model = GGUFProvider(path)
    data = model.tensor("a").data
    assert model.metadata["read"] == "early"
    model.close()
    model.close()
    assert data.tolist() == [5, 6], "a view keeps its pages"
    assert model.metadata["read"] == "early"
    assert model.tensor_names() == ["a"]
    with pytest.raises(InputError, match="closed"):
        model.tensor("a")
    with pytest.raises(InputError, match="closed"):
        model.metadata["unread"]
    with pytest.raises(TrinityError):
        _ = model.config


def test_a_file_cut_while_open_is_an_error_not_a_crash(tmp_path: Path) -> None:
    key = raw.key_value("text", raw.STRING, raw.string("x"))
    path = write(tmp_path, raw.gguf([key], [raw.info("a", [9000], 24)], bytes(9000)))
    model = GGUFProvider(path)
    with path.open("r+b") as file:
        file.truncate(100)
    with pytest.raises(FormatError, match=r"truncated from \d+ to 100 bytes"):
        model.tensor("a")
    with pytest.raises(FormatError, match="truncated from"):
        model.metadata["text"]


def test_a_file_replaced_while_open_stays_readable(tmp_path: Path) -> None:
    path = write(tmp_path, raw.gguf((), [raw.info("a", [2], 24)], b"\x05\x06"))
    model = GGUFProvider(path)
    other = tmp_path / "other"
    other.write_bytes(b"")
    other.replace(path)
    assert model.tensor("a").data.tolist() == [5, 6]


BIG_ENDIAN = b"GGUF" + struct.pack(">IQQ", 3, 0, 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (BIG_ENDIAN, "big-endian"),
        (
            b"GGUF" + raw.u32(1) + raw.u32(0) * 2,
            "version 1 is not supported; trinity reads versions 2 and 3",
        ),
        (raw.gguf(version=4), "version 4.*newer"),
        (raw.gguf(version=0), "version 0"),
    ],
)
def test_other_versions_and_byte_orders(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        GGUFProvider(write(tmp_path, content))


SAFETENSORS = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"G", "ends within its first 4 bytes"),
        (b"GGUF", "only 0 are left"),
        (b"GGUF" + raw.u32(3) + bytes(15), "the header needs 16 bytes"),
        (raw.u64(len(SAFETENSORS)) + SAFETENSORS + bytes(4), "safetensors.*give the directory"),
        (b"PK\x03\x04" + bytes(40), "zip archive.*PyTorch.*convert_hf_to_gguf"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "pickle"),
        (b"\x1f\x8b\x08" + bytes(30), "gzip.*unpack"),
        (b"lmgg" + bytes(30), "old GGML"),
        (b"tjgg" + bytes(30), "old GGJT"),
        (b"FUGG" + bytes(30), "byte-swapped"),
        (b"<!DOCTYPE html><html>", "web page.*download"),
        (b'{"model_type": "llama"}', "JSON"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer.*git lfs pull"),
        (b"Once upon a time there was a text.\n" * 5, "text file"),
        (bytes(4096), "zeros"),
        (bytes(range(128, 255)), "no known model format"),
    ],
)
def test_what_is_not_gguf_says_what_it_is(tmp_path: Path, content: bytes, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(FormatError, match=message) as caught:
        GGUFProvider(path)
    assert str(path) in str(caught.value)


def test_paths_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no such file"):
        GGUFProvider(tmp_path / "absent.gguf")
    with pytest.raises(InputError, match="no such file"):
        GGUFProvider("~/absent.gguf")
    with pytest.raises(InputError, match="is not the name of a file"):
        GGUFProvider("")
    with pytest.raises(InputError, match="is not the name of a file"):
        GGUFProvider("a\0b")
    with pytest.raises(InputError, match="cannot be opened"):
        GGUFProvider("x" * 5000)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path, raw.gguf())
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(InputError, match="no permission"):
        GGUFProvider(path)


def test_folders_and_pipes(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"no config\.json and no \.gguf file"):
        GGUFProvider(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FormatError, match=r"Hugging Face model; give the directory"):
        GGUFProvider(tmp_path)
    (tmp_path / "x.gguf").write_bytes(b"")
    with pytest.raises(FormatError, match=r"give one of its files: x\.gguf"):
        GGUFProvider(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(FormatError, match="pipe or device"):
            GGUFProvider(tmp_path / "pipe")
