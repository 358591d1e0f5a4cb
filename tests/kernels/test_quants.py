"""Every quantization type: layout, known blocks, the gguf package, round trips."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize as gguf_dequantize
from gguf.quants import quantize as gguf_quantize
from numpy.typing import NDArray

from tests.kernels.known_codebook_blocks import known_codebook_blocks
from tests.kernels.known_super_blocks import known_super_blocks
from tests.matrix import KINDS, some
from trinity_kernels import quants
from trinity_kernels.ggml import TYPES_BY_NAME
from trinity_kernels.quants import TYPES, QuantType, codebooks

ALL = pytest.mark.parametrize("quant", TYPES.values(), ids=TYPES.keys())
WRITTEN = pytest.mark.parametrize(
    "quant", [t for t in TYPES.values() if t.encode_blocks], ids=lambda t: t.name
)


def shared_with_gguf(convert: Callable[..., object], *dtype: type) -> pytest.MarkDecorator:
    """Return the types that the gguf package can convert in that direction."""
    shared = []
    for quant in TYPES.values():
        data = np.zeros((1, quant.type_size), np.uint8)
        if dtype:
            data = np.zeros((1, quant.block_size), *dtype)
        try:
            convert(data, gguf.GGMLQuantizationType[quant.name])
        except (KeyError, NotImplementedError):
            continue
        shared.append(quant)
    kept = [quant for quant in shared if quant.name in KINDS]
    return pytest.mark.parametrize("quant", some(shared, kept), ids=lambda t: t.name)


# Types that no GGUF file has.
AFFINE = {name for name in TYPES if name.startswith("AFFINE")}
# Types of activations, and layouts that are others' alone.
NOT_IN_GGML = {
    "Q8_1", "Q8_K", "I2_S", "I2_S_ARM", "Q2_0_G128", "PQ2_0", "PTQ1_0", "FP8"
} | AFFINE  # fmt: skip
HALF = np.float16(0.5).tobytes()


def known_blocks() -> dict[str, tuple[bytes, list[float]]]:
    """Return a tensor's bytes, written by hand, and its values by type."""
    nibbles = bytes(range(16))  # low nibbles 0..15, high nibbles 0
    low_first = [(i - 8) / 2 for i in range(16)] + [-4.0] * 16
    return {
        **known_super_blocks(),
        **known_codebook_blocks(),
        "F32": (np.array([1.5, -2], np.float32).tobytes(), [1.5, -2.0]),
        "F16": (b"\x00\x3c\x00\xc0", [1.0, -2.0]),
        "BF16": (b"\x80\x3f\x00\xc0", [1.0, -2.0]),
        "Q4_0": (HALF + nibbles, low_first),
        "Q4_1": (
            HALF + np.float16(3).tobytes() + nibbles,
            [3 + i / 2 for i in range(16)] + [3.0] * 16,
        ),
        # The fifth bits of elements 1 and 16.
        "Q5_0": (
            HALF + (1 << 1 | 1 << 16).to_bytes(4, "little") + nibbles,
            [(i - 16 + 16 * (i == 1)) / 2 for i in range(16)] + [0.0] + [-8.0] * 15,
        ),
        "Q5_1": (
            HALF + np.float16(3).tobytes() + (1 << 1 | 1 << 16).to_bytes(4, "little") + nibbles,
            [3 + (i + 16 * (i == 1)) / 2 for i in range(16)] + [11.0] + [3.0] * 15,
        ),
        "Q8_0": (
            HALF + bytes(range(240, 256)) + bytes(16),
            [-8 + i / 2 for i in range(16)] + [0.0] * 16,
        ),
        # 0b00011000: top bits first, the codes 0 1 2 0.
        **affine_blocks(),
        # Zeros, subnormal codes, the smallest normal one, 1, 1.125 and 448, of both signs.
        "FP8": (
            np.float32(2).tobytes()
            + bytes([0, 1, 7, 8, 0x38, 0x39, 0x7E, 0x70])
            + bytes([0x80, 0x81, 0x87, 0x88, 0xB8, 0xB9, 0xFE, 0xF0])
            + bytes(16),
            [s * v for s in (2.0, -2.0) for v in (0, 2**-9, 7 * 2**-9, 2**-6, 1, 1.125, 448, 128)]
            + [0.0] * 16,
        ),
        "I2_S": (
            bytes([0b00011000]) * 32 + np.float32(2).tobytes() + b"\xff" * 28,
            [v for v in (-2.0, 0.0, 2.0, -2.0) for _ in range(32)],
        ),
        "I2_S_ARM": (
            bytes([0b00011000]) * 16 + np.float32(2).tobytes() + b"\xff" * 28,
            [v for v in (-2.0, 0.0, 2.0, -2.0) for _ in range(16)],
        ),
        # The same byte, lowest bits first: 0 2 1 0.
        "TQ2_0": (
            bytes([0b00011000]) * 64 + HALF,
            [v for _ in range(2) for v in (-0.5, 0.5, 0.0, -0.5) for _ in range(32)],
        ),
        # 0 1 2 0 1 in base 3 is 46, 46 / 243 is 49 / 256 rounded up; 0 1 2 0 0 is 45, 48 / 256.
        "TQ1_0": (bytes([49]) * 48 + bytes([48]) * 4 + HALF, trits(32, 16, 4)),
        "PTQ1_0": (bytes([49]) * 24 + bytes([48]) * 2 + HALF, trits(16, 8, 2)),
    }


