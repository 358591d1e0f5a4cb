"""The safetensors reader: every rule of the format, compared with the official package."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tests.formats.raw_safetensors import bfloat16, entry, file_bytes, write_safetensors
from tests.matrix import parts
from tests.processor_time import within
from trinity.errors import FormatError, InputError, TrinityError, UnsupportedError
from trinity.formats.safetensors import DTYPE_BITS, MAX_HEADER_BYTES, SafeTensorsFile


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("safetensors")


def read(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    with SafeTensorsFile(path) as file:
        tensors = [file.tensor(name) for name in file.names()]
        return {t.name: (t.dtype, t.shape, t.data.tobytes()) for t in tensors}


def official(content: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]] | None:
    """Return what the official package reads, or None if it refuses."""
    try:
        tensors = safetensors.deserialize(content)
    except safetensors.SafetensorError:
        return None
    return {n: (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for n, t in tensors}


def check_agreement(content: bytes, path: Path) -> bool:
    """Return whether the file was read; what is read must equal the official package's result."""
    path.write_bytes(content)
    try:
        ours = read(path)
    except TrinityError:
        return False
    assert ours == official(content)
    return True


ONE = entry("F32", [2], 0, 8)
LIES: dict[str, tuple[bytes, str]] = {
    "empty file": (b"", "empty"),
    "seven bytes": (b"\x02\0\0\0\0\0\0", "begins with 8 bytes of header length"),
    "header beyond the file": (file_bytes({}, length=3), "only 2 bytes follow"),
    "header of 2**63": (file_bytes({}, length=2**63), "limit"),
    "header above the limit": (file_bytes({}, length=MAX_HEADER_BYTES + 1), "limit of 16000000"),
    "no header": (file_bytes(b""), "begins with"),
    "white space first": (file_bytes(b" {}"), "begins with"),
    "a list": (file_bytes(b"[1]"), "begins with"),
    "not JSON": (file_bytes(b'{"a":'), "not valid JSON"),
    "not UTF-8": (file_bytes(b'{"\xff":1}'), "not valid JSON"),
    "a lone surrogate": (file_bytes(rb'{"\ud800":1}'), "not valid JSON"),
    "zeros behind": (file_bytes(b"{}\0\0"), "not valid JSON"),
    "nested deeply": (file_bytes(b'{"a":' + b"[" * 200_000), "nested too deeply|not valid JSON"),
    "NaN": (file_bytes(b'{"a":NaN}'), "not valid JSON"),
    "a huge number": (file_bytes('{"a":%s}' % ("9" * 5000)), "not valid JSON"),
    "a repeated name": (
        file_bytes(f'{{"a":{json.dumps(ONE)},"a":{json.dumps(ONE)}}}', bytes(8)),
        "'a' occurs twice",
    ),
    "a repeated field": (
        file_bytes('{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        "'dtype' occurs twice",
    ),
    "metadata that is no object": (file_bytes({"__metadata__": [1]}), "__metadata__"),
    "metadata with a number": (file_bytes({"__metadata__": {"a": 1}}), "__metadata__"),
    "a tensor that is a number": (file_bytes({"a": 5}), "has the entry"),
    "a missing field": (file_bytes({"a": {"dtype": "F32", "shape": [2]}}), "has the entry"),
    "a field too many": (file_bytes({"a": ONE | {"x": 1}}, bytes(8)), "has the entry"),
    "an unknown dtype": (file_bytes({"a": entry("F33", [2], 0, 8)}, bytes(8)), "F33"),
    "a dtype that is a list": (file_bytes({"a": ONE | {"dtype": ["F32"]}}, bytes(8)), "dtype"),
    "a negative size": (file_bytes({"a": entry("F32", [-2], 0, 8)}, bytes(8)), "shape"),
    "a fractional size": (file_bytes({"a": ONE | {"shape": [2.0]}}, bytes(8)), "shape"),
    "a size that is true": (file_bytes({"a": entry("F32", [True], 0, 4)}, bytes(4)), "shape"),
    "a size beyond 64 bits": (file_bytes({"a": entry("F32", [0, 2**64], 0, 0)}), "shape"),
    "a shape that wraps": (file_bytes({"a": entry("F32", [2**62, 4], 0, 0)}), "takes"),
    "one offset": (file_bytes({"a": ONE | {"data_offsets": [0]}}, bytes(8)), "data_offsets"),
    "offsets reversed": (file_bytes({"a": entry("F32", [2], 8, 0)}, bytes(8)), "takes"),
    "shape larger than offsets": (file_bytes({"a": entry("F32", [3], 0, 8)}, bytes(8)), "takes 12"),
    "dtype wider than offsets": (file_bytes({"a": entry("F64", [2], 0, 8)}, bytes(8)), "takes 16"),
    "half a byte": (file_bytes({"a": entry("F4", [3], 0, 1)}, bytes(1)), "takes 1.5"),
    "truncated": (
        file_bytes({"a": ONE}, bytes(7)),
        "describes 8 bytes.*has 7",
    ),
    "bytes behind": (file_bytes({"a": ONE}, bytes(9)), "describes 8 bytes"),
    "data without tensors": (file_bytes({}, bytes(1)), "describes 0 bytes"),
    "a hole in front": (file_bytes({"a": entry("F32", [2], 4, 12)}, bytes(12)), "a hole of 4"),
    "a hole between": (
        file_bytes({"a": ONE, "b": entry("U8", [1], 9, 10)}, bytes(10)),
        "a hole of 1 bytes between tensor 'a' and tensor 'b'",
    ),
    "an overlap": (
        file_bytes({"a": ONE, "b": entry("F32", [2], 4, 12)}, bytes(12)),
        "an overlap of 4",
    ),
    "two tensors in one place": (file_bytes({"a": ONE, "b": ONE}, bytes(8)), "an overlap of 8"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_header_that_lies_is_refused(lie: str, tmp_path: Path) -> None:
    content, message = LIES[lie]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    tracemalloc.start()

    def test() -> None:
        with pytest.raises(FormatError, match=message) as caught:
            SafeTensorsFile(path)
        assert str(path) in str(caught.value)

    try:
        within(1.0, test)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 300_000 + 100 * len(content)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        SafeTensorsFile(tmp_path / "none.safetensors")
    with pytest.raises(FormatError, match="a folder"):
        SafeTensorsFile(tmp_path)


def test_dtypes_are_the_official_ones(tmp_path: Path) -> None:
    """The official package's error message lists the dtypes that it knows."""
    with pytest.raises(safetensors.SafetensorError) as caught:
        safetensors.deserialize(file_bytes({"a": entry("?", [1], 0, 1)}, b"x"))
    listed = str(caught.value).partition("expected one of ")[2].split("`")[1::2]
    assert set(listed) <= set(DTYPE_BITS)


@pytest.mark.parametrize("dtype", DTYPE_BITS)
def test_every_dtype_reads_as_the_official_package_reads_it(dtype: str, tmp_path: Path) -> None:
    count = 8 * DTYPE_BITS[dtype] // 8
    header = {"a": entry(dtype, [2, 4], 0, count), "": entry(dtype, [0, 7], count, count)}
    content = file_bytes(header, bytes(range(count)))
    assert check_agreement(content, tmp_path / "a.safetensors") == (official(content) is not None)


def test_saved_by_the_official_package(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "scalar": np.array(2.5, np.float32),
        "empty": np.empty((0, 3), np.float16),
        "matrix": rng.standard_normal((5, 7)).astype(np.float32),
        "half": rng.standard_normal((3, 2, 2)).astype(np.float16),
        "double": rng.standard_normal(4),
        "bytes": rng.integers(0, 256, (4, 4), np.uint8),
        "name with \u00fcmlaut": np.arange(3, dtype=np.int64),
    }
    path = tmp_path / "a.safetensors"
    save_file(arrays, path, metadata={"k": "v"})
    with SafeTensorsFile(path) as file:
        assert file.metadata == {"k": "v"}
        assert set(file.names()) == set(arrays)
        for name, values in arrays.items():
            tensor = file.tensor(name)
            assert tensor.shape == values.shape
            assert tensor.data.tobytes() == values.tobytes()
            assert not tensor.data.flags.writeable
            assert not tensor.data.flags.owndata
            if values.dtype.kind == "f":
                floats = tensor.all_floats()
                assert floats.dtype == np.float32
                np.testing.assert_array_equal(floats, values.astype(np.float32))
            else:
                with pytest.raises(UnsupportedError, match=tensor.dtype):
                    tensor.all_floats()
        with pytest.raises(FormatError, match="no tensor 'x'"):
            file.tensor("x")


def test_bfloat16_and_rows(tmp_path: Path) -> None:
    values = np.arange(-6, 6, dtype=np.float32).reshape(4, 3) / 4
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"a": bfloat16(values)})
    with SafeTensorsFile(path) as file:
        tensor = file.tensor("a")
        np.testing.assert_array_equal(tensor.all_floats(), values)
        np.testing.assert_array_equal(tensor.floats(tensor.elements()[1:3]), values[1:3])
        np.testing.assert_array_equal(tensor.floats(tensor.elements()[[3, 0]]), values[[3, 0]])


def test_data_need_not_be_aligned(tmp_path: Path) -> None:
    """The header may have any length."""
    values = np.arange(5, dtype=np.float64)
    for spaces in range(8):
        raw = json.dumps({"a": entry("F64", [5], 0, 40)}).encode() + b" " * spaces
        path = tmp_path / f"{spaces}.safetensors"
        path.write_bytes(file_bytes(raw, values.tobytes()))
        with SafeTensorsFile(path) as file:
            np.testing.assert_array_equal(file.tensor("a").all_floats(), values)


def test_a_nan_that_signals_is_one_like_the_others(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    bits = np.array([0x7FF0000000000001], "<u8")
    path.write_bytes(file_bytes({"a": entry("F64", [1], 0, 8)}, bits.tobytes()))
    with SafeTensorsFile(path) as file, np.errstate(all="raise"):
        assert np.isnan(file.tensor("a").all_floats()).all()


sizes = st.one_of(st.integers(0, 5), st.sampled_from([-1, 2**31, 2**63, 2**64, 1.5, True, "1"]))
entries = st.fixed_dictionaries(
    {
        "dtype": st.one_of(st.sampled_from([*DTYPE_BITS, "F33"]), st.none()),
        "shape": st.one_of(st.lists(sizes, max_size=3), sizes),
        "data_offsets": st.lists(sizes, min_size=1, max_size=3),
    }
)
names = st.sampled_from(["a", "b", "c", "", "__metadata__", "\u00e9"])


@pytest.mark.few(1)
@pytest.mark.parametrize("part", parts(3))
@settings(max_examples=100, deadline=None)
@given(header=st.dictionaries(names, entries, max_size=4), size=st.integers(0, 40))
def test_made_headers(folder: Path, part: int, header: dict[str, object], size: int) -> None:
    check_agreement(file_bytes(header, bytes(size)), folder / "made.safetensors")


@pytest.mark.full
@settings(max_examples=200, deadline=None)
@given(
    tensors=st.lists(
        st.tuples(st.sampled_from(list(DTYPE_BITS)), st.lists(st.integers(0, 4), max_size=3)),
        max_size=5,
    ),
    shift=st.integers(-2, 2),
    order=st.randoms(use_true_random=False),
)
def test_nearly_right_headers(
    folder: Path, tensors: list[tuple[str, list[int]]], shift: int, order: random.Random
) -> None:
    """Files are well-formed or have one bound moved; both readers accept the same files."""
    header: dict[str, object] = {}
    reached = 0
    for number, (dtype, shape) in enumerate(tensors):
        size = int(np.prod(shape, dtype=np.int64)) * DTYPE_BITS[dtype] // 8
        moved = shift if number == len(tensors) - 1 else 0
        header[f"t{number}"] = entry(dtype, shape, reached, max(reached, reached + size + moved))
        reached += size
    shuffled = list(header.items())
    order.shuffle(shuffled)
    content = file_bytes(dict(shuffled), order.randbytes(reached))
    accepted = check_agreement(content, folder / "near.safetensors")
    assert accepted == (official(content) is not None)


@pytest.mark.parametrize("seed", parts(4))
def test_damaged_files(folder: Path, seed: int) -> None:
    """Bytes are changed, cut, inserted or doubled: an error, or the official reader's result."""
    rng = random.Random(seed)
    path = folder / "damaged.safetensors"
    arrays = {
        "model.norm.weight": np.arange(8, dtype=np.float32),
        "model.packed": np.arange(12, dtype=np.uint8).reshape(3, 4),
        "empty": np.empty((0, 2), np.float16),
    }
    write_safetensors(path, arrays)
    whole = path.read_bytes()
    end = len(whole) - 44  # mostly the header, where the rules are
    survived = 0
    for _ in range(400):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(end)
            kind = rng.randrange(4)
            if kind == 0:
                content[at] = rng.choice(b'\0\x01\xff"{}[]:,0123456789 eF')
            elif kind == 1:
                del content[at : at + rng.randint(1, 9)]
            elif kind == 2:
                content[at:at] = rng.randbytes(rng.randint(1, 4))
            else:
                content[at:at] = content[at : at + rng.randint(1, 30)]
        survived += check_agreement(bytes(content), path)
    assert survived < 400
