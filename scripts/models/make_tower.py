"""Write a vision tower of published size with random weights, to measure speed with.

    python scripts/models/make_tower.py gemma3 build/gemma3
    python scripts/models/make_tower.py qwen3vl build/qwen3vl --layers 2

The folder gets the tower in F16 as llama.cpp's converter writes it (mmproj.gguf), a small text
model that it fits (text.gguf), and the same values under the names of transformers' classes
(tower.safetensors): Gemma3Model without its language model, or Qwen3VLVisionModel.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from scripts.models.make_synthetic import Shape, write_model  # noqa: E402
from trinity.formats.gguf_writer import GGUFWriter  # noqa: E402
from trinity.images.family import ImageFamily  # noqa: E402
from trinity.images.gemma3 import GEMMA3  # noqa: E402
from trinity.images.qwen_vl import QWEN3VL  # noqa: E402

CLASS_FILE = "tower.safetensors"
_EPS = 1e-6
_TABLE = "v.position_embd.weight"


@dataclass(frozen=True)
class Size:
    """The sizes of a tower, and of the images that it is measured with."""

    family: ImageFamily
    patch: int
    side: int  # the patches along a side of a nominal image
    merge: int
    projection: int
    # Width and height of an image that is not resized.
    image: tuple[int, int]
    # The beginning of the names of the tower's tensors in the class.
    prefix: str = ""
    # Of SigLIP so400m.
    width: int = 1152
    inner: int = 4304
    heads: int = 16
    layers: int = 27
    deepstack: tuple[int, ...] = ()

    def cut(self, layers: int) -> Size:
        """The same tower with its first layers only."""
        kept = tuple(layer for layer in self.deepstack if layer < layers)
        return replace(self, layers=layers, deepstack=kept or (self.deepstack and (layers - 1,)))


SIZES = {
    "gemma3": Size(GEMMA3, 14, 64, 4, 2560, (896, 896), "vision_tower."),  # of Gemma 3 4B
    "qwen3vl": Size(  # of Qwen3-VL 8B
        QWEN3VL, 16, 48, 2, 4096, (1024, 1024), deepstack=(8, 16, 24)
    ),
}


def shapes(size: Size) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the tower's tensors in the GGUF file."""
    d, joined = size.width, size.width * size.merge**2
    # Of Qwen's, the second is for the second frame of a video.
    for suffix in ("", ".1") if size.family is QWEN3VL else ("",):
        yield f"v.patch_embd.weight{suffix}", (d, 3, size.patch, size.patch)
    yield "v.patch_embd.bias", (d,)
    yield _TABLE, (size.side**2, d)
    norms = {"v.post_ln": d}
    linears: dict[str, tuple[int, int]] = {}
    for layer in range(size.layers):
        prefix = f"v.blk.{layer}."
        norms |= {f"{prefix}ln1": d, f"{prefix}ln2": d}
        queries = {"attn_qkv": (3 * d, d)}
        if size.family is not QWEN3VL:
            queries = {f"attn_{part}": (d, d) for part in "qkv"}
        others = {"attn_out": (d, d), "ffn_up": (size.inner, d), "ffn_down": (d, size.inner)}
        linears |= {prefix + name: shape for name, shape in {**queries, **others}.items()}
    if size.family is QWEN3VL:
        linears |= {"mm.0": (joined, joined), "mm.2": (size.projection, joined)}
    for prefix in (f"v.deepstack.{layer}." for layer in size.deepstack):
        norms[f"{prefix}norm"] = joined
        linears |= {f"{prefix}fc1": (joined, joined), f"{prefix}fc2": (size.projection, joined)}
    for name, shape in linears.items():
        yield f"{name}.weight", shape
        yield f"{name}.bias", shape[:1]
    for name, length in norms.items():
        yield f"{name}.weight", (length,)
        yield f"{name}.bias", (length,)
    if size.family is GEMMA3:
        yield "mm.soft_emb_norm.weight", (d,)
        yield "mm.input_projection.weight", (d, size.projection)


def drawn(name: str, shape: tuple[int, ...], seed: int) -> NDArray[Any]:
    """A tensor of random values; those of matrices are float16."""
    rng = np.random.Generator(np.random.SFC64([seed, *name.encode()]))
    values = rng.standard_normal(shape, np.float32)
    if len(shape) == 1:
        values *= np.float32(0.05)
        return values + np.float32(name.endswith(".weight"))
    if name == _TABLE:
        return values * np.float32(0.2)
    inputs = shape[0] if name.startswith("mm.input") else prod(shape[1:])
    return (values * np.float32(1 / sqrt(inputs))).astype(np.float16)


