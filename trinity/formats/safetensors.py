"""Read safetensors files; every rule of the format is checked before a tensor is given out.

A file is the header's length (u64, little-endian), the header (a JSON object: tensor name to dtype,
shape and data_offsets; optionally ``__metadata__``, strings to strings), then the data. Repeated
names, white space before the header and unknown fields are refused: the format's description
forbids them, although the library accepts them. Source: that description and ``Metadata::validate``
in huggingface/safetensors.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError, UnsupportedError
from trinity.formats.gguf_layout import MAX_ELEMENTS, MAX_TENSORS
from trinity.formats.gguf_reader import refuse_too_many
from trinity.formats.json_object import parse_json_object
from trinity.formats.mapping import MappedFile, path_text

# The format allows 100 MB; the largest models have 100,000 tensors of some 100 bytes each.
MAX_HEADER_BYTES = 16_000_000
MAX_DIMS = 8
# Bits of one element.
DTYPE_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
# NumPy's types of float elements; it has no BF16.
_ELEMENTS = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BF16": "<u2"}
_FIELDS = {"dtype", "shape", "data_offsets"}
_DAMAGED = "the file is damaged or incomplete: download it again"


@dataclass(frozen=True, slots=True)
class SafeTensor:
    """One tensor; ``data`` is a read-only uint8 view of the file's mapping."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]
    source: str

    def elements(self) -> NDArray[np.generic]:
        """Return all elements as stored, in the tensor's shape: a view of the mapping.

        BF16 gives uint16, one-byte types give uint8. Raises UnsupportedError for types other than
        these and floats.
        """
        if self.dtype not in _ELEMENTS and DTYPE_BITS[self.dtype] != 8:
            raise self._unsupported()
        return self.data.view(_ELEMENTS.get(self.dtype, "u1")).reshape(self.shape)

    def floats(self, elements: NDArray[np.generic]) -> NDArray[np.float32]:
        """Convert ``elements`` of this tensor, in any shape, to new contiguous float32 values.

        Raises UnsupportedError unless the dtype is a float of at least 16 bits.
        """
        if self.dtype not in _ELEMENTS:
            raise self._unsupported()
        if self.dtype == "BF16":
            wide = np.empty(elements.shape, np.uint32)
            np.left_shift(elements, np.uint32(16), out=wide, casting="unsafe", dtype=np.uint32)
            return wide.view(np.float32)
        # an F64 beyond float32's range becomes infinite
        with np.errstate(over="ignore", invalid="ignore"):
            return elements.astype(np.float32, order="C")

    def all_floats(self) -> NDArray[np.float32]:
        """Return all values as new float32, in the tensor's shape."""
        return self.floats(self.elements())

    def _unsupported(self) -> UnsupportedError:
        return UnsupportedError(
            f"{self.source}: tensor {self.name!r} is stored as {self.dtype}, which is not "
            "supported; use a checkpoint in BF16, F16 or F32"
        )


class SafeTensorsFile:
    """One open safetensors file.

    Raises InputError if it cannot be opened, FormatError if it violates a rule of the format.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path_text(path)
        self._file = MappedFile(self.path)
        try:
            self._data_start, header = _header(self._file.buffer(), self.path)
            self.metadata = _metadata(header.pop("__metadata__", None), self.path)
            refuse_too_many(self.path, "tensors", len(header), MAX_TENSORS)
            self._tensors = {
                name: _entry(name, fields, self.path) for name, fields in header.items()
            }
            size = len(self._file.buffer()) - self._data_start
            _check_coverage(self._tensors, size, self.path)
        except BaseException:
            self._file.close()
            raise

    def names(self) -> list[str]:
        """All tensor names, in the header's order."""
        return list(self._tensors)

    def tensor(self, name: str) -> SafeTensor:
        """Return the tensor of that name. Raises FormatError if there is none."""
        if name not in self._tensors:
            raise FormatError(f"{self.path}: there is no tensor {name!r}")
        dtype, shape, begin, end = self._tensors[name]
        data = np.frombuffer(self._file.buffer(), np.uint8, end - begin, self._data_start + begin)
        return SafeTensor(name, dtype, shape, data, self.path)

    def check(self) -> None:
        """Raise FormatError if the file was truncated or overwritten after it was opened."""
        self._file.check()

    def close(self) -> None:
        """Release the mapping."""
        self._file.close()

    def __enter__(self) -> SafeTensorsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_Entry = tuple[str, tuple[int, ...], int, int]


