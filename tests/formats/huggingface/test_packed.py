"""Quantized layouts: values equal the definitions bit by bit; others are refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.formats.huggingface.layouts import LAYOUTS, Weight, fp8, gptq, pack_quantized, positive
from tests.formats.raw_safetensors import write_safetensors
from trinity.errors import ConfigError, FormatError, TrinityError, UnsupportedError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.packed.fp8 import scale_values
from trinity.formats.huggingface.packed.logical import LogicalCheckpoint
from trinity.formats.huggingface.packed.methods import logical_checkpoint
from trinity.formats.huggingface.packed.weight import CHUNK_ELEMENTS, Packed
from trinity.formats.huggingface.stored import as_it_is, rows, transposed
from trinity.formats.huggingface.values import Values
from trinity.formats.safetensors import SafeTensor

NAME = "model.layers.0.mlp.up_proj"


def logical(folder: Path, config: dict[str, Any], weight: Weight) -> LogicalCheckpoint:
    """Return a checkpoint of this weight only."""
    tensors = {f"{NAME}.{end}": values for end, values in weight.tensors.items()}
    dtypes = {f"{NAME}.{end}": dtype for end, dtype in weight.dtypes.items()}
    write_safetensors(folder / "model.safetensors", tensors, dtypes)
    values = Values({"quantization_config": config}, "config.json")
    return logical_checkpoint(Checkpoint(folder), values, dict)


def drawn(layout: str, shape: tuple[int, int]) -> tuple[dict[str, Any], Weight]:
    config, make = LAYOUTS[layout]
    return config, make(np.random.default_rng(7), *shape)


def floats(packed: Packed, view: Any = as_it_is, rows: int | None = None) -> Any:
    shape = (packed.shape[0] if rows is None else rows, packed.shape[1])
    return np.concatenate(list(packed.floats(view, shape)))


def test_scales_that_are_exponents() -> None:
    """E8M0: 2 ** (byte - 127), and 255 is NaN. A damaged scale causes no warning."""
    exponents = np.arange(256, dtype=np.uint8)
    tensor = SafeTensor("scales", "F8_E8M0", (255,), exponents[:255], "model.safetensors")
    values = scale_values(tensor, tensor.elements())
    np.testing.assert_array_equal(values.astype(np.float64), 2.0 ** (np.arange(255) - 127))
    with pytest.raises(FormatError, match=r"'scales' has the scale .* expected finite"):
        scale_values(tensor, exponents)


@pytest.mark.few(6)
@pytest.mark.parametrize("shape", [(56, 192), (136, 320), (8, 64)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_follow_the_rule(layout: str, shape: tuple[int, int], tmp_path: Path) -> None:
    config, weight = drawn(layout, shape)
    found = logical(tmp_path, config, weight)
    assert found.names() == [f"{NAME}.weight"]
    packed = found.packed[f"{NAME}.weight"]
    assert packed.shape == shape
    np.testing.assert_array_equal(floats(packed), weight.values)


@pytest.mark.parametrize("layout", ["gptq", "ct-int4-zeros"])
def test_scales_of_32_bits(layout: str, tmp_path: Path) -> None:
    """Both products, scale times code and minimum, are rounded; the rule rounds once."""
    make = gptq if layout == "gptq" else partial(pack_quantized, zeros=True)
    weight = make(np.random.default_rng(3), 40, 128, dtype="F32")
    found = floats(logical(tmp_path, LAYOUTS[layout][0], weight).packed[f"{NAME}.weight"])
    largest = np.abs(weight.values).max()
    np.testing.assert_allclose(found, weight.values, rtol=0, atol=2**-23 * 2 * largest)


@pytest.mark.parametrize("layout", ["fp8", "awq", "gptq", "ct-int4-zeros", "ct-nvfp4"])
@pytest.mark.parametrize(("first", "stop", "step"), [(0, 60, 1), (60, None, 1), (1, None, 2)])
def test_rows_of_fused_tensors(
    layout: str, first: int, stop: int | None, step: int, tmp_path: Path
) -> None:
    config, weight = drawn(layout, (136, 192))
    packed = logical(tmp_path, config, weight).packed[f"{NAME}.weight"]
    expected = weight.values[first:stop:step]
    view = rows(first, stop, step)
    assert packed.keeps_rows(view, expected.shape)
    np.testing.assert_array_equal(floats(packed, view, len(expected)), expected)


@pytest.mark.parametrize("layout", ["fp8", "awq", "ct-nvfp4"])
def test_columns_make_floats(layout: str, tmp_path: Path) -> None:
    """DeepSeek's keys are stored transposed."""
    config, weight = drawn(layout, (64, 64))
    packed = logical(tmp_path, config, weight).packed[f"{NAME}.weight"]
    assert not packed.keeps_rows(transposed, (64, 64))
    np.testing.assert_array_equal(
        np.concatenate(list(packed.floats(transposed, (64, 64)))), weight.values.T
    )


