"""Ternary types: exact among each other; other weights are refused or noted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.quantization.test_quantize import content
from tests.quantization.test_quantize_refusals import changed
from tests.tiny_models import write_tiny_model
from tests.tools.golden_models import model_directory
from trinity.errors import FormatError, InputError, UnsupportedError
from trinity.formats import GGUFProvider
from trinity.quantization import quantize
from trinity.tools.convert import convert

TERNARY = ("I2_S", "TQ1_0", "TQ2_0")
PAIRS = [(a, b) for a in TERNARY for b in TERNARY if a != b]


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints in each of the three types, as `trinity convert` writes them."""
    folder = tmp_path_factory.mktemp("converted")
    for name in ("bitnet-packed", "bitnet-masters"):
        directory = model_directory(name, folder)
        for type_name in TERNARY:
            convert(directory, folder / f"{name}-{type_name}.gguf", type_name.lower())
    return folder


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["bitnet-packed", "bitnet-masters"])
@pytest.mark.parametrize(("given", "wanted"), PAIRS)
def test_it_makes_what_convert_makes(
    name: str, given: str, wanted: str, converted: Path, tmp_path: Path
) -> None:
    """The tensors have the same bytes, and the same scales are separate tensors."""
    out = tmp_path / "out.gguf"
    done = quantize(
        converted / f"{name}-{given}.gguf",
        out,
        wanted,
        token_embedding_type="F16",
        output_tensor_type="F16",
    )
    assert done.notes == ()
    assert content(out) == content(converted / f"{name}-{wanted}.gguf")
    expected = converted / f"{name}-{wanted}.gguf"
    with GGUFProvider(out) as made, GGUFProvider(expected) as like:
        assert made.metadata["general.file_type"] == like.metadata["general.file_type"]


def effective(path: Path) -> dict[str, NDArray[np.float32]]:
    """Return the layers' weights times all their scales."""
    with GGUFProvider(path) as model:
        names = model.tensor_names()
        values = {}
        for name in names:
            if name.startswith("blk.") and name.endswith(".weight") and "norm" not in name:
                values[name] = model.tensor(name).dequantize()
                scale = name.replace(".weight", ".scale")
                if scale in names:
                    values[name] = values[name] * model.tensor(scale).dequantize()
        return values


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("scale_tensors", [False, True])
@pytest.mark.parametrize(("given", "wanted"), PAIRS)
def test_no_weight_changes(
    given: str, wanted: str, scale_tensors: bool, bias: bool, tmp_path: Path
) -> None:
    source, out = tmp_path / "source.gguf", tmp_path / "out.gguf"
    write_tiny_model(
        source, arch="bitnet-b1.58", type=given, scale_tensors=scale_tensors, bias=bias,
        hidden_size=256,
    )  # fmt: skip
    quantize(source, out, wanted)
    before, after = effective(source), effective(out)
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=2e-7, err_msg=name)
    if bias:  # what is added to a bias beside a scale stays: only attention's scales are moved
        kept = [name for name in content(out) if name.endswith(".scale")]
        ffn = [name for name in content(source) if ".ffn_" in name and name.endswith(".scale")]
        assert set(ffn) <= set(kept)


@pytest.mark.parametrize("kind", ["F32", "F16"])
def test_ternary_weights_in_floats(kind: str, tmp_path: Path) -> None:
    source, out = tmp_path / "source.gguf", tmp_path / "out.gguf"
    write_tiny_model(tmp_path / "i2_s.gguf", arch="bitnet-b1.58", type="I2_S", hidden_size=256)
    quantize(tmp_path / "i2_s.gguf", source, kind, allow_requantize=True)
    quantize(source, out, "I2_S")
    before = effective(tmp_path / "i2_s.gguf")
    assert all(np.array_equal(before[name], values) for name, values in effective(out).items())
    types = {name: kind for name, (kind, *_) in content(out).items()}
    assert types["blk.0.ffn_up.weight"] == "I2_S"
    assert types["token_embd.weight"] == "F16"


def test_zeros_are_ternary(tmp_path: Path) -> None:
    source, zeros, out = (tmp_path / name for name in ("a.gguf", "b.gguf", "c.gguf"))
    write_tiny_model(source, arch="bitnet-b1.58", type="I2_S", hidden_size=256)
    name = "blk.0.attn_q.weight"
    changed(source, zeros, name, np.zeros((256, 256), np.float32), "F32")
    quantize(zeros, out, "I2_S")
    with GGUFProvider(out) as made:
        assert not made.tensor(name).dequantize().any()
        assert made.tensor(name).data[-32:-28].view("<f4")[0] != 0  # a scale that can be run


