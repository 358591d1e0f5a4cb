"""Decide which tensor type an id of a GGUF file means, from the tensor's byte length.

Ids 36 to 43, 142 and 143 mean different types in llama.cpp, in bitnet.cpp and in their forks. The
types differ in size, so the distance to the next tensor distinguishes them; neither the id alone
nor ``general.file_type`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from trinity.errors import FormatError, UnsupportedError
from trinity.formats.gguf_layout import padded
from trinity_kernels.ggml import (
    I2_S_ID,
    REMOVED_IDS,
    TL1_ID,
    TL2_ID,
    TYPES_BY_ID,
    TYPES_BY_NAME,
    TensorType,
)

if TYPE_CHECKING:
    from trinity_kernels.quants import QuantType

# Ids that other programs use; their layouts are not in ggml's table of types.
_FOREIGN_IDS = {
    37: "IQ4_NL_4_8 (removed from llama.cpp) or I8_S (bitnet.cpp, activations only)",
    133: "Q6_0 of ik_llama.cpp",
    134: "IQ1_BN of ik_llama.cpp",
    135: "IQ2_BN of ik_llama.cpp",
    335: "IQ2_BN_R4 of ik_llama.cpp",
}
_EXTRA_IDS = {
    "I2_S": I2_S_ID, "TL1": TL1_ID, "TL2": TL2_ID, "Q2_0_G128": 42, "PQ2_0": 142, "PTQ1_0": 143,
    "STQ1_0": 43,
}  # fmt: skip
# Blocks of types that are not in ggml's table: elements and bytes.
_EXTRA_BLOCKS = {
    "Q2_0_G128": (128, 34),
    "PQ2_0": (128, 34),
    "PTQ1_0": (128, 28),
    "STQ1_0": (256, 42),
}
# Types that are known only to be refused, and why.
_REMOVED = "llama.cpp removed from the format"
_REFUSED = {
    "IQ4_NL_4_4": _REMOVED,
    "IQ4_NL_8_8": _REMOVED,
    "IQ2_TN": "only ik_llama.cpp has",
    "IQ1_TN": "only ik_llama.cpp has",
}
# Possible types of each contested id.
_CONTESTED_IDS: dict[int, tuple[str, ...]] = {
    36: ("I2_S", "IQ4_NL_4_4"),
    38: ("TL1", "IQ4_NL_8_8"),
    39: ("MXFP4", "TL2"),
    40: ("NVFP4",),
    42: ("Q2_0", "Q2_0_G128", "STQ1_0"),
    43: ("STQ1_0",),
    142: ("PQ2_0", "IQ2_TN"),
    143: ("PTQ1_0", "IQ1_TN"),
}
_REQUANTIZE = "convert the original model again with a current llama.cpp or bitnet.cpp"


class Extent(NamedTuple):
    """A tensor of a file; ``gap`` is the distance in bytes from its offset to the next tensor's."""

    name: str
    type_id: int
    dims: tuple[int, ...]
    gap: int


class Layout(NamedTuple):
    """The type of a tensor and its size in bytes."""

    type: str
    nbytes: int


def type_id(type_name: str) -> int:
    """Return the id that a file stores for a type. Raises UnsupportedError for an unknown type."""
    if type_name in _EXTRA_IDS:
        return _EXTRA_IDS[type_name]
    try:
        return TYPES_BY_NAME[type_name].id
    except KeyError:
        known = ", ".join([*TYPES_BY_NAME, *_EXTRA_IDS])
        raise UnsupportedError(
            f"there is no tensor type {type_name!r}; known types: {known}"
        ) from None


def is_type_of_gguf(type_name: str) -> bool:
    """Whether a GGUF file can store a type; trinity also has types of its own."""
    return type_name in TYPES_BY_NAME or type_name in _EXTRA_IDS


def tensor_nbytes(type_name: str, dims: Sequence[int]) -> int | None:
    """Return the bytes of a tensor, or None if the type cannot store rows of ``dims[0]`` elements.

    ``dims`` is in file order: the row length first. Sources: ggml's table of blocks; bitnet.cpp's
    ggml_nbytes for I2_S, TL1 and TL2; the blocks of trinity's own types.
    """
    count = prod(dims)
    row = dims[0] if dims else 1
    if type_name == "I2_S":
        return count // 4 + 32 if count % 4 == 0 else None
    if type_name == "TL1":
        return count // 4 + 32 if len(dims) == 2 and count % 4 == 0 else None
    if type_name == "TL2":
        return _tl2_nbytes(dims)
    if type_name in _EXTRA_BLOCKS:
        elements, size = _EXTRA_BLOCKS[type_name]
        return count // elements * size if row % elements == 0 else None
    if type_name == "IQ2_TN":  # a float32 scale for each row
        return count // row * (row // 4 + 4) if row % 256 == 0 else None
    if type_name == "IQ1_TN":  # a float16 scale for each row
        return count // row * (row // 64 * 13 + 2) if row % 256 == 0 else None
    if type_name.startswith("IQ4_NL_"):
        return count // 32 * 18 if row % 32 == 0 else None
    block: TensorType | QuantType
    if type_name in TYPES_BY_NAME:
        block = TYPES_BY_NAME[type_name]
    else:  # a type that no GGUF file has
        from trinity_kernels.quants import TYPES

        block = TYPES[type_name]
    return count // block.block_size * block.type_size if row % block.block_size == 0 else None


