"""Write GGUF files: version 3, little-endian, one tensor at a time, completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError
from trinity.formats.gguf_layout import (
    DEFAULT_ALIGNMENT,
    MAGIC,
    MAX_ALIGNMENT,
    MAX_DIMS,
    MAX_ELEMENTS,
    MAX_KEY_BYTES,
    MAX_NAME_BYTES,
    WRITTEN_VERSION,
    is_alignment,
    padded,
)
from trinity.formats.gguf_types import tensor_nbytes, type_id
from trinity.formats.gguf_values import encode_string, encode_value
from trinity.formats.mapping import path_text
from trinity_kernels.whole_file import whole_file

Chunk = bytes | bytearray | memoryview | NDArray[np.generic]
TensorData = Chunk | Iterable[Chunk] | Callable[[], Chunk | Iterable[Chunk]]


@dataclass(frozen=True, slots=True)
class _PendingTensor:
    name: str
    info: bytes
    nbytes: int
    data: TensorData


class GGUFWriter:
    """Collects keys and tensors, then writes them when the ``with`` block ends.

    ``path`` may exist as a file, or as a link to one. The file appears under its name only when it
    is complete (``trinity_kernels.whole_file``). After an error nothing is left and an older file
    of that name is unchanged; to refuse an existing file, call ``refuse_existing`` first.
    """

    def __init__(self, path: str | os.PathLike[str], *, alignment: int = DEFAULT_ALIGNMENT) -> None:
        self._path = path_text(path)
        if not is_alignment(alignment):
            raise InputError(
                f"alignment is {alignment}; it must be a power of two from 1 to {MAX_ALIGNMENT}"
            )
        # The rename must replace a file, not a link or a device.
        if os.path.exists(self._path) and not os.path.isfile(self._path):
            raise InputError(
                f"{self._path}: this is a folder, a pipe or a device; give the name of a file to "
                "write"
            )
        target = os.path.realpath(self._path) if os.path.islink(self._path) else self._path
        folder = os.path.dirname(target) or "."
        if not os.path.isdir(folder):
            raise InputError(f"{self._path}: there is no folder {folder}; create it first")
        self._alignment = alignment
        self._keys: dict[str, bytes] = {}
        self._tensors: dict[str, _PendingTensor] = {}
        self._finished = False
        if alignment != DEFAULT_ALIGNMENT:
            self._keys["general.alignment"] = encode_value("general.alignment", alignment, "uint32")

    def add(self, key: str, value: object, type: str | None = None) -> None:
        """Add one key.

        Without ``type``, bool gives bool, int the first of uint32, int32, uint64, int64 that can
        hold it (in lists: int32 first), float float32, str string; NumPy values keep their width,
        and a list gives an array of the type that can hold all elements. ``type`` is the name of a
        value type ("uint16") or "array[uint16]"; for a list "uint16" means the elements. Raises
        InputError for a key that is empty, too long or was added before, and for a value that the
        type cannot hold.
        """
        if key == "general.alignment":
            type = "uint32"
        self.add_encoded(key, encode_value(key, value, type))

    def add_encoded(self, key: str, value: bytes) -> None:
        """Add one key whose value is already encoded: the type, then the value.

        Raises InputError for a key that is empty, too long or was added before.
        """
        if key == "general.alignment":
            if value != encode_value(key, self._alignment, "uint32"):
                raise InputError("general.alignment is set by GGUFWriter(path, alignment=...)")
        elif key in self._keys:
            raise InputError(f"the key {key!r} was added before")
        if not 0 < len(encode_string(key, "the key")) - 8 <= MAX_KEY_BYTES:
            raise InputError(f"the key {key!r:.60} must be 1 to {MAX_KEY_BYTES} bytes long")
        self._keys[key] = value

    def add_tensor(
        self,
        name: str,
        shape: Sequence[int],
        type: str,
        data: TensorData,
        *,
        nbytes: int | None = None,
    ) -> None:
        """Add one tensor, in file order.

        ``shape`` is NumPy's order, (M rows, K columns). ``data`` gives the bytes in the layout of
        ``type``: an array or bytes, an iterable of them, or a function that returns either and is
        called when the tensor is written, so that a model may be larger than memory. ``nbytes``
        defaults to the size that type and shape need and must equal it. Raises InputError for a bad
        name or shape, UnsupportedError for an unknown type.
        """
        if name in self._tensors:
            raise InputError(f"the tensor {name!r} was added before")
        encoded_name = encode_string(name, "the tensor's name")
        if not 0 < len(encoded_name) - 8 <= MAX_NAME_BYTES:
            raise InputError(f"the name {name!r:.80} must be 1 to {MAX_NAME_BYTES} bytes long")
        dims = [int(size) for size in reversed(shape)]
        if len(dims) > MAX_DIMS or any(size < 1 for size in dims) or prod(dims) > MAX_ELEMENTS:
            raise InputError(f"tensor {name!r} has the impossible shape {tuple(shape)}")
        id_ = type_id(type)
        needed = tensor_nbytes(type, dims)
        if needed is None:
            raise InputError(f"{type} cannot hold tensor {name!r} of shape {tuple(shape)}")
        if nbytes is not None and nbytes != needed:
            raise InputError(
                f"tensor {name!r} of shape {tuple(shape)} takes {needed} bytes in {type}, "
                f"not {nbytes}"
            )
        info = encoded_name + _u32(len(dims)) + b"".join(_u64(size) for size in dims) + _u32(id_)
        self._tensors[name] = _PendingTensor(name, info, needed, data)

    @property
    def size_bytes(self) -> int:
        """The size of the file with the keys and tensors added so far, in bytes."""
        size = len(self._header())
        if not self._tensors:
            return size
        data = sum(padded(tensor.nbytes, self._alignment) for tensor in self._tensors.values())
        return padded(size, self._alignment) + data

    def finish(self) -> None:
        """Write the file; the end of the ``with`` block calls this.

        Raises InputError if the file cannot be written or a tensor's data has another length than
        its type and shape need. Exceptions of the data's own functions are passed on.
        """
        if self._finished:
            return
        self._finished = True
        try:
            with whole_file(self._path) as file:
                self._write(file)
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"{self._path}: cannot be written: {reason}") from error

    def __enter__(self) -> GGUFWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.finish()

    def _header(self) -> bytes:
        """Return everything before the tensors' data, without the padding that follows."""
        parts = [MAGIC, _u32(WRITTEN_VERSION), _u64(len(self._tensors)), _u64(len(self._keys))]
        for key, value in self._keys.items():
            parts += [encode_string(key, "the key"), value]
        offset = 0
        for tensor in self._tensors.values():
            parts += [tensor.info, _u64(offset)]
            offset += padded(tensor.nbytes, self._alignment)
        return b"".join(parts)

    def _write(self, file: BinaryIO) -> None:
        file.write(self._header())
        if self._tensors:
            self._pad(file)
        for tensor in self._tensors.values():
            _write_data(file, tensor)
            self._pad(file)

    def _pad(self, file: BinaryIO) -> None:
        file.write(bytes(-file.tell() % self._alignment))