def test_long_weights_come_in_pieces(tmp_path: Path) -> None:
    """A piece may begin anywhere within blocks and words."""
    config, columns, count = LAYOUTS["awq"][0], 1 << 17, 48
    rng = np.random.default_rng(5)
    words = rng.integers(-(1 << 31), 1 << 31, (columns, count // 8)).astype(np.int32)
    zeros = rng.integers(-(1 << 31), 1 << 31, (columns // 64, count // 8)).astype(np.int32)
    scales = positive(rng, columns // 64, count).astype(np.float16)
    weight = Weight({"qweight": words, "qzeros": zeros, "scales": scales}, np.empty(0, np.float32))
    packed = logical(tmp_path, config, weight).packed[f"{NAME}.weight"]
    pieces = list(packed.pieces(as_it_is))
    step = CHUNK_ELEMENTS // columns
    assert 1 < len(pieces) == -(-count // step)
    assert [len(piece) for piece in pieces[:-1]] == [step] * (len(pieces) - 1)
    whole = floats(packed)
    for row in (0, 31, 32, 47):
        nibble = (0, 4, 1, 5, 2, 6, 3, 7)[row % 8]
        code, zero = (part[:, row // 8] >> 4 * nibble & 15 for part in (words, zeros))
        expected = (code - zero.repeat(64)) * scales[:, row].astype(np.float32).repeat(64)
        np.testing.assert_array_equal(whole[row], expected.astype(np.float32))


def changed(layout: str, end: str, value: Any, dtype: str | None = None) -> Any:
    """Return a layout's weight with one tensor replaced or removed."""
    config, weight = drawn(layout, (64, 128))
    if value is None:
        del weight.tensors[end]
    else:
        weight.tensors[end] = value(weight.tensors.get(end))
        weight.dtypes.pop(end, None)
        if dtype is not None:
            weight.dtypes[end] = dtype
    return config, weight


def _with(index: tuple[int, ...], value: Any) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        copy = array.copy()
        copy[index] = value
        return copy

    return change


INV, SCALE = "weight_scale_inv", "weight_scale"
DAMAGED = {
    "no scales": ("fp8", INV, None, None, FormatError, f"no '{NAME}.weight_scale_inv'"),
    "no codes": ("fp8", "weight", None, None, FormatError, "which is not there"),
    "scales of something else": (
        "fp8", "weight", lambda a: np.zeros((64, 128), np.float32), None, FormatError,
        "is a scale of .* which is F32",
    ),
    "a scale too many": ("fp8", INV, lambda a: np.ones((2, 1), np.float32), None, FormatError,
                         r"has shape \(2, 1\).*expected \(1, 1\) for blocks"),
    "a scale that is NaN": ("fp8", INV, _with((0, 0), np.nan), None, FormatError, "the scale nan"),
    "scales of integers": ("fp8", INV, lambda a: np.ones((1, 1), np.int32), None,
                           UnsupportedError, "is I32; expected scales in F32"),
    "a code that is NaN": ("fp8", "weight", _with((3, 4), 0xFF), "F8_E4M3", FormatError,
                           "codes that are NaN"),
    "no zero points": ("gptq", "qzeros", None, None, FormatError, "there is no .*qzeros"),
    "no qweight": ("awq", "qweight", None, None, FormatError, "no .*qweight"),
    "scales of no groups": ("gptq", "scales", lambda a: a[:0], None, FormatError, "expected"),
    "other groups": ("awq", "scales", lambda a: a[:1], None, FormatError, "expected I32"),
    "infinite scale": ("awq", "scales", _with((0, 1), np.inf), None, FormatError, "scale inf"),
    "zero points of 3 bits": ("gptq", "qzeros", lambda a: a[:, :6], None, UnsupportedError,
                              "codes of 3 bits"),
    "act-order": (
        "gptq", "g_idx", lambda a: a[::-1].copy(), None, UnsupportedError, "act-order, desc_act"
    ),
    "g_idx of another length": ("gptq", "g_idx", lambda a: a[:-1], None, FormatError, "expected"),
    "words of floats": ("gptq", "qweight", lambda a: a.view(np.float32), None, FormatError,
                        "is F32 of shape"),
    "no weight_shape": ("ct-int4-g64", "weight_shape", None, None, FormatError, "a weight_shape"),
    "a weight_shape that lies": (
        "ct-int4-g64", "weight_shape", lambda a: a * 3, None, UnsupportedError, "16 words for 384"
    ),
    "no packed codes": ("ct-int4-g64", "weight_packed", None, None, FormatError, "is neither"),
    "no packed scales": ("ct-int4-g64", SCALE, None, None, FormatError, "there is no"),
    "zero points of floats": (
        "ct-int4-zeros", "weight_zero_point", lambda a: a.view(np.float32), None, FormatError,
        "expected I32",
    ),
    "a global scale of 0": (
        "ct-nvfp4", "weight_global_scale", lambda a: a * 0, None, FormatError, "divided by"
    ),
    "two global scales": (
        "modelopt-nvfp4", "weight_scale_2", lambda a: np.ones(2, np.float32), None, FormatError,
        "expected one number",
    ),
    "no global scale": (
        "modelopt-nvfp4", "weight_scale_2", None, None, FormatError, "expected both scales"
    ),
    "a negative scale of NVFP4": (
        "modelopt-nvfp4", SCALE, _with((0, 0), 0x90), "F8_E4M3", FormatError, "scales that are NaN"
    ),
    "scales of NVFP4 in floats": (
        "modelopt-nvfp4", SCALE, lambda a: a.astype(np.float32), None, FormatError,
        "expected F8_E4M3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_weights(case: str, tmp_path: Path) -> None:
    layout, end, value, dtype, error, message = DAMAGED[case]
    config, weight = changed(layout, end, value, dtype)
    with pytest.raises(error, match=message) as caught:
        floats(logical(tmp_path, config, weight).packed[f"{NAME}.weight"])
    assert NAME in str(caught.value)
    assert "model.safetensors" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128]}, ConfigError, "two whole numbers"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, ConfigError, "two whole numbers"),
        ({"quant_method": "fp8", "fmt": "e5m2"}, UnsupportedError, "fmt is 'e5m2'"),
        ({"quant_method": "gptq", "checkpoint_format": "marlin"}, UnsupportedError, "'marlin'"),
        ({"quant_method": "gptq", "bits": 3}, ConfigError, "bits is 3"),
        ({"quant_method": "awq", "version": "gemv"}, UnsupportedError, "version is 'gemv'"),
        ({"quant_method": "awq", "version": 4}, ConfigError, "version"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, UnsupportedError, "W4A8_AWQ"),
        ({"quant_method": "compressed-tensors", "format": "marlin-24"}, UnsupportedError,
         "format is 'marlin-24'"),
        ({"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24"}},
         UnsupportedError, "sparsity_config"),
        ({"quant_method": "compressed-tensors", "config_groups": 5}, ConfigError, "config_groups"),
    ],
)  # fmt: skip
def test_configurations_that_are_refused(
    config: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    weight = gptq(np.random.default_rng(1), 64, 128)
    with pytest.raises(error, match=message):
        logical(tmp_path, config, weight)


def test_rows_that_are_no_whole_blocks(tmp_path: Path) -> None:
    weight = fp8(np.random.default_rng(1), 16, 48, scale=INV)
    with pytest.raises(UnsupportedError, match="rows of 48 weights"):
        logical(tmp_path, {"quant_method": "fp8"}, weight)


def test_scales_of_activations_and_caches_are_left_out(tmp_path: Path) -> None:
    config, weight = drawn("modelopt-nvfp4", (64, 64))
    weight.tensors |= dict.fromkeys(("input_scale", "k_scale"), np.ones(1, np.float32))
    found = logical(tmp_path, config, weight)
    assert found.names() == [f"{NAME}.weight"]
    assert [note for note in found.notes if "1 scales for a quantized KV cache" in note]


def test_a_weight_that_is_there_twice(tmp_path: Path) -> None:
    config, weight = drawn("awq", (64, 64))
    weight.tensors["weight"] = np.ones((64, 64), np.float32)
    with pytest.raises(FormatError, match="quantized and unquantized"):
        logical(tmp_path, config, weight)


HOSTILE = (
    None,
    True,
    0,
    -1,
    3,
    1 << 70,
    0.5,
    "x",
    "",
    [],
    [0],
    [1 << 40, 1],
    [1 << 70, 1 << 70],
    {},
    {"a": []},
)
KEYS = ("bits", "w_bit", "group_size", "weight_block_size", "fmt", "checkpoint_format", "version",
        "quant_algo", "format", "config_groups", "sparsity_config", "dynamic")  # fmt: skip


@pytest.mark.few(3)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_hostile_configurations(layout: str, tmp_path: Path) -> None:
    config, weight = drawn(layout, (16, 128))
    for key in KEYS:
        for value in HOSTILE:
            read_or_refused(tmp_path, {**config, key: value}, weight)


@pytest.mark.few(3)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_hostile_tensors(layout: str, tmp_path: Path) -> None:
    """Shapes, dtypes, bytes and sets of tensors are changed."""
    rng = np.random.default_rng(9)
    for _ in range(60):
        config, weight = drawn(layout, (16, 128))
        for _ in range(rng.integers(1, 3)):
            mutate(rng, weight)
        read_or_refused(tmp_path, config, weight)


def mutate(rng: np.random.Generator, weight: Weight) -> None:
    names = list(weight.tensors)
    if not names:
        return
    name = names[rng.integers(len(names))]
    array = weight.tensors[name]
    match rng.integers(6):
        case 0:
            del weight.tensors[name]
        case 1:
            weight.tensors[name] = array.reshape(-1)
        case 2:
            weight.tensors[name] = (
                array[..., : rng.integers(max(1, array.shape[-1] + 1))]
                if (array.ndim)
                else array.reshape(1, 1)
            )
        case 3:
            kinds = ("F32", "F16", "BF16", "I32", "U8", "I8", "I64", "F8_E4M3", "F8_E8M0", "BOOL")
            of_size = {1: kinds[4:6] + kinds[7:], 2: kinds[1:3], 4: kinds[:4:3], 8: kinds[6:7]}
            found = of_size[array.itemsize]
            weight.dtypes[name] = found[rng.integers(len(found))]
        case 4:
            raw = rng.integers(0, 256, array.nbytes).astype(np.uint8)
            weight.tensors[name] = raw.view(array.dtype).reshape(array.shape)
        case _:
            other = names[rng.integers(len(names))]
            weight.tensors[name], weight.tensors[other] = weight.tensors[other], array


def read_or_refused(folder: Path, config: dict[str, Any], weight: Weight) -> None:
    with suppress(TrinityError):
        for packed in logical(folder, config, weight).packed.values():
            assert floats(packed).shape == packed.shape
