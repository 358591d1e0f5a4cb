"""The GGUF writer: read back by the gguf package and by trinity; it writes all or nothing."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from trinity.errors import InputError, UnsupportedError
from trinity.formats import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter

INFERRED = [
    (True, "bool"),
    (0, "uint32"),
    (2**32 - 1, "uint32"),
    (2**32, "uint64"),
    (-1, "int32"),
    (-(2**31) - 1, "int64"),
    (0.5, "float32"),
    ("Ä", "string"),
    (np.float32(1.5), "float32"),
    (np.float64(1.5), "float64"),
    (np.int8(-3), "int8"),
    (np.bool_(True), "bool"),
    (np.array(7, np.uint16), "uint16"),
    ([1, -2], "array[int32]"),
    ([1, 2**31], "array[uint32]"),
    ([-1, 2**31], "array[int64]"),
    ([2**63], "array[uint64]"),
    ([1, 2.5], "array[float32]"),
    (["a", ""], "array[string]"),
    ([True, False], "array[bool]"),
    ([np.uint8(1), np.uint8(2)], "array[uint8]"),
    (("x",), "array[string]"),
    (np.arange(3, dtype=np.int64), "array[int64]"),
    (np.arange(3, dtype=">i2"), "array[int16]"),
    (np.array([True, False]), "array[bool]"),
    (np.array(["ab", "c"]), "array[string]"),
    ([[1, 2], ["x"]], "array[array]"),
    (np.ones((2, 2), np.float64), "array[array]"),
]


@pytest.mark.parametrize(("value", "kind"), INFERRED)
def test_inferred_types_read_back(tmp_path: Path, value: object, kind: str) -> None:
    path = tmp_path / "x.gguf"
    with GGUFWriter(path) as writer:
        writer.add("k", value)
    metadata = GGUFProvider(path).metadata
    assert metadata.value_type("k") == kind
    assert plain(metadata["k"]) == plain(value)


def plain(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    return value


def test_given_types(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    with GGUFWriter(path) as writer:
        writer.add("u16", 3, "uint16")
        writer.add("f64", 1 / 3, "float64")
        writer.add("i8s", [1, -1], "int8")
        writer.add("f32s", np.array([1, 2]), "array[float32]")
        writer.add("empty", [], "string")
        writer.add("nested", [[1], [2.5]], "array[array]")
        writer.add("infinite", float("inf"))
    metadata = GGUFProvider(path).metadata
    kinds = [metadata.value_type(key) for key in metadata]
    assert kinds == [
        "uint16",
        "float64",
        "array[int8]",
        "array[float32]",
        "array[string]",
        "array[array]",
        "float32",
    ]
    assert metadata["f64"] == 1 / 3
    assert metadata["empty"] == []


@pytest.mark.parametrize(
    ("key", "value", "type_", "message"),
    [
        ("", 1, None, "must be 1 to"),
        ("k" * 70000, 1, None, "must be 1 to"),
        ("k", None, None, "no value type of GGUF can hold None"),
        ("k", b"raw", None, "no value type"),
        ("k", {}, None, "no value type"),
        ("k", 2**64, None, "no value type"),
        ("k", [1, "a"], None, "no value type"),
        ("k", [], None, "empty list"),
        ("k", 256, "uint8", "uint8 cannot hold 256"),
        ("k", -1, "uint32", "cannot hold -1"),
        ("k", 1, "bool", "bool cannot hold 1"),
        ("k", True, "uint8", "cannot hold True"),
        ("k", 1e39, None, "float32 cannot hold"),
        ("k", 10**400, "float64", "float64 cannot hold"),
        ("k", "1", "float32", "cannot hold '1'"),
        ("k", 1, "string", "expected text"),
        ("k", "\ud800", None, "not valid Unicode"),
        ("k", 1, "u32", "there is no value type 'u32'"),
        ("k", 1, "array[uint32]", "needs a list"),
        ("k", [1], "array[array]", "is not a list"),
        ("k", [[[[[1]]]]], None, "nested at most 4"),
        ("general.alignment", 64, None, "alignment="),
    ],
)
def test_values_that_cannot_be_written(
    tmp_path: Path, key: str, value: object, type_: str | None, message: str
) -> None:
    writer = GGUFWriter(tmp_path / "x.gguf")
    with pytest.raises(InputError, match=message):
        writer.add(key, value, type_)


def test_the_gguf_package_reads_ours(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((3, 64)).astype(np.float32)
    blocks = gguf.quants.quantize(matrix, gguf.GGMLQuantizationType.Q8_0)
    path = tmp_path / "ours.gguf"
    with GGUFWriter(path, alignment=64) as writer:
        writer.add("general.architecture", "llama")
        writer.add("tokenizer.ggml.tokens", ["<s>", "ä", ""])
        writer.add("tokenizer.ggml.scores", [0.0, -1.5, 2.0])
        writer.add("some.flag", False)
        writer.add("some.number", -5)
        writer.add_tensor("a.weight", (3, 64), "F32", matrix)
        writer.add_tensor("b.weight", (3, 64), "Q8_0", blocks)
        writer.add_tensor("c.weight", (5,), "F16", np.arange(5, dtype=np.float16))
    reader = gguf.GGUFReader(path)
    assert reader.fields["tokenizer.ggml.tokens"].contents() == ["<s>", "ä", ""]
    assert reader.fields["tokenizer.ggml.scores"].contents() == [0.0, -1.5, 2.0]
    assert reader.fields["some.flag"].contents() is False
    assert reader.fields["some.number"].contents() == -5
    assert reader.alignment == 64
    a, b, c = reader.tensors
    assert [t.name for t in reader.tensors] == ["a.weight", "b.weight", "c.weight"]
    np.testing.assert_array_equal(a.data, matrix)
    np.testing.assert_array_equal(b.data, blocks)
    assert c.data.tolist() == [0, 1, 2, 3, 4]
    assert all(tensor.data_offset % 64 == 0 for tensor in reader.tensors)


def test_we_read_the_gguf_package(tmp_path: Path) -> None:
    path = tmp_path / "theirs.gguf"
    matrix = np.arange(128, dtype=np.float32).reshape(2, 64)
    blocks = gguf.quants.quantize(matrix, gguf.GGMLQuantizationType.Q4_0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(128)
    writer.add_uint8("a", 200)
    writer.add_int64("b", -(2**40))
    writer.add_float64("c", 1 / 3)
    writer.add_bool("d", True)
    writer.add_string("e", "☃")
    writer.add_array("f", ["x", "yz"])
    writer.add_array("g", [1, 2, 3])
    writer.add_array("h", [0.5, 1.5])
    writer.add_tensor("m.weight", matrix)
    writer.add_tensor("q.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with GGUFProvider(path) as model:
        found = {key: plain(value) for key, value in model.metadata.items()}
        assert found == {
            "general.architecture": "llama",
            "general.alignment": 128,
            "a": 200,
            "b": -(2**40),
            "c": 1 / 3,
            "d": True,
            "e": "☃",
            "f": ["x", "yz"],
            "g": [1, 2, 3],
            "h": [0.5, 1.5],
        }
        assert model.alignment == 128
        np.testing.assert_array_equal(
            model.tensor("m.weight").data.view(np.float32).reshape(2, 64), matrix
        )
        quantized = model.tensor("q.weight")
        assert (quantized.shape, quantized.type) == ((2, 64), "Q4_0")
        assert quantized.data.tobytes() == blocks.tobytes()


@pytest.mark.parametrize(
    "kind", ["I2_S", "TL1", "TL2", "Q2_0", "Q2_0_G128", "PQ2_0", "PTQ1_0", "MXFP4", "NVFP4"]
)
def test_contested_types_survive_a_round_trip(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.gguf"
    shape = (512, 768)
    with GGUFWriter(path) as writer:
        writer.add_tensor("w", shape, kind, lambda: [bytes(1)] * nbytes(kind, shape))
        writer.add_tensor("v", shape, kind, lambda: bytes(nbytes(kind, shape)))
    model = GGUFProvider(path)
    assert [model.tensor(name).type for name in "wv"] == [kind, kind]
    assert model.tensor("w").shape == shape


def nbytes(kind: str, shape: tuple[int, int]) -> int:
    from trinity.formats.gguf_types import tensor_nbytes

    size = tensor_nbytes(kind, shape[::-1])
    assert size is not None
    return size


def test_data_may_be_bytes_chunks_or_a_function(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    values = np.arange(8, dtype="<f4")
    raw = values.tobytes()
    forms = [
        raw,
        bytearray(raw),
        memoryview(raw),
        values.reshape(2, 4),
        values.astype(">f4"),
        np.repeat(values, 2)[::2],
        [raw[:5], raw[5:]],
        iter([values[:4], values[4:]]),
        lambda: values,
        lambda: (values[i : i + 1] for i in range(8)),
    ]
    with GGUFWriter(path) as writer:
        for index, form in enumerate(forms):
            writer.add_tensor(f"t{index}", (2, 4), "F32", form, nbytes=32)  # type: ignore[arg-type]
    model = GGUFProvider(path)
    for name in model.tensor_names():
        assert model.tensor(name).data.tobytes() == raw


def test_metadata_copies_with_its_types(shared_data: Path, tmp_path: Path) -> None:
    source = GGUFProvider(shared_data / "models" / "bitnet-tiny-I2_S.gguf")
    path = tmp_path / "copy.gguf"
    with GGUFWriter(path) as writer:
        for key, value in source.metadata.items():
            writer.add(key, value, source.metadata.value_type(key))
        for name in source.tensor_names():
            tensor = source.tensor(name)
            writer.add_tensor(name, tensor.shape, tensor.type, tensor.data)
    assert path.read_bytes() == Path(source.path).read_bytes()


def test_memory_holds_one_chunk(tmp_path: Path) -> None:
    def chunks() -> Iterator[NDArray[np.float32]]:
        for _ in range(64):
            yield np.zeros(1 << 16, np.float32)

    tracemalloc.start()
    with GGUFWriter(tmp_path / "x.gguf") as writer:
        for index in range(4):
            writer.add_tensor(f"t{index}", (64, 1 << 16), "F32", chunks)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "x.gguf").stat().st_size > 4 * 64 << 18
    assert peak < 3 << 20


@pytest.mark.parametrize(
    ("shape", "kind", "message"),
    [
        ((2, 0), "F32", "impossible shape"),
        ((-1,), "F32", "impossible shape"),
        ((1, 1, 1, 1, 1), "F32", "impossible shape"),
        ((2**40, 2**40), "F32", "impossible shape"),
        ((2, 33), "Q4_0", "Q4_0 cannot hold"),
        ((512,), "TL1", "TL1 cannot hold"),
    ],
)
def test_shapes_that_cannot_be_written(
    tmp_path: Path, shape: tuple[int, ...], kind: str, message: str
) -> None:
    writer = GGUFWriter(tmp_path / "x.gguf")
    with pytest.raises(InputError, match=message):
        writer.add_tensor("t", shape, kind, b"")


def test_names_and_types_of_tensors(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "x.gguf")
    writer.add_tensor("t", (1,), "F32", bytes(4))
    writer.add("k", 1)
    with pytest.raises(InputError, match="added before"):
        writer.add_tensor("t", (1,), "F32", bytes(4))
    with pytest.raises(InputError, match="added before"):
        writer.add("k", 2)
    with pytest.raises(InputError, match="1 to 63 bytes"):
        writer.add_tensor("ä" * 32, (1,), "F32", bytes(4))
    with pytest.raises(InputError, match="1 to 63 bytes"):
        writer.add_tensor("", (1,), "F32", bytes(4))
    with pytest.raises(UnsupportedError, match="there is no tensor type 'Q9'"):
        writer.add_tensor("u", (1,), "Q9", bytes(4))
    with pytest.raises(InputError, match="takes 4 bytes in F32, not 8"):
        writer.add_tensor("u", (1,), "F32", bytes(8), nbytes=8)
    with pytest.raises(InputError, match="alignment is 3"):
        GGUFWriter(tmp_path / "y.gguf", alignment=3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytes(3), "takes 4 bytes, but its data has 3"),
        (bytes(5), "more than 4"),
        ([bytes(4)] * 1000, "more than 4"),
        (["text"], "must be bytes or arrays"),
        (np.array([None]), "no bytes to write"),
    ],
)
def test_wrong_data_leaves_the_older_file(tmp_path: Path, data: object, message: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"older")
    writer = GGUFWriter(path)
    writer.add_tensor("t", (1,), "F32", data)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        writer.finish()
    assert path.read_bytes() == b"older"
    assert os.listdir(tmp_path) == ["x.gguf"]


def test_errors_of_the_caller_leave_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"

    def fail() -> bytes:
        assert len(os.listdir(tmp_path)) == 1, "the temporary file lies in the same folder"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), GGUFWriter(path) as writer:
        writer.add_tensor("t", (1,), "F32", fail)
    with pytest.raises(KeyError), GGUFWriter(path) as writer:
        raise KeyError("in the block")
    assert os.listdir(tmp_path) == []


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder"):
        GGUFWriter(tmp_path / "absent" / "x.gguf")
    name = "x" * 300
    with (
        pytest.raises(InputError, match="cannot be written"),
        GGUFWriter(tmp_path / name) as writer,
    ):
        writer.add("k", 1)
    assert os.listdir(tmp_path) == []


def test_pipes_and_devices_are_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link", tmp_path):
        with pytest.raises(InputError, match=f"{path}: this is a folder, a pipe or a device"):
            GGUFWriter(path)
    assert pipe.is_fifo()


@pytest.mark.parametrize("exists", [True, False])
def test_links_are_followed(exists: bool, tmp_path: Path) -> None:
    link, path = tmp_path / "link.gguf", tmp_path / "folder" / "model.gguf"
    path.parent.mkdir()
    link.symlink_to(path)
    if exists:
        path.write_bytes(b"older")
    with GGUFWriter(link) as writer:
        writer.add("k", 1)
    assert link.is_symlink()
    assert path.read_bytes()[:4] == b"GGUF"
    assert os.listdir(path.parent) == ["model.gguf"]


def test_the_older_file_stays_mapped_while_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    for value in (1.0, 2.0):
        with GGUFWriter(path) as writer:
            writer.add_tensor("t", (1,), "F32", np.array([value], np.float32))
        if value == 1.0:
            older = GGUFProvider(path)
    assert older.tensor("t").data.view(np.float32)[0] == 1.0
    assert GGUFProvider(path).tensor("t").data.view(np.float32)[0] == 2.0


def test_encoded_values_pass_through(tmp_path: Path) -> None:
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"
    with GGUFWriter(first) as writer:
        for i, (value, _) in enumerate(INFERRED):
            writer.add(f"key.{i}", value)
        writer.add_tensor("t", (3,), "F32", np.arange(3, dtype="<f4"))
    with GGUFProvider(first) as given, GGUFWriter(second) as writer:
        for key in given.metadata:
            writer.add_encoded(key, given.metadata.encoded(key))
        with pytest.raises(InputError, match=r"'key\.0' was added before"):
            writer.add_encoded("key.0", b"")
        with pytest.raises(InputError, match="alignment="):
            writer.add_encoded("general.alignment", (4).to_bytes(4, "little") + bytes(4))
        tensor = given.tensor("t")
        writer.add_tensor("t", tensor.shape, tensor.type, tensor.data)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("alignment", [1, 32, 4096])
@pytest.mark.parametrize("num_tensors", [0, 1, 3])
def test_the_size_is_known_before(num_tensors: int, alignment: int, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    writer = GGUFWriter(path, alignment=alignment)
    writer.add("general.name", "x" * 77)
    for i in range(num_tensors):
        writer.add_tensor(f"t{i}", (i + 1, 7), "F16", bytes(14 * (i + 1)))
    size = writer.size_bytes
    writer.finish()
    assert path.stat().st_size == size
