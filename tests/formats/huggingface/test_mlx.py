"""Weights quantized by MLX: values equal MLX's own bit by bit; other settings are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.formats.raw_safetensors import bfloat16, write_safetensors
from trinity.errors import ConfigError, FormatError, TrinityError, UnsupportedError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.packed.logical import LogicalCheckpoint
from trinity.formats.huggingface.packed.methods import logical_checkpoint
from trinity.formats.huggingface.packed.weight import Packed
from trinity.formats.huggingface.stored import as_it_is, rows
from trinity.formats.huggingface.values import Values

BASE = "model.layers.0.mlp.up_proj"
NAME = f"{BASE}.weight"
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
Arrays = dict[str, NDArray[Any]]


def packed_bits(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Pack codes (..., columns) into bytes, lowest bit of the first code first."""
    all_bits = np.unpackbits(codes[..., None], axis=-1, bitorder="little")[..., :bits]
    return np.packbits(all_bits.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")


def as_floats(array: NDArray[Any]) -> NDArray[np.float32]:
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def affine(
    bits: int, group: int, kind: str, shape: tuple[int, ...]
) -> tuple[Arrays, NDArray[np.float32]]:
    """Draw tensors and scales of either sign; return them with their float32 values."""
    rng = np.random.default_rng([bits, group])
    codes = rng.integers(0, 1 << bits, shape, np.uint8)
    drawn = rng.normal(size=(2, *shape[:-1], shape[-1] // group)).astype(np.float32)
    numbers = bfloat16(drawn) if kind == "BF16" else drawn.astype(f"f{4 if kind == 'F32' else 2}")
    d, m = (np.repeat(as_floats(n), group, axis=-1) for n in numbers)
    tensors = {"weight": packed_bits(codes, bits), "scales": numbers[0], "biases": numbers[1]}
    return tensors, d * codes.astype(np.float32) + m


def coded(mode: str, shape: tuple[int, ...]) -> tuple[Arrays, NDArray[np.float32]]:
    """Draw tensors of a mode whose scales are bytes."""
    rng = np.random.default_rng(5)
    group = 16 if mode == "nvfp4" else 32
    scales = rng.integers(100, 130, (*shape[:-1], shape[-1] // group), np.uint8)
    if mode == "nvfp4":
        scales = rng.integers(0, 0x7F, scales.shape, np.uint8)
    factors = e4m3(scales) if mode == "nvfp4" else 2.0 ** (scales.astype(np.float64) - 127)
    if mode == "mxfp8":
        codes = rng.integers(0, 256, shape, np.uint8)
        codes[codes & 0x7F == 0x7F] = 0
        values = e4m3(codes)
        tensors = {"weight": codes, "scales": scales}
    else:
        codes = rng.integers(0, 16, shape, np.uint8)
        values = np.where(codes > 7, -1, 1) * E2M1[codes & 7]
        tensors = {"weight": packed_bits(codes, 4), "scales": scales}
    return tensors, (values * np.repeat(factors, group, axis=-1)).astype(np.float32)


def e4m3(bytes_: NDArray[np.uint8]) -> NDArray[np.float64]:
    mantissa, exponent = bytes_ & 7, (bytes_ >> 3 & 15).astype(np.int64)
    normal = (8.0 + mantissa) * 2.0 ** (exponent - 10)
    return np.where(bytes_ > 127, -1, 1) * np.where(exponent == 0, mantissa * 2.0**-9, normal)


def logical(
    folder: Path, tensors: Arrays, columns: int, config: dict[str, Any] | None = None
) -> LogicalCheckpoint:
    """A checkpoint of one weight, whose mapping ends with the object; ``tensors`` by their names
    behind the module's, or whole."""
    arrays = {n if n.startswith(BASE) else f"{BASE}.{n}": values for n, values in tensors.items()}
    codes = arrays.get(NAME)
    dtypes = {}
    if codes is not None and codes.dtype == np.uint8:
        arrays[NAME] = np.ascontiguousarray(codes).view(np.uint32)
        dtypes = {NAME: "U32"}
    write_safetensors(folder / "model.safetensors", arrays, dtypes)
    values = Values({} if config is None else {"quantization": config}, "config.json")
    return logical_checkpoint(Checkpoint(folder), values, lambda: {NAME: columns})


def floats(packed: Packed, view: Any = as_it_is, shape: Any = None) -> NDArray[np.float32]:
    shape = packed.shape if shape is None else shape
    found: NDArray[np.float32] = np.concatenate(list(packed.floats(view, shape)))
    return found.reshape(shape)


def check(found: LogicalCheckpoint, expected: NDArray[np.float32], kind: str) -> None:
    assert found.names() == [NAME]
    packed = found.packed[NAME]
    assert (packed.shape, packed.dtype) == (expected.shape, kind)
    np.testing.assert_array_equal(floats(packed), expected)
    # Rows of a fused matrix.
    part = (*expected.shape[:-2], expected.shape[-2] - 3, expected.shape[-1])
    np.testing.assert_array_equal(floats(packed, rows(3), part), expected[..., 3:, :])


@pytest.mark.few(8)
@pytest.mark.parametrize("kind", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_affine(bits: int, group: int, kind: str, tmp_path: Path) -> None:
    tensors, expected = affine(bits, group, kind, (7, 384))
    found = logical(tmp_path, tensors, 384, {"bits": bits, "group_size": group})
    width = "8" if bits > 4 else "4_32" if group == 32 else "4"
    check(found, expected, f"AFFINE{width}_{kind}")


@pytest.mark.parametrize(
    ("mode", "kind"), [("mxfp4", "MXFP4"), ("nvfp4", "NVFP4"), ("mxfp8", "FP8")]
)
@pytest.mark.parametrize("shape", [(5, 128), (3, 5, 64)])
def test_modes_of_bytes(mode: str, kind: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    tensors, expected = coded(mode, shape)
    check(logical(tmp_path, tensors, shape[-1]), expected, kind)


def test_experts_of_affine(tmp_path: Path) -> None:
    tensors, expected = affine(5, 64, "BF16", (3, 6, 128))
    check(logical(tmp_path, tensors, 128), expected, "AFFINE8_BF16")


@pytest.mark.parametrize("shape", [(9, 128), (3, 5, 128)])
@pytest.mark.parametrize("view", [as_it_is, rows(3)])
def test_threads_write_what_pieces_are(
    shape: tuple[int, ...], view: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors, _ = affine(4, 64, "BF16", shape)
    packed = logical(tmp_path, tensors, 128).packed[NAME]
    expected = np.concatenate([piece.reshape(-1) for piece in packed.pieces(view)])
    monkeypatch.setattr("trinity.formats.huggingface.packed.weight.CHUNK_ELEMENTS", 256)
    found = np.zeros(len(expected), np.uint8)
    packed.fill(view, found)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "names",
    [("weight.scale", "weight.bias"), ("weight_scale", "weight_qbias")],
)
def test_names_of_ollama(names: tuple[str, str], tmp_path: Path) -> None:
    tensors, expected = affine(4, 32, "BF16", (4, 64))
    tensors = {
        "weight": tensors["weight"],
        **dict(zip(names, [*tensors.values()][1:], strict=True)),
    }
    # An ordinary bias is none of the weight's.
    tensors["bias"] = np.zeros(4, np.float32)
    found = logical(tmp_path, tensors, 64)
    assert found.names() == [f"{BASE}.bias", NAME]
    np.testing.assert_array_equal(floats(found.packed[NAME]), expected)


@pytest.mark.parametrize("columns", [64, 48])
@pytest.mark.parametrize(
    "names", [("scales", "global_scale"), ("weight.scale", "weight.global_scale")]
)
@pytest.mark.parametrize("of", ["all", "expert", "row"])
def test_global_scales(of: str, names: tuple[str, str], columns: int, tmp_path: Path) -> None:
    """MLX stores the largest magnitude, Ollama the factor; rows of 48 do not fill a block."""
    shape = (3, 5, columns)
    tensors, values = coded("nvfp4", shape)
    factors = np.float32([0.75, 1.5, 3])[:, None, None]
    stored = factors[:, 0, 0]
    if of == "all":
        factors, stored = factors[1:2], np.float32(1.5)
    elif of == "row":
        factors = factors * np.arange(1, 6, dtype=np.float32)[:, None]
        stored = factors[:, :, 0]
    if names[0] == "scales":
        stored = stored * np.float32(2688)
    found = (*tensors.values(), np.asarray(stored, np.float32))
    arrays = dict(zip(("weight", *names), found, strict=True))
    packed = logical(tmp_path, arrays, columns).packed[NAME]
    fits = columns == 64 and of != "row"
    assert packed.dtype == ("NVFP4" if fits else "F32")
    assert (packed.scale is not None) == fits
    np.testing.assert_array_equal(floats(packed), (values * factors).astype(np.float32))


def test_settings_of_a_module(tmp_path: Path) -> None:
    """An entry without a mode is affine; for a module without an entry, shapes decide."""
    tensors, expected = affine(8, 64, "F16", (4, 128))
    above = {"bits": 4, "group_size": 16, "mode": "nvfp4"}
    for entry in ({"bits": 8, "group_size": 64}, False):
        found = logical(tmp_path, tensors, 128, {**above, BASE: entry})
        check(found, expected, "AFFINE8_F16")
    with pytest.raises(ConfigError, match="8 bits, group_size 64, mode affine"):
        logical(tmp_path, tensors, 128, {**above, BASE: {"bits": 4, "group_size": 64}})


def without(name: str) -> Callable[[Arrays], Arrays]:
    return lambda tensors: {n: v for n, v in tensors.items() if n != name}


def changed(name: str, change: Callable[[NDArray[Any]], Any]) -> Callable[[Arrays], Arrays]:
    return lambda tensors: {**tensors, name: change(tensors[name])}


def put(place: int, value: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def change(array: NDArray[Any]) -> NDArray[Any]:
        array = array.copy()
        array.reshape(-1)[place] = value
        return array

    return change


def half(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array[..., : array.shape[-1] // 2])


@pytest.mark.parametrize(
    ("mode", "change", "error", "message"),
    [
        ("affine", without("scales"), FormatError, "there are no scales"),
        ("affine", without("biases"), FormatError, "there is no .*biases"),
        ("affine", changed("biases", half), FormatError, r"biases' is BF16 of shape \(4, 1\)"),
        ("affine", changed("scales", lambda a: a[:2]), FormatError, r"scales' has shape \(2, 2\)"),
        ("affine", changed("scales", lambda a: a[:, :0]), FormatError, r"has shape \(4, 0\)"),
        ("affine", changed("weight", lambda a: a[:, :60]), FormatError, "rows of 480 bits for 128"),
        ("affine", changed("weight", lambda a: a.reshape(-1)), FormatError, "expected rows"),
        ("affine", changed("scales", put(3, 0x7FC0)), FormatError, "infinite or NaN"),
        ("affine", changed("biases", put(3, 0x7F80)), FormatError, "infinite or NaN"),
        ("affine", changed("scales", lambda a: a.astype(np.int32)), UnsupportedError, "of I32"),
        ("mxfp4", changed("scales", put(0, 255)), FormatError, "an exponent that is NaN"),
        ("mxfp4", changed("scales", put(0, 138)), FormatError, "scale above 1024"),
        ("nvfp4", changed("scales", put(0, 0x7F)), FormatError, "scales that are NaN"),
        ("mxfp8", changed("scales", put(0, 255)), FormatError, "scales' has values that are NaN"),
        ("mxfp8", changed("weight", put(9, 0xFF)), FormatError, "weight' has values that are NaN"),
        ("mxfp4", lambda t: {**t, "biases": t["scales"]}, FormatError, "there is .*biases"),
        ("mxfp4", lambda t: {**t, "global_scale": np.ones(1, np.float32)}, UnsupportedError,
         "only in nvfp4"),
        ("nvfp4", lambda t: {**t, "global_scale": np.ones(7, np.float32)}, FormatError,
         "expected one number"),
        ("nvfp4", lambda t: {**t, "global_scale": np.full(1, np.nan, np.float32)}, FormatError,
         "infinite or NaN"),
    ],
)  # fmt: skip
def test_damaged(
    mode: str,
    change: Callable[[Arrays], Arrays],
    error: type[TrinityError],
    message: str,
    tmp_path: Path,
) -> None:
    shape = (4, 128)
    tensors, _ = affine(4, 64, "BF16", shape) if mode == "affine" else coded(mode, shape)
    with pytest.raises(error, match=message) as raised:
        floats(logical(tmp_path, change(tensors), 128).packed[NAME])
    assert "up_proj" in str(raised.value)


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"bits": "4", "group_size": 64}, ConfigError, "expected whole numbers"),
        ({"bits": 4, "group_size": True}, ConfigError, "expected whole numbers"),
        ({"bits": 4, "mode": "fp5"}, UnsupportedError, "mode 'fp5'; trinity reads affine"),
        ({"bits": 4, BASE: {"mode": 3}}, UnsupportedError, "mode 3"),
        ({"bits": 4, BASE: {"bits": 4, "group_size": 32}}, ConfigError, "says of .*group_size 32"),
    ],
)
def test_settings_that_are_none(
    config: dict[str, Any], error: type[TrinityError], message: str, tmp_path: Path
) -> None:
    tensors, _ = affine(4, 64, "BF16", (4, 128))
    with pytest.raises(error, match=message):
        logical(tmp_path, tensors, 128, config)