def _tl2_nbytes(dims: Sequence[int]) -> int | None:
    """Return TL2's size: 256 columns of each row count as packed in pairs, the rest in threes."""
    if len(dims) != 2 or dims[0] < 256:
        return None
    columns, rows = dims
    packed = (columns - 256) * rows // 3 * 5 // 8 + 256 * rows // 2 * 4 // 8
    return padded(packed, 32) + 32


def decide_types(source: str, extents: Sequence[Extent], alignment: int) -> list[Layout]:
    """Return the type and size of every tensor of one file, in the order of ``extents``.

    Raises UnsupportedError for a type that is unknown or was removed from the format, FormatError
    if the size contradicts the type or cannot decide it.
    """
    layouts: list[Layout | None] = []
    evident: dict[int, set[str]] = {}  # the types of an id's tensors whose size leaves one choice
    for extent in extents:
        names = _CONTESTED_IDS.get(extent.type_id)
        if names is None:
            layouts.append(_uncontested(source, extent))
            continue
        matching = [
            layout
            for layout in _candidates(extent, names)
            if extent.gap in (layout.nbytes, padded(layout.nbytes, alignment))
        ]
        layouts.append(matching[0] if len(matching) == 1 else None)
        if len(matching) == 1:
            evident.setdefault(extent.type_id, set()).add(matching[0].type)
    decided = []
    for extent, layout in zip(extents, layouts, strict=True):
        layout = layout or _by_room(source, extent, evident.get(extent.type_id, set()))
        if layout.type in _REFUSED:
            raise _refused(source, extent, layout.type, _REFUSED[layout.type])
        decided.append(layout)
    return decided


def _candidates(extent: Extent, names: Sequence[str]) -> list[Layout]:
    sizes = ((name, tensor_nbytes(name, extent.dims)) for name in names)
    return [Layout(name, nbytes) for name, nbytes in sizes if nbytes is not None]


def _uncontested(source: str, extent: Extent) -> Layout:
    block = TYPES_BY_ID.get(extent.type_id)
    if block is None:
        if extent.type_id in REMOVED_IDS and extent.type_id not in _FOREIGN_IDS:
            raise _refused(source, extent, REMOVED_IDS[extent.type_id], _REMOVED)
        known = _FOREIGN_IDS.get(extent.type_id)
        what = (
            f"is {known}"
            if known
            else ("is not a type of ggml, llama.cpp or bitnet.cpp that trinity knows")
        )
        raise UnsupportedError(
            f"{source}: tensor {extent.name!r} has type id {extent.type_id}, which {what}; "
            + (_REQUANTIZE if known else "the file is damaged or newer than this trinity")
        )
    nbytes = tensor_nbytes(block.name, extent.dims)
    if nbytes is None:
        raise FormatError(
            f"{source}: tensor {extent.name!r} has rows of {extent.dims[0] if extent.dims else 1} "
            f"elements, which is not a multiple of {block.name}'s block of {block.block_size}; "
            "the file is damaged"
        )
    return Layout(block.name, nbytes)


def _by_room(source: str, extent: Extent, evident: set[str]) -> Layout:
    """Decide if no size matches exactly: padding is missing, unusual, or hides a difference."""
    candidates = _candidates(extent, _CONTESTED_IDS[extent.type_id])
    fitting = [layout for layout in candidates if layout.nbytes <= extent.gap]
    like_others = [layout for layout in fitting if layout.type in evident]
    if len(like_others) == 1:
        return like_others[0]
    if len(fitting) == 1:
        return fitting[0]
    sizes = ", ".join(f"{name} takes {_bytes(name, extent.dims)}" for name in _names(extent))
    raise FormatError(
        f"{source}: the type of tensor {extent.name!r} cannot be decided: id {extent.type_id} "
        f"with dims {list(extent.dims)} and room for {extent.gap} bytes; {sizes}; {_REQUANTIZE}"
    )


def _names(extent: Extent) -> tuple[str, ...]:
    return _CONTESTED_IDS[extent.type_id]


def _bytes(name: str, dims: Sequence[int]) -> str:
    nbytes = tensor_nbytes(name, dims)
    return "another row length" if nbytes is None else f"{nbytes} bytes"


def _refused(source: str, extent: Extent, name: str, reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"{source}: tensor {extent.name!r} has type {name} (id {extent.type_id}), which {reason}; "
        f"{_REQUANTIZE}"
    )