def refuse_existing(path: str, overwrite: bool) -> None:
    """Raise InputError if ``path`` exists, unless it may be replaced."""
    if os.path.lexists(path) and not overwrite:
        raise InputError(
            f"{path}: the file exists already; give another name, or --force to replace it"
        )


def _write_data(file: BinaryIO, tensor: _PendingTensor) -> None:
    data = tensor.data() if callable(tensor.data) else tensor.data
    is_whole = isinstance(data, bytes | bytearray | memoryview | np.ndarray)
    chunks: Iterable[Chunk] = [data] if is_whole else data  # type: ignore[list-item,assignment]
    written = 0
    for chunk in chunks:
        raw = _raw(tensor.name, chunk)
        written += raw.nbytes
        if written > tensor.nbytes:
            break
        file.write(raw)
    if written != tensor.nbytes:
        more = "more than " if written > tensor.nbytes else ""
        raise InputError(
            f"tensor {tensor.name!r} takes {tensor.nbytes} bytes, but its data has "
            f"{more}{min(written, tensor.nbytes)}"
        )


def _raw(name: str, chunk: Chunk) -> memoryview:
    if isinstance(chunk, np.ndarray):
        if chunk.dtype.hasobject:
            raise InputError(f"tensor {name!r}: an array of {chunk.dtype} has no bytes to write")
        little = chunk.astype(chunk.dtype.newbyteorder("<"), copy=False)
        return np.ascontiguousarray(little).reshape(-1).view(np.uint8).data
    try:
        return memoryview(chunk).cast("B")
    except TypeError as error:
        raise InputError(f"tensor {name!r}: data must be bytes or arrays ({error})") from error


def _u32(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _u64(value: int) -> bytes:
    return value.to_bytes(8, "little")
