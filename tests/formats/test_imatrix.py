"""Importance matrices: both formats, merging, and malformed files."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.formats import raw_gguf as raw
from tests.matrix import parts
from trinity.errors import FormatError, InputError, TrinityError
from trinity.formats.gguf_writer import GGUFWriter
from trinity.formats.imatrix import (
    Imatrix,
    ImatrixEntry,
    Position,
    check_same_shapes,
    merge,
    read_imatrix,
    write_imatrix,
)

Q, DOWN, HEAD = "blk.0.attn_q.weight", "blk.0.ffn_down.weight", "output.weight"


def entry(sums: list[float] | NDArray[np.float32], count: int = 1024) -> ImatrixEntry:
    return ImatrixEntry(np.array([sums], np.float32), np.array([count], np.int64))


def example() -> Imatrix:
    return Imatrix(
        {Q: entry([512.0, 0.0, 2048.0]), DOWN: entry([1.5, 2.5])},
        datasets=("a.txt", "ü.txt"),
        position=Position(2, "ab" * 32),
    )


def same(a: Imatrix, b: Imatrix) -> bool:
    return a.entries.keys() == b.entries.keys() and all(
        np.array_equal(a.entries[name].sums, b.entries[name].sums)
        and np.array_equal(a.entries[name].counts, b.entries[name].counts)
        for name in a.entries
    )


def test_written_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "imatrix.gguf"
    write_imatrix(path, example())
    found = read_imatrix(path)
    assert same(found, example())
    assert (found.chunk_size, found.chunk_count) == (512, 2)
    assert found.datasets == ("a.txt", "ü.txt")
    assert found.position == Position(2, "ab" * 32)
    assert list(tmp_path.iterdir()) == [path]


def test_means(tmp_path: Path) -> None:
    matrix = example()
    mean = matrix.mean(Q)
    assert mean is not None
    assert mean.dtype == np.float32
    assert mean.tolist() == [[0.5, 0.0, 2.0]]
    assert matrix.mean("token_embd.weight") is None
    unseen = Imatrix({Q: entry([0.0, 0.0], 0)}).mean(Q)
    assert unseen is not None
    assert unseen.tolist() == [[1.0, 1.0]]


def test_means_of_experts() -> None:
    stack = ImatrixEntry(np.full((4, 3), 6, np.float32), np.array([1, 0, 2, 0]))
    one = ImatrixEntry(np.zeros((1, 3), np.float32), np.array([0]))
    names = {"blk.7.ffn_up_exps.weight": stack, "blk.7.ffn_gate_up_exps.weight": stack,
             "blk.10.ffn_down.5.weight": one, "blk.2.ffn_gate_inp.weight": one}  # fmt: skip
    matrix = Imatrix(names)
    mean = matrix.mean("blk.7.ffn_up_exps.weight")
    assert mean is not None
    assert mean.tolist() == [[6.0] * 3, [1.0] * 3, [3.0] * 3, [1.0] * 3]
    assert matrix.unseen_experts == [("blk.7", 1), ("blk.7", 3), ("blk.10", 5)]


def test_the_file_is_llama_cpps(tmp_path: Path) -> None:
    """The gguf package reads the expected keys, types and dimensions."""
    path = tmp_path / "imatrix.gguf"
    write_imatrix(path, example())
    reader = gguf.GGUFReader(path)
    fields = reader.fields
    assert fields["general.type"].contents() == "imatrix"
    assert fields["imatrix.datasets"].contents() == ["a.txt", "ü.txt"]
    for key, value in (("imatrix.chunk_count", 2), ("imatrix.chunk_size", 512)):
        assert fields[key].types == [gguf.GGUFValueType.UINT32]
        assert fields[key].contents() == value
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert list(tensors) == [f"{n}{s}" for n in (Q, DOWN) for s in (".in_sum2", ".counts")]
    for name, dims, values in (
        (f"{Q}.in_sum2", [3, 1], [512, 0, 2048]),
        (f"{Q}.counts", [1, 1], [1024]),
        (f"{DOWN}.in_sum2", [2, 1], [1.5, 2.5]),
    ):
        tensor = tensors[name]
        assert tensor.tensor_type == gguf.GGMLQuantizationType.F32
        assert tensor.shape.tolist() == dims
        assert tensor.data.reshape(-1).tolist() == values


def test_what_the_gguf_package_writes_is_read(tmp_path: Path) -> None:
    """The file has experts, one count for all, means of inputs, any order and no position."""
    path = tmp_path / "imatrix.gguf"
    writer = gguf.GGUFWriter(path, "")
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["x"])
    writer.add_uint32("imatrix.chunk_count", 7)
    writer.add_uint32("imatrix.chunk_size", 4)
    writer.add_tensor("e.weight.counts", np.array([[8], [0]], np.float32))
    writer.add_tensor("e.weight.in_sum2", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("e.weight.in_sum", -np.ones((2, 3), np.float32))
    writer.add_tensor("d.weight.in_sum2", np.ones((2, 3), np.float32))
    writer.add_tensor("d.weight.counts", np.array([[8]], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = read_imatrix(path)
    assert list(found.entries) == ["e.weight", "d.weight"]
    assert found.entries["e.weight"].sums.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found.entries["e.weight"].counts.tolist() == [8, 0]
    assert found.entries["d.weight"].counts.tolist() == [8, 8]
    assert (found.chunk_size, found.chunk_count, found.position) == (4, 2, None)


def dat(
    entries: Mapping[str, tuple[int, list[float]]], tail: bytes = b"", count: int | None = None
) -> bytes:
    out = struct.pack("<i", len(entries) if count is None else count)
    for name, (calls, values) in entries.items():
        out += struct.pack("<i", len(name)) + name.encode()
        out += struct.pack(f"<ii{len(values)}f", calls, len(values), *values)
    return out + tail


TAIL = struct.pack("<ii", 3, 5) + b"a.txt"


@pytest.mark.parametrize("tail", [b"", struct.pack("<i", 3), TAIL])
def test_older_form(tmp_path: Path, tail: bytes) -> None:
    """The file has mean times calls; a call is read as a chunk of the given size."""
    path = tmp_path / "imatrix.dat"
    path.write_bytes(dat({Q: (3, [1.5, 6.0]), DOWN: (0, [0.25])}, tail))
    found = read_imatrix(path, dat_chunk_size=128)
    assert found.entries[Q].counts.tolist() == [384]
    assert found.entries[Q].sums.tolist() == [[192, 768]]
    for name, expected in ((Q, [0.5, 2.0]), (DOWN, [0.25])):
        mean = found.mean(name)
        assert mean is not None
        assert mean.tolist() == [expected]
    assert found.datasets == (("a.txt",) if tail == TAIL else ())
    assert found.chunk_count == 3


def test_merging_adds_sums_and_counts() -> None:
    other = Imatrix(
        {Q: entry([1.0, 2.0, 3.0], 512), DOWN: entry([0.0, 4.0], 512), HEAD: entry([9.0], 512)},
        datasets=("c.txt",),
    )
    for found in (merge(example(), other), merge(other, example())):
        assert found.entries[Q].sums.tolist() == [[513, 2, 2051]]
        assert found.entries[Q].counts.tolist() == [1536]
        assert found.entries[HEAD].sums.tolist() == [[9]]
        assert found.chunk_count == 3
        assert found.position is None
    assert merge(example(), other).datasets == ("a.txt", "ü.txt", "c.txt")


def test_other_models_are_refused() -> None:
    matrix = example()
    wide = Imatrix({Q: entry([1.0] * 4), DOWN: entry([0.0, 4.0])}, source="wide.gguf")
    with pytest.raises(InputError, match=r"attn_q.*\(1, 4\).*\(1, 3\).*different models"):
        merge(wide, matrix)
    with pytest.raises(InputError, match=r"has 'blk.0.ffn_down.weight', which few.gguf lacks"):
        merge(matrix, Imatrix({Q: entry([1.0] * 3)}, source="few.gguf"))
    with pytest.raises(InputError, match=r"big.gguf has 'blk.1.*', which .* lacks"):
        check_same_shapes(matrix, {Q: (1, 3), DOWN: (1, 2), "blk.1.x": (1, 2)}, "big.gguf")


def test_sums_that_leave_float32(tmp_path: Path) -> None:
    half = Imatrix({"w": ImatrixEntry(np.full((1, 4), 2e38, np.float32), np.array([512]))})
    with pytest.raises(FormatError, match="not a sum of squares"):
        write_imatrix(tmp_path / "x.gguf", merge(half, half))
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_of_bad_matrices(tmp_path: Path) -> None:
    path = tmp_path / "imatrix.gguf"
    for bad in (np.nan, np.inf, -1.0):
        with pytest.raises(FormatError, match="channel 1 "):
            write_imatrix(path, Imatrix({Q: entry([1.0, bad])}))
    with pytest.raises(InputError, match="no entries"):
        write_imatrix(path, Imatrix({}))
    with pytest.raises(InputError, match="no folder"):
        write_imatrix(tmp_path / "none" / "imatrix.gguf", example())
    assert list(tmp_path.iterdir()) == []


def keys(size: int = 512) -> list[bytes]:
    return [
        raw.key_value("general.type", raw.STRING, raw.string("imatrix")),
        raw.key_value("imatrix.chunk_size", raw.U32, raw.u32(size)),
    ]


def floats(*values: float) -> bytes:
    data = struct.pack(f"<{len(values)}f", *values)
    return data + bytes(-len(data) % 32)


BAD = {
    "truncated": (raw.gguf(keys(), [raw.info("a.in_sum2", [64])], bytes(32)), "only 32"),
    "counts are missing": (raw.gguf(keys(), [raw.info("a.in_sum2", [2])], floats(1, 2)), "counts"),
    "sums are missing": (raw.gguf(keys(), [raw.info("a.counts", [1])], floats(1)), "0 tensors"),
    "a model": (
        raw.gguf([raw.key_value("general.type", raw.STRING, raw.string("model"))]),
        "type 'model'",
    ),
    "counts of others": (
        raw.gguf(
            keys(),
            [raw.info("a.in_sum2", [1, 3]), raw.info("a.counts", [1, 2], offset=32)],
            floats(1, 2, 3) + floats(1, 2),
        ),
        "3 matrices, but 2 counts",
    ),
    "halves": (
        raw.gguf(
            keys(),
            [raw.info("a.in_sum2", [2], 1), raw.info("a.counts", [1], offset=32)],
            floats(1) + floats(1),
        ),
        "F16",
    ),
    "chunks of nothing": (
        raw.gguf(
            keys(0),
            [raw.info("a.in_sum2", [1]), raw.info("a.counts", [1], offset=32)],
            floats(1) + floats(1),
        ),
        "chunk_size is 0",
    ),
    **{
        f"{what} {value}": (
            raw.gguf(
                keys(),
                [raw.info("a.in_sum2", [1]), raw.info("a.counts", [1], offset=32)],
                floats(value if what == "sums" else 1) + floats(value if what == "counts" else 1),
            ),
            message,
        )
        for what, message in (("sums", "not a sum of squares"), ("counts", "not numbers of tokens"))
        for value in (float("nan"), float("inf"), -1.0)
    },
    "empty": (b"", "empty"),
    "three bytes": (b"\1\0\0", "not an importance matrix"),
    "text": (b"Once upon a time\n", "looks like a text file"),
    "too many entries": (dat({Q: (1, [1.0])}, count=2**31 - 1), "not an importance matrix"),
    "no entries": (dat({}, TAIL), "not an importance matrix"),
    "long name": (struct.pack("<ii", 1, 2**31 - 1) + bytes(64), "2147483647 bytes"),
    "negative name": (struct.pack("<ii", 1, -5) + bytes(64), "-5 bytes"),
    "many values": (
        dat({}, struct.pack("<i", 1) + b"a" + struct.pack("<ii", 1, 2**31 - 1), 1) + bytes(64),
        "only 64 are left",
    ),
    "negative calls": (dat({Q: (-1, [1.0])}), "-1 calls"),
    "twice": (dat({Q: (1, [1.0])})[4:].join([struct.pack("<i", 2), b"", b""]), "occurs twice"),
    "no UTF-8": (struct.pack("<ii", 1, 1) + b"\xff" + struct.pack("<iif", 1, 1, 1), "not UTF-8"),
    "cut in the values": (dat({Q: (1, [1.0] * 8)})[:-1], "only 31 are left"),
    "cut tail": (dat({Q: (1, [1.0])}, TAIL[:-1]), "only 4 are left"),
    "overflow": (dat({Q: (1, [3e38])}), "inf at channel 0"),
    "dat nan": (dat({Q: (1, [1.0, float("nan")])}), "nan at channel 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_say_what_is_wrong(case: str, tmp_path: Path) -> None:
    data, message = BAD[case]
    path = tmp_path / "bad.imatrix"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=message) as caught:
        read_imatrix(path)
    assert str(path) in str(caught.value)


def test_a_model_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "llama")
        writer.add_tensor(Q, (2, 2), "F32", np.ones((2, 2), np.float32))
    with pytest.raises(FormatError, match="type 'model'"):
        read_imatrix(path)


@pytest.mark.parametrize("seed", parts(5))
def test_damaged_files_end_in_errors(seed: int, tmp_path: Path) -> None:
    """Both forms are cut or changed: the result is a matrix or a TrinityError, in little memory."""
    path = tmp_path / "imatrix"
    write_imatrix(path, example())
    bases = [path.read_bytes(), dat({Q: (3, [1.5, 6.0]), DOWN: (2, [0.25])}, TAIL)]
    rng = random.Random(seed)
    refused = 0
    tracemalloc.start()
    for number in range(300):
        data = bytearray(bases[number % 2])
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        for _ in range(rng.randrange(1, 4)):
            if data:
                at = rng.randrange(len(data))
                data[at : at + 4] = rng.choice([b"\xff\xff\xff\x7f", b"\0\0\0\0", rng.randbytes(4)])
        path.write_bytes(data)
        try:
            read_imatrix(path)
        except TrinityError:
            refused += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused > 100
    assert peak < 1 << 20