def trits(*widths: int) -> list[float]:
    """Return values of so many bytes of trits; the last bytes have one less."""
    numbers = (-0.5, 0.0, 0.5, -0.5, 0.0)
    of_bytes = [(widths[0], numbers), (widths[1], numbers), (widths[2], numbers[:4])]
    return [v for width, values in of_bytes for v in values for _ in range(width)]


def affine_blocks() -> dict[str, tuple[bytes, list[float]]]:
    """Return blocks of scale -0.5 and minimum 3; 4-bit neighbours share a byte."""
    numbers = {
        "BF16": b"\x00\xbf\x40\x40",
        "F16": np.array([-0.5, 3], "<f2").tobytes(),
        "F32": np.array([-0.5, 3], "<f4").tobytes(),
    }
    pairs = [3 - code / 2 for i in range(32) for code in (i % 16, i // 16 + 5)]
    packed = bytes(i % 16 + 16 * (i // 16 + 5) for i in range(32))
    high = [3 - i / 2 for i in range(224, 256)]
    return {
        **{f"AFFINE4_{n}": (b + packed, pairs) for n, b in numbers.items()},
        **{f"AFFINE4_32_{n}": (b + packed[:16], pairs[:32]) for n, b in numbers.items()},
        **{f"AFFINE8_{n}": (b + bytes(range(224, 256)), high) for n, b in numbers.items()},
    }


def random_tensor(quant: QuantType, rows: int, row_blocks: int) -> NDArray[np.uint8]:
    """Return random bytes whose half-precision fields take all finite values."""
    rng = np.random.default_rng(7)
    blocks = np.frombuffer(rng.bytes(rows * row_blocks * quant.type_size), quant.block).copy()
    finite = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = rng.permutation(finite[np.isfinite(finite)])
    for field in quant.block.fields or {}:
        if quant.block[field] == np.dtype("<f2"):
            blocks[field] = np.resize(finite, len(blocks))
        elif quant.block[field] == np.dtype("<f4"):
            blocks[field] = rng.standard_normal(len(blocks)).astype(np.float32)
    return blocks.view(np.uint8)


def random_values(quant: QuantType, rows: int, row_blocks: int) -> NDArray[np.float32]:
    """Return normally distributed values, or ternary ones for ternary types."""
    rng = np.random.default_rng(8)
    shape = (rows, row_blocks * quant.block_size)
    if quant.ternary:
        return (rng.integers(-1, 2, shape) * 0.0173).astype(np.float32)
    return rng.standard_normal(shape).astype(np.float32)


def same_bits(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    return a.dtype == b.dtype and np.array_equal(a.view(np.uint32), b.view(np.uint32))


@ALL
def test_block_agrees_with_the_table_of_ggml(quant: QuantType) -> None:
    if quant.name in AFFINE:
        numbers = 8 if quant.name.endswith("F32") else 4
        blocks = 64 // quant.block_size
        assert quant.nbytes((3, 64)) == 3 * (blocks * numbers + 8 * int(quant.name[6]))
        assert quant.name not in TYPES_BY_NAME
    elif quant.name == "FP8":
        assert quant.nbytes((3, 64)) == 6 * 36
        assert quant.name not in TYPES_BY_NAME
    elif quant.name in ("Q2_0_G128", "PQ2_0", "PTQ1_0"):
        assert quant.nbytes((3, 512)) == 3 * 512 // 128 * (28 if quant.name == "PTQ1_0" else 34)
    elif quant.tensor_scale:
        assert 4 * quant.type_size == quant.block_size
        assert quant.nbytes((640, 2560)) == 640 * 2560 // 4 + 32 == 409_632
    else:
        row = TYPES_BY_NAME[quant.name]
        assert (row.block_size, row.type_size) == (quant.block_size, quant.block.itemsize)
        assert quant.nbytes((3, 512)) == 3 * 512 // row.block_size * row.type_size


@ALL
def test_known_block(quant: QuantType) -> None:
    data, values = known_blocks()[quant.name]
    expected = np.array(values, np.float32)
    raw = np.frombuffer(data, np.uint8)
    assert np.array_equal(quants.dequantize(quant.name, raw, expected.shape), expected)
    # The same behind an odd address, as in a file's mapping.
    shifted = np.frombuffer(b"\0" + data, np.uint8)[1:]
    assert np.array_equal(quants.dequantize(quant.name, shifted, expected.shape), expected)


@pytest.mark.few(2)
@shared_with_gguf(gguf_dequantize)
def test_dequantize_equals_gguf_bit_for_bit(quant: QuantType) -> None:
    rows, row_blocks = (64, 2048) if quant.block_size == 1 else (64, 1024)
    data = random_tensor(quant, rows, row_blocks)
    shape = (rows, row_blocks * quant.block_size)
    # The largest of MXFP4's scales are beyond float32; IQ1_M's, in four parts, are any bits.
    with np.errstate(over="ignore", invalid="ignore"):
        expected = gguf_dequantize(
            data.reshape(rows, -1).copy(), gguf.GGMLQuantizationType[quant.name]
        ).astype(np.float32)
    assert same_bits(quant.dequantize(data, shape), expected)


def ggml_blocks() -> dict[str, NDArray[Any]]:
    """Return ggml's blocks and their values (tests/goldens/ggml_blocks.py)."""
    with np.load(Path(__file__).parents[1] / "data" / "ggml_blocks.npz") as found:
        return dict(found)


@ALL
def test_dequantize_equals_ggml_bit_for_bit(quant: QuantType) -> None:
    known = ggml_blocks()
    if f"{quant.name}.data" not in known:
        assert quant.block_size == 1 or quant.name in NOT_IN_GGML
        return
    data, expected = known[f"{quant.name}.data"], known[f"{quant.name}.values"]
    assert same_bits(quant.dequantize(data, expected.shape), expected)


@shared_with_gguf(gguf_quantize, np.float32)
@pytest.mark.parametrize("magnitude", [1.0, 1e-7, 3e4])
def test_quantize_equals_gguf_bit_for_bit(quant: QuantType, magnitude: float) -> None:
    rng = np.random.default_rng(9)
    values = (rng.standard_normal((33, 1024)) * magnitude).astype(np.float32)
    values[3] = 0.0
    values[4] = values[5] = np.round(values[5] / magnitude) * np.float32(magnitude)
    values[6, 1:] = 0.0
    values[7] = 1.0
    kind = gguf.GGMLQuantizationType[quant.name]
    with np.errstate(over="ignore"):  # the largest scales overflow half precision, in both
        expected = gguf_quantize(values, kind).reshape(-1).view(np.uint8)
    assert np.array_equal(quants.quantize(quant.name, values), expected)


@pytest.mark.parametrize("name", ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1"])
def test_codebooks_equal_gguf(name: str) -> None:
    source = getattr(gguf.quants, "IQ1_S" if name == "IQ1" else name)
    source.init_grid()
    grid = getattr(codebooks, name)
    assert grid.dtype == np.int8
    assert np.array_equal(grid, source.grid.reshape(source.grid_shape))


def test_bf16_quantize_equals_gguf_on_every_upper_half() -> None:
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    bits = np.concatenate([upper | low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    values = bits.view(np.float32).reshape(-1, 512)
    expected = gguf_quantize(values, gguf.GGMLQuantizationType.BF16)
    assert np.array_equal(quants.quantize("BF16", values), expected.reshape(-1))


@pytest.mark.parametrize(("name", "width"), [("I2_S", 32), ("I2_S_ARM", 16)])
@pytest.mark.parametrize("shape", [(640, 256), (8, 96), (3, 2, 128), (128,)])
def test_i2_s_equals_an_independent_formula(name: str, width: int, shape: tuple[int, ...]) -> None:
    """The formula uses flat indices; with (8, 96) blocks cross row boundaries."""
    n = int(np.prod(shape))
    rng = np.random.default_rng(10)
    scale = np.float32(0.0371)
    data = np.concatenate(
        [
            rng.integers(0, 256, n // 4, dtype=np.uint8),
            np.array([scale]).view(np.uint8),
            rng.integers(0, 256, 28, dtype=np.uint8),
        ]
    )
    index = np.arange(n)
    block, within = np.divmod(index, 4 * width)
    group, byte = np.divmod(within, width)
    codes = data[block * width + byte].astype(int) // 4 ** (3 - group) % 4
    expected = ((codes - 1).astype(np.float32) * scale).reshape(shape)
    assert same_bits(quants.dequantize(name, data, shape), expected)
    assert quants.nbytes(name, shape) == n // 4 + 32


@WRITTEN
def test_round_trip_stays_within_the_stated_error(quant: QuantType) -> None:
    values = random_values(quant, 33, 8 if quant.block_size > 1 else 300)
    data = quant.quantize(values)
    assert data.dtype == np.uint8
    assert data.shape == (quant.nbytes(values.shape),)
    error = quant.dequantize(data, values.shape) - values
    rmse = float(np.sqrt(np.mean(error**2) / np.mean(values**2)))
    assert rmse <= quant.max_rmse
    # A bound that says little would hide a broken quantizer.
    assert quant.max_rmse <= 3 * rmse + 1e-9
    assert np.array_equal(quant.quantize(quant.dequantize(data, values.shape)), data) or (
        quant.name in {"Q4_1", "Q5_1", "Q8_1", "Q8_K"}  # the scale's rounding may move a code
    )


@WRITTEN
def test_zeros_and_empty_tensors(quant: QuantType) -> None:
    zeros = np.zeros((2, quant.block_size), np.float32)
    assert np.array_equal(quant.dequantize(quant.quantize(zeros), zeros.shape), zeros)
    for shape in [(0, quant.block_size), (2, 0)]:
        data = quant.quantize(np.zeros(shape, np.float32))
        assert quant.dequantize(data, shape).shape == shape


@ALL
def test_any_bytes_dequantize_without_a_warning(quant: QuantType) -> None:
    data = np.frombuffer(
        np.random.default_rng(11).bytes(quant.nbytes((64, quant.block_size * 16))), np.uint8
    )
    values = quant.dequantize(data, (64, quant.block_size * 16))
    assert values.shape == (64, quant.block_size * 16)
    full = np.full(quant.nbytes((quant.block_size,)), 255, np.uint8)
    quant.dequantize(full, (quant.block_size,))


@ALL
def test_wrong_sizes_are_value_errors(quant: QuantType) -> None:
    shape = (2, quant.block_size)
    good = quant.nbytes(shape)
    for length in (0, good - 1, good + 1):
        with pytest.raises(ValueError, match=f"{quant.name}: {length} bytes"):
            quant.dequantize(np.zeros(length, np.uint8), shape)
    if quant.block_size > 1:
        for bad in ((quant.block_size + 1,), (1, quant.block_size // 2)):
            with pytest.raises(ValueError, match=f"{quant.name} holds blocks"):
                quant.nbytes(bad)
            if quant.encode_blocks:
                with pytest.raises(ValueError, match=f"{quant.name} holds blocks"):
                    quant.quantize(np.zeros(bad, np.float32))


@ALL
def test_large_tensors_need_little_beyond_the_result(quant: QuantType) -> None:
    shape = (512, 8192)
    data = np.zeros(quant.nbytes(shape), np.uint8)
    tracemalloc.start()
    try:
        result = quant.dequantize(data, shape)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < result.nbytes + (4 << 20)


def test_unknown_names_are_key_errors() -> None:
    with pytest.raises(KeyError):
        quants.dequantize("Q4_7", np.zeros(18, np.uint8), (32,))
    with pytest.raises(KeyError):
        quants.quantize("Q4_7", np.zeros((1, 32), np.float32))
    with pytest.raises(KeyError):
        quants.nbytes("Q4_7", (32,))


def test_a_type_without_a_quantizer_says_so() -> None:
    reader = QuantType(
        name="X",
        block_size=1,
        block=np.dtype([("x", "<f4")]),
        decode_blocks=TYPES["F32"].decode_blocks,
        encode_blocks=None,
        max_rmse=0.0,
        source="",
    )
    with pytest.raises(NotImplementedError, match="does not write"):
        reader.quantize(np.zeros((1, 4), np.float32))


def test_every_known_ternary_byte_of_tq1_0_round_trips() -> None:
    """All 243 values of a byte are tested at every position of the block's three parts."""
    digits = np.array(list(itertools.product((-1, 0, 1), repeat=5)), np.float32)
    values = np.zeros((243, 256), np.float32)
    values[:, :160] = np.repeat(digits, 32, axis=1)
    values[:, 160:240] = np.repeat(digits, 16, axis=1)
    values[:, 240:] = np.repeat(digits[:, :4], 4, axis=1)
    # The all-zero block keeps its scale of 0 and its values too.
    data = quants.quantize("TQ1_0", values)
    assert np.array_equal(quants.dequantize("TQ1_0", data, values.shape), values)