def _header(buffer: mmap.mmap, path: str) -> tuple[int, dict[str, object]]:
    """Return the position of the data, and the header's object."""
    size = len(buffer)
    if size < 8:
        raise FormatError(
            f"{path}: {size} bytes, but a safetensors file begins with 8 bytes of header length; "
            f"{_DAMAGED}"
        )
    length = int.from_bytes(buffer[:8], "little")
    if length > MAX_HEADER_BYTES:
        raise FormatError(
            f"{path}: the header's length is {length}, above the limit of "
            f"{MAX_HEADER_BYTES}; this is not a safetensors file, or it is damaged"
        )
    if length > size - 8:
        raise FormatError(
            f"{path}: the header's length is {length}, but only {size - 8} bytes follow; {_DAMAGED}"
        )
    raw = bytes(buffer[8 : 8 + length])
    if not raw.startswith(b"{"):
        raise FormatError(
            f"{path}: the header begins with {raw[:1]!r}, not with '{{'; "
            "this is not a safetensors file"
        )
    return 8 + length, parse_json_object(raw, f"{path}: header")


def _metadata(value: object, path: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise FormatError(f"{path}: __metadata__ must map strings to strings; {_DAMAGED}")
    return value


def _entry(name: str, fields: object, path: str) -> _Entry:
    """Check one tensor's entry, and return its dtype, shape, begin and end."""
    where = f"{path}: tensor {name[:100]!r}"
    if not isinstance(fields, dict) or set(fields) != _FIELDS:
        state = sorted(fields) if isinstance(fields, dict) else type(fields).__name__
        raise FormatError(
            f"{where} has the entry {str(state)[:120]}; expected dtype, shape and data_offsets"
        )
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise FormatError(
            f"{where} has the dtype {str(dtype)[:40]!r}; known: {', '.join(DTYPE_BITS)}"
        )
    if not isinstance(shape, list) or len(shape) > MAX_DIMS or not all(map(_is_size, shape)):
        raise FormatError(
            f"{where} has the shape {str(shape)[:80]}; expected up to {MAX_DIMS} sizes from 0"
        )
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise FormatError(f"{where} has data_offsets {str(offsets)[:80]}; expected [begin, end]")
    begin, end = offsets
    bits = prod(shape) * DTYPE_BITS[dtype]
    if begin > end or bits != 8 * (end - begin):
        raise FormatError(
            f"{where}: {dtype} of shape {str(shape)[:80]} takes {bits / 8:.15g} bytes, but "
            f"data_offsets [{begin}, {end}] hold {end - begin}; {_DAMAGED}"
        )
    # no tensor of this file, but NumPy refuses such shapes
    if prod(size or 1 for size in shape) * 8 > MAX_ELEMENTS:
        raise FormatError(f"{where} has the impossible shape {str(shape)[:80]}; {_DAMAGED}")
    return dtype, tuple(shape), begin, end


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64


def _check_coverage(tensors: dict[str, _Entry], size: int, path: str) -> None:
    """Check that tensors cover the data exactly: no gap, no overlap, nothing after or missing."""
    reached, before = 0, "the header"
    for name, (_, _, begin, end) in sorted(tensors.items(), key=lambda item: item[1][2:]):
        if begin != reached:
            what = "a hole of" if begin > reached else "an overlap of"
            raise FormatError(
                f"{path}: {what} {abs(begin - reached)} bytes between {before} and tensor "
                f"{name[:100]!r}, which begins at {begin}; {_DAMAGED}"
            )
        reached, before = end, f"tensor {name[:100]!r}"
    if reached != size:
        raise FormatError(
            f"{path}: the header describes {reached} bytes of data, but the file has {size}; "
            f"{_DAMAGED}"
        )