@pytest.mark.parametrize("row", [0, 255])
def test_i2_s_refuses_other_weights(row: int, tmp_path: Path) -> None:
    source, other, out = (tmp_path / name for name in ("a.gguf", "b.gguf", "c.gguf"))
    write_tiny_model(source, arch="bitnet-b1.58", type="I2_S", hidden_size=256)
    weights = np.full((256, 256), 0.5, np.float32)
    weights[row, 3] = 0.25
    changed(source, other, "blk.1.attn_q.weight", weights, "F32")
    with pytest.raises(UnsupportedError, match=r"blk.1.attn_q.weight' is not ternary: .* 0.25"):
        quantize(other, out, "I2_S")
    assert not out.exists()


def test_a_ternary_type_of_other_weights_is_remarked_on(tmp_path: Path) -> None:
    source = tmp_path / "source.gguf"
    write_tiny_model(source, hidden_size=256)
    done = quantize(source, tmp_path / "out.gguf", "TQ2_0", token_embedding_type="F16")
    assert [note[:52] for note in done.notes] == [
        "14 tensors are not ternary, such as blk.0.attn_k.wei"
    ]


def test_rows_that_do_not_fit_make_it_inexact(tmp_path: Path) -> None:
    """I2_S supports rows that TQ2_0 does not; the fallback Q4_0 rounds."""
    source = tmp_path / "source.gguf"
    write_tiny_model(source, arch="bitnet-b1.58", type="I2_S", hidden_size=128)
    with pytest.raises(InputError, match="is I2_S and would become Q4_0"):
        quantize(source, tmp_path / "out.gguf", "TQ2_0")


@pytest.mark.parametrize("wanted", ["TQ1_0", "Q4_0"])
@pytest.mark.parametrize(
    ("at", "raw", "message"),
    [
        (5, b"\xc0", "has the code 3 in rows 0 to 256"),
        (-32, b"\0\0\xc0\x7f", "has the scale nan"),
        (-32, b"\0\0\x80\xff", "has the scale -inf"),
    ],
)
def test_damaged_i2_s(at: int, raw: bytes, message: str, wanted: str, tmp_path: Path) -> None:
    source, bad = tmp_path / "source.gguf", tmp_path / "bad.gguf"
    write_tiny_model(source, arch="bitnet-b1.58", type="I2_S", hidden_size=256)
    name = "blk.1.attn_q.weight"
    data = bytearray(content(source)[name][2])
    at %= len(data)
    data[at : at + len(raw)] = raw
    bad.write_bytes(source.read_bytes().replace(content(source)[name][2], bytes(data)))
    with pytest.raises(FormatError, match=message):
        quantize(bad, tmp_path / "out.gguf", wanted, allow_requantize=True)
    assert not (tmp_path / "out.gguf").exists()


def test_a_damaged_scale_tensor(tmp_path: Path) -> None:
    source, bad = tmp_path / "source.gguf", tmp_path / "bad.gguf"
    write_tiny_model(source, arch="bitnet-b1.58", type="TQ2_0", hidden_size=256, scale_tensors=True)
    scale = np.array([np.inf], np.float32)
    changed(source, bad, "blk.0.attn_q.scale", scale, "F32")
    with pytest.raises(FormatError, match=r"attn_q\.scale' has the scale inf"):
        quantize(bad, tmp_path / "out.gguf", "I2_S")


def test_scales_that_must_be_rounded_are_told(tmp_path: Path) -> None:
    """llama.cpp multiplies the feed-forward's bias by .scale too, so a bias is not allowed."""
    source, other, out = (tmp_path / name for name in ("a.gguf", "b.gguf", "c.gguf"))
    write_tiny_model(source, arch="bitnet-b1.58", type="I2_S", hidden_size=256, bias=True)
    whole = source.read_bytes()
    for part in ("ffn_up", "attn_q"):
        data = content(source)[f"blk.0.{part}.weight"][2]
        scale = np.array([0.1], "<f4").tobytes()
        whole = whole.replace(data, data[:-32] + scale + data[-28:])
    other.write_bytes(whole)
    done = quantize(other, out, "TQ2_0")
    assert [note[:50] for note in done.notes] == [
        "the scales of 1 tensors, such as blk.0.ffn_up.weig"
    ]
    made = content(out)
    assert "blk.0.ffn_up.scale" not in made
    assert made["blk.0.attn_q.scale"][2] == np.array([0.1], "<f4").tobytes()