def class_name(name: str, size: Size) -> str:
    """The name in transformers' class."""
    family = size.family
    stem, _, part = name.rpartition(".")
    if stem in family.ends:
        own = family.ends[stem]
        outside = own.startswith("multi_modal_projector")
        end = "" if own.endswith("_weight") else f".{part}"
        return f"{'' if outside else size.prefix}{own}{end}"
    _, kind, number, module = stem.split(".")
    if kind == "deepstack":
        own = family.deepstack[module].format(size.deepstack.index(int(number)))
    else:
        own = family.layers.format(number) + family.layer[module]
    return f"{size.prefix}{own}.{part}"


def write_mmproj(path: Path, size: Size, seed: int) -> None:
    """Write the tower as llama.cpp's converter does."""
    sizes = {
        "image_size": size.side * size.patch, "patch_size": size.patch,
        "embedding_length": size.width, "feed_forward_length": size.inner,
        "block_count": size.layers, "attention.head_count": size.heads,
        "projection_dim": size.projection,
    }  # fmt: skip
    if size.family is QWEN3VL:
        pixels = {"image_min_pixels": 1 << 16, "image_max_pixels": 1 << 24}
        sizes |= {"spatial_merge_size": size.merge, **pixels}
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "clip")
        writer.add("general.type", "mmproj")
        writer.add("general.file_type", np.uint32(1))
        writer.add("clip.has_vision_encoder", True)
        writer.add("clip.projector_type", size.family.name)
        writer.add("clip.use_gelu", True)
        for key, value in sizes.items():
            writer.add(f"clip.vision.{key}", np.uint32(value))
        writer.add("clip.vision.attention.layer_norm_epsilon", np.float32(_EPS))
        for key in ("image_mean", "image_std"):
            writer.add(f"clip.vision.{key}", np.full(3, 0.5, np.float32))
        if size.family is QWEN3VL:
            read = np.array([layer in size.deepstack for layer in range(size.layers)])
            writer.add("clip.vision.is_deepstack_layers", read)
        for name, shape in shapes(size):
            kind = "F32" if len(shape) == 1 or name == _TABLE else "F16"

            def values(name: str = name, shape: tuple[int, ...] = shape) -> NDArray[Any]:
                return drawn(name, shape, seed)

            writer.add_tensor(name, shape, kind, values)


def write_class(path: Path, size: Size, seed: int) -> None:
    """Write the values under the names of transformers' class."""
    header, reached, listed = dict[str, object](), 0, list(shapes(size))
    both = "v.patch_embd.weight.1" in (name for name, _ in listed)
    for name, shape in listed:
        if name.endswith(".1"):
            continue
        if both and name == "v.patch_embd.weight":
            shape = (shape[0], 3, 2, *shape[2:])
        kind, width = ("F32", 4) if len(shape) == 1 or name == _TABLE else ("F16", 2)
        end = reached + width * prod(shape)
        entry = {"dtype": kind, "shape": list(shape), "data_offsets": [reached, end]}
        header[class_name(name, size)], reached = entry, end
    head = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for name, shape in listed:
            if name.endswith(".1"):
                continue
            values = drawn(name, shape, seed)
            if both and name == "v.patch_embd.weight":
                values = np.stack([values, drawn(f"{name}.1", shape, seed)], axis=2)
            if name == "mm.soft_emb_norm.weight":  # without the 1 that GGUF's has
                values = values - np.float32(1)
            file.write(values.tobytes())


def write_text(path: Path, size: Size) -> None:
    """Write a small text model that takes the tower's rows."""
    keys: dict[str, object] = {"attention.sliding_window": 1024}
    if size.family is QWEN3VL:
        keys = {
            "rope.dimension_sections": np.array([24, 20, 20, 0], np.int32),
            "n_deepstack_layers": len(size.deepstack),
        }
    architecture, name = (size.family.architecture or "qwen3vl"), path.parent.name
    layers = max(len(size.deepstack), 1)
    text = Shape(
        architecture, name, size.projection, 256, layers, 8, 2, 128, 4096, 32_768, 1e6, "Q8_0",
        keys=keys,
    )  # fmt: skip
    write_model(path, text)


def write_tower(folder: Path, size: Size, seed: int = 0) -> None:
    """Write all files, those of transformers' class at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "text.gguf", size)
    write_mmproj(folder / "mmproj.gguf", size, seed)
    write_class(folder / CLASS_FILE, size, seed)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Write a vision tower of published size with random weights."
    )
    parser.add_argument("tower", choices=SIZES)
    parser.add_argument("folder", type=Path, help="where the three files are written")
    parser.add_argument("--layers", type=int, help="only so many, as a quick test")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    size = SIZES[options.tower]
    write_tower(options.folder, size.cut(options.layers or size.layers), options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
