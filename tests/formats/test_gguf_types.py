"""Type ids with two meanings are decided by the tensor's size, or refused."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest

from tests.formats import raw_gguf as raw
from trinity.errors import FormatError, UnsupportedError
from trinity.formats import GGUFProvider
from trinity.formats.gguf_types import Extent, decide_types, tensor_nbytes, type_id
from trinity_kernels.ggml import TYPES_BY_NAME


def decide(type_id: int, dims: tuple[int, ...], gap: int, alignment: int = 32) -> tuple[str, int]:
    (layout,) = decide_types("x.gguf", [Extent("t", type_id, dims, gap)], alignment)
    return layout


@pytest.mark.parametrize(
    ("rows", "columns", "nbytes"),
    [
        (3200, 8640, 5_794_176),
        (3200, 3200, 2_167_520),
        (8640, 3200, 5_852_192),
        (1536, 4096, 1_327_136),
        (1536, 1536, 507_936),
        (14336, 4096, 12_386_336),
        (4096, 14336, 12_277_120),
        (1024, 4096, 884_768),
        (4096, 4096, 3_538_976),
        (4096, 1536, 1_354_464),
    ],
)
def test_bitnet_cpp_sizes(rows: int, columns: int, nbytes: int) -> None:
    assert tensor_nbytes("TL2", (columns, rows)) == nbytes
    assert tensor_nbytes("TL1", (columns, rows)) == rows * columns // 4 + 32
    assert tensor_nbytes("I2_S", (columns, rows)) == rows * columns // 4 + 32


def test_block_sizes_are_those_of_the_gguf_package() -> None:
    for name in TYPES_BY_NAME:
        kind = gguf.GGMLQuantizationType.__members__.get(name)
        if kind is not None and name != "Q8_1":  # never in files; the package has an old size
            block, size = gguf.GGML_QUANT_SIZES[kind]
            assert tensor_nbytes(name, (block * 3, 5)) == 15 * size
            assert type_id(name) == kind.value


N = 512 * 512


@pytest.mark.parametrize(
    ("id_", "gap", "expected"),
    [
        (36, N // 4 + 32, ("I2_S", N // 4 + 32)),
        (38, N // 4 + 32, ("TL1", N // 4 + 32)),
        (39, N // 32 * 17, ("MXFP4", N // 32 * 17)),
        (40, N // 64 * 36, ("NVFP4", N // 64 * 36)),
        (41, N // 128 * 18, ("Q1_0", N // 128 * 18)),
        (42, N // 64 * 18, ("Q2_0", N // 64 * 18)),
        (42, N // 128 * 34, ("Q2_0_G128", N // 128 * 34)),
        (142, N // 128 * 34, ("PQ2_0", N // 128 * 34)),
        (143, N // 128 * 28, ("PTQ1_0", N // 128 * 28)),
    ],
)
def test_ids_by_length(id_: int, gap: int, expected: tuple[str, int]) -> None:
    assert decide(id_, (512, 512), gap) == expected


def test_tl2_by_length() -> None:
    nbytes = tensor_nbytes("TL2", (512, 512))
    assert nbytes is not None
    assert decide(39, (512, 512), nbytes) == ("TL2", nbytes)


@pytest.mark.parametrize(("id_", "name"), [(36, "IQ4_NL_4_4"), (38, "IQ4_NL_8_8")])
def test_removed_types_under_a_contested_id(id_: int, name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"type {name} .id {id_}., which llama.cpp removed"):
        decide(id_, (512, 512), N // 32 * 18)


@pytest.mark.parametrize(
    ("id_", "nbytes", "name"),
    [(142, 512 * (128 + 4), "IQ2_TN"), (143, 512 * (8 * 13 + 2), "IQ1_TN")],
)
def test_types_of_other_forks_under_a_contested_id(id_: int, nbytes: int, name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"type {name} .id {id_}., which only ik_llama.cpp"):
        decide(id_, (512, 512), nbytes)


@pytest.mark.parametrize(
    ("id_", "dims", "gap", "numbers"),
    [
        (36, (512, 512), 1 << 20, r"I2_S takes 65568 bytes, IQ4_NL_4_4 takes 147456 bytes"),
        (36, (512, 512), 100, r"room for 100 bytes"),
        (38, (512,), 160, "TL1 takes another row length"),
        (42, (128,), 64, "Q2_0 takes 36 bytes, Q2_0_G128 takes 34 bytes"),
        (40, (48,), 64, "NVFP4 takes another row length"),
    ],
)
def test_what_cannot_be_decided(id_: int, dims: tuple[int, ...], gap: int, numbers: str) -> None:
    with pytest.raises(FormatError, match="cannot be decided") as caught:
        decide(id_, dims, gap)
    assert numbers in str(caught.value)


def test_neighbours_decide_what_padding_hides() -> None:
    """128 elements of either Q2_0 fill 64 padded bytes; the size of a larger tensor decides."""
    for name, size in (("Q2_0", 18 * 8), ("Q2_0_G128", 34 * 4)):
        extents = [Extent("small", 42, (128,), 64), Extent("large", 42, (512, 512), 512 * size)]
        layouts = decide_types("x.gguf", extents, 32)
        assert [layout.type for layout in layouts] == [name, name]


def test_the_last_tensor_may_lack_padding_or_have_more() -> None:
    assert decide(39, (32, 3), 51)[0] == "MXFP4"
    extents = [Extent("a", 36, (512, 512), N // 4 + 32), Extent("b", 36, (512, 512), 1 << 20)]
    assert [layout.type for layout in decide_types("x", extents, 32)] == ["I2_S", "I2_S"]


def test_i2_s_view_has_codes_then_scale(tmp_path: Path) -> None:
    data = bytes(range(32)) + b"\x00\x00\x00\x40" + bytes(28)
    path = tmp_path / "i2.gguf"
    path.write_bytes(raw.gguf((), [raw.info("w", [64, 2], 36)], data))
    tensor = GGUFProvider(path).tensor("w")
    assert (tensor.type, tensor.shape, tensor.nbytes) == ("I2_S", (2, 64), 64)
    assert tensor.data[32:36].view("<f4")[0] == 2.0
