"""Models in TL1 and TL2 give the logits of the same model in I2_S bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.kernels.tl_writer import write_tl
from tests.tiny_models import write_tiny_model
from trinity.errors import FormatError, InputError, UnsupportedError
from trinity.formats.gguf_writer import GGUFWriter
from trinity.providers import open_weights
from trinity_kernels.quants.tl import Tiling

TOKENS = np.array([1, 5, 300, 270, 44, 9], np.int32)
SHAPES = ((256, 256), (512, 256), (256, 512), (128, 256))
TILES: dict[str, Mapping[tuple[int, int], Tiling]] = {
    "TL1": {(m, k): (64, 128, 32) if k == 512 else (128, 64, 64) for m, k in SHAPES},
    "TL2": {(m, k): (64, 96, 32) if k == 256 else (128, 96, 32) for m, k in SHAPES},
}


def stored_as(type_name: str, source: Path, path: Path) -> None:
    """The model at ``source`` with its I2_S tensors in another layout."""
    with open_weights(source) as provider, GGUFWriter(path) as writer:  # type: ignore[attr-defined]
        for key in provider.metadata:
            writer.add(key, provider.metadata[key])
        for name in provider.tensor_names():
            tensor = provider.tensor(name)
            kind, data = tensor.type, tensor.data
            if kind == "I2_S":
                scale = float(data[-32:-28].view("<f4")[0])
                w = np.rint(tensor.dequantize() / scale).astype(np.int8)
                m, k = w.shape
                kind, data = type_name, write_tl(type_name, w, TILES[type_name][m, k], scale)
            writer.add_tensor(name, tensor.shape, kind, data)


def write_config(path: Path, tiles: Mapping[tuple[int, int], Tiling]) -> None:
    lines = []
    for number, ((m, k), (bm, bk, bmm)) in enumerate(tiles.items()):
        lines.append(f"[Kernels_{number}]\nm = {m}\nk = {k}\nbm = {bm}\nbk = {bk}\nbmm = {bmm}\n")
    path.write_text("\n".join(lines))


@pytest.mark.parametrize("type_name", ["TL1", "TL2"])
def test_logits_of_i2_s(tmp_path: Path, type_name: str) -> None:
    source, path, config = (tmp_path / name for name in ("i2s.gguf", "tl.gguf", "kernels.ini"))
    write_tiny_model(source, arch="bitnet-b1.58", type="I2_S", hidden_size=256)
    stored_as(type_name, source, path)
    write_config(config, TILES[type_name])
    with trinity.load(source) as model:
        expected = model.logits(TOKENS.tolist())
    with trinity.load(path, tl_config=config) as model:
        assert np.array_equal(model.logits(TOKENS.tolist()), expected)
    with pytest.raises(UnsupportedError, match="--tl-config"):
        trinity.load(path)
    swapped = {shape: (tiles[0], 24, 32) for shape, tiles in TILES[type_name].items()}
    write_config(config, swapped)
    with pytest.raises(UnsupportedError, match="tiles"):
        trinity.load(path, tl_config=config)


@pytest.mark.full
@pytest.mark.parametrize("type_name", ["TL1", "TL2"])
def test_published_shapes_need_no_option(tmp_path: Path, type_name: str) -> None:
    """One layer with the shapes of bitnet_b1_58-large."""
    from trinity_kernels.quants.tl import TILINGS

    source, path = tmp_path / "i2s.gguf", tmp_path / "tl.gguf"
    write_tiny_model(
        source, arch="bitnet", type="I2_S", hidden_size=1536, intermediate_size=4096,
        num_layers=1, num_heads=16, num_kv_heads=16,
    )  # fmt: skip
    before = TILES[type_name]
    TILES[type_name] = TILINGS[type_name]
    try:
        stored_as(type_name, source, path)
    finally:
        TILES[type_name] = before
    with trinity.load(source) as model:
        expected = model.logits([1, 5, 300])
    with trinity.load(path) as model:
        assert np.array_equal(model.logits([1, 5, 300]), expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# nothing", "no section"),
        ("", "the file is empty"),
        ("no ini", "kernel_config"),
        ("[a]\nm = 1\n", "whole numbers"),
        ("[a]\nm=1\nk=1\nbm=x\nbk=1\nbmm=1\n", "whole numbers"),
        ("[a]\nm=0\nk=1\nbm=1\nbk=1\nbmm=1\n", "outside of 1 to"),
        ("[a]\nm=1\nk=%(m)s\nbm=1\nbk=1\nbmm=1\n", "whole numbers"),
        (f"[a]\nm={'9' * 5000}\nk=1\nbm=1\nbk=1\nbmm=1\n", "whole numbers"),
        ("# x\n" * 300_000, "exceeds 1048576"),
    ],
)
def test_bad_configs(tmp_path: Path, text: str, message: str) -> None:
    write_tiny_model(tmp_path / "m.gguf", arch="bitnet", type="I2_S")
    config = tmp_path / "kernels.ini"
    config.write_text(text)
    with pytest.raises(FormatError, match=message):
        trinity.load(tmp_path / "m.gguf", tl_config=config)
    with pytest.raises(InputError, match="no such file"):
        trinity.load(tmp_path / "m.gguf", tl_config=tmp_path / "missing.ini")
