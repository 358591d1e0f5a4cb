"""GGUF models, in one file or several, as a WeightProvider."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np

from trinity.config import ModelConfig
from trinity.errors import FormatError, InputError
from trinity.formats.configuration import config_from_metadata
from trinity.formats.defaults import Defaults
from trinity.formats.gguf_layout import MAX_KEYS, MAX_PARTS, MAX_TENSORS, ROTATION_KEYS
from trinity.formats.gguf_metadata import GGUFMetadata
from trinity.formats.gguf_reader import GGUFStructure, TensorInfo, read_structure, refuse_too_many
from trinity.formats.mapping import MappedFile, path_text
from trinity.formats.provider import Tensor
from trinity.formats.sampling_keys import sampling_of
from trinity.formats.tl_config import read_tl_config
from trinity.options.load_options import LoadOptions
from trinity.options.option import check_option

_I2_S_BLOCKS = {"I2_S": 128, "I2_S_ARM": 64}
_SPLIT_NAME = re.compile(r"(?P<prefix>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


class _Part(NamedTuple):
    """One file of a model."""

    file: MappedFile
    structure: GGUFStructure
    metadata: GGUFMetadata


class GGUFProvider:
    """An open GGUF model; tensors are views of its mapping.

    Opening reads only the structure. ``i2s_layout`` is the order of I2_S codes, which the file does
    not name: "x86", as written by converters and x86 builds, or "arm", as written by bitnet.cpp's
    quantizer on ARM. ``tl_config`` is the kernel_config.ini that a TL1 or TL2 file was converted
    with.

    Raises InputError if a file cannot be opened, FormatError if it is malformed, UnsupportedError
    for a version, byte order or tensor type that is not supported.
    """

    # Converters to GGUF permute llama's Q and K rows so that pairs are adjacent.
    rope_interleaved = True

    # The path of the vision tower that came with the file, if there is one.
    mmproj: str | None = None

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        i2s_layout: str = "x86",
        tl_config: str | os.PathLike[str] | None = None,
    ) -> None:
        i2s_layout = check_option(LoadOptions, "i2s_layout", i2s_layout)
        self._path = path_text(path)
        self._i2s_type = "I2_S_ARM" if i2s_layout == "arm" else "I2_S"
        self._tilings = {} if tl_config is None else read_tl_config(tl_config)
        self._parts: list[_Part] = []
        self._config: ModelConfig | None = None
        try:
            self._parts.append(_open_part(self._path))
            for other in _other_parts(self._path, self._parts[0].metadata):
                part = _open_part(other)
                self._parts.append(part)
                _check_part(part, len(self._parts) - 1, self._parts[0])
                self._check_totals()
            self._tensors = self._index_tensors()
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> str:
        """The path that was opened, the first file of a split model."""
        return self._path

    @property
    def paths(self) -> list[str]:
        """All files of the model, in order."""
        return [part.file.path for part in self._parts]

    @property
    def notes(self) -> list[str]:
        """Empty: a GGUF file is read completely."""
        return []

    @property
    def version(self) -> int:
        """The GGUF version of the (first) file, 2 or 3."""
        return self._parts[0].structure.version

    @property
    def alignment(self) -> int:
        """The alignment of tensors in the (first) file, in bytes."""
        return self._parts[0].structure.alignment

    @property
    def size_bytes(self) -> int:
        """The size of all files in bytes."""
        return sum(part.structure.size for part in self._parts)

    @property
    def metadata(self) -> GGUFMetadata:
        """The (first) file's keys; see GGUFMetadata for the types of the values."""
        return self._parts[0].metadata

    def override(self, values: Mapping[str, bool | int | float | str]) -> None:
        """Replace or add values of the metadata. Raises InputError for a value of another kind."""
        self.metadata.override(values)
        self._config = None

    @property
    def config(self) -> ModelConfig:
        """The configuration. Raises ConfigError or UnsupportedError if the file describes none."""
        if self._config is None:
            shapes = {name: info.dims[::-1] for name, (_, info) in self._tensors.items()}
            config = config_from_metadata(
                self.metadata, shapes, source=self._path, num_tokens=self._num_tokens()
            )
            if any(key.startswith(ROTATION_KEYS) for key in self.metadata):
                from trinity.formats.rotated_weights import read_rotation

                config = replace(config, rotation=read_rotation(self.metadata, self._path))
            self._config = config
        return self._config

    @property
    def defaults(self) -> Defaults:
        """The sampling options in the metadata. Raises ConfigError if one is not a number."""
        return Defaults(options=sampling_of(self.metadata, self._path), source=self._path)

    def tensor_names(self) -> list[str]:
        """All tensor names, in file order."""
        return list(self._tensors)

    def tensor(self, name: str) -> Tensor:
        """Return the tensor of that name; nothing is copied.

        Raises FormatError if there is none or the file was truncated after it was opened,
        InputError after ``close``.
        """
        if name not in self._tensors:
            raise FormatError(f"{self._path}: there is no tensor {name!r}")
        part, info = self._tensors[name]
        data = np.frombuffer(part.file.buffer(), np.uint8, info.nbytes, info.start)
        type_name = self._i2s_type if info.type == "I2_S" else info.type
        shape = info.dims[::-1]
        tiling = self._tilings.get((shape[0], shape[-1])) if type_name in ("TL1", "TL2") else None
        return Tensor(name, shape, type_name, data, part.file.path, tiling)

    def check(self) -> None:
        """Raise FormatError if a file was truncated or overwritten after it was opened."""
        for part in self._parts:
            part.file.check()

    def close(self) -> None:
        """Release the mapping; tensors given out stay readable, but nothing else can be read."""
        for part in self._parts:
            part.file.close()

    def __enter__(self) -> GGUFProvider:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_totals(self) -> None:
        structures = [part.structure for part in self._parts]
        keys = sum(len(structure.entries) for structure in structures)
        refuse_too_many(self._path, "keys in its parts", keys, MAX_KEYS)
        tensors = sum(len(structure.tensors) for structure in structures)
        refuse_too_many(self._path, "tensors in its parts", tensors, MAX_TENSORS)

    def _num_tokens(self) -> int | None:
        key = "tokenizer.ggml.tokens"
        is_list = key in self.metadata and self.metadata.value_type(key) == "array[string]"
        return self.metadata.array_length(key) if is_list else None

    def _index_tensors(self) -> dict[str, tuple[_Part, TensorInfo]]:
        tensors: dict[str, tuple[_Part, TensorInfo]] = {}
        for part in self._parts:
            for info in part.structure.tensors:
                if info.name in tensors:
                    other = tensors[info.name][0].file.path
                    raise FormatError(
                        f"{part.file.path}: tensor {info.name!r} is also in {other}; "
                        "download the parts of one model again"
                    )
                self._check_blocks(part, info)
                tensors[info.name] = (part, info)
        for part in self._parts:
            total = _split_number(part, "split.tensors.count")
            if len(self._parts) > 1 and total not in (None, len(tensors)):
                raise FormatError(
                    f"{part.file.path}: split.tensors.count is {total}, but the "
                    f"{len(self._parts)} parts hold {len(tensors)} tensors; "
                    "download the parts of one model again"
                )
        return tensors

    def _check_blocks(self, part: _Part, info: TensorInfo) -> None:
        """Check that I2_S codes fill whole blocks, which the length in bytes does not show."""
        if info.type != "I2_S":
            return
        block = _I2_S_BLOCKS[self._i2s_type]
        if prod(info.dims) % block:
            raise FormatError(
                f"{part.file.path}: tensor {info.name!r} of type I2_S has {prod(info.dims)} "
                f"elements (dims {list(info.dims)}), which is not a multiple of {block}, the "
                f"block of layout {self._i2s_type}; the file is damaged"
            )


def _open_part(path: str) -> _Part:
    file = MappedFile(path)
    try:
        structure = read_structure(file.buffer(), path)
    except BaseException:
        file.close()
        raise
    return _Part(file, structure, GGUFMetadata(path, structure.entries, file.buffer))


def _number(path: str, metadata: GGUFMetadata, key: str) -> int | None:
    if key not in metadata:
        return None
    kind = metadata.value_type(key)
    if not kind.startswith(("int", "uint")):
        raise FormatError(f"{path}: {key} has type {kind}; expected an integer type")
    value = metadata[key]
    assert isinstance(value, int)
    return value


def _split_number(part: _Part, key: str) -> int | None:
    return _number(part.file.path, part.metadata, key)


def _other_parts(path: str, metadata: GGUFMetadata) -> list[str]:
    """Return the paths of all parts after the first.

    Names follow llama.cpp: PREFIX-00001-of-0000N.gguf. Raises FormatError if ``path`` is not the
    first.
    """
    count = _number(path, metadata, "split.count") or 0
    refuse_too_many(path, "parts (split.count)", count, MAX_PARTS)
    if count in (0, 1):
        return []
    no = _number(path, metadata, "split.no")
    match = _SPLIT_NAME.fullmatch(os.path.basename(path))
    if no != 0:
        first = "the one whose name ends in -00001-of-NNNNN.gguf"
        if match:
            first = _part_path(path, match["prefix"], 1, int(match["count"]))
        position = f"part {no + 1} of {count}" if no is not None else f"one of {count} parts"
        raise FormatError(
            f"{path}: this is {position} of a split model; open the first part: {first}"
        )
    if match is None or int(match["no"]) != 1 or int(match["count"]) != count:
        raise FormatError(
            f"{path}: this is the first of {count} parts, so its name must end in "
            f"-00001-of-{count:05d}.gguf; restore the original names of the parts"
        )
    others = []
    for number in range(2, count + 1):
        other = _part_path(path, match["prefix"], number, count)
        if not os.path.exists(other):
            raise InputError(
                f"{path}: the model has {count} parts, but {other} is missing; put all parts in "
                "one folder"
            )
        others.append(other)
    return others


def _part_path(path: str, prefix: str, number: int, count: int) -> str:
    return os.path.join(os.path.dirname(path), f"{prefix}-{number:05d}-of-{count:05d}.gguf")


def _check_part(part: _Part, index: int, first: _Part) -> None:
    for key, expected in (
        ("split.no", index),
        ("split.count", _split_number(first, "split.count")),
    ):
        number = _split_number(part, key)
        if number != expected:
            raise FormatError(
                f"{part.file.path}: {key} is {number}; expected {expected}: the parts do not "
                "belong together, download them again"
            )
