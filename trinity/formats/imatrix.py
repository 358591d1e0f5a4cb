"""Importance matrices: the squares of a linear weight's inputs, summed by channel.

Quantizers weight errors by them. The file is GGUF: ``general.type`` is "imatrix"; the keys
``imatrix.datasets``, ``imatrix.chunk_count`` and ``imatrix.chunk_size`` describe the texts; a
weight NAME has the float32 tensors ``NAME.in_sum2`` (matrices, K), the sums, and ``NAME.counts``
(matrices, 1), the number of tokens. ``NAME.in_sum`` of newer llama.cpp is not read. llama.cpp
ignores unknown keys, such as ``trinity.imatrix.*``, the position of an interrupted run. Source:
llama.cpp tools/imatrix/imatrix.cpp, save_imatrix().
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError, InputError
from trinity.formats.gguf_layout import MAGIC
from trinity.formats.gguf_metadata import GGUFMetadata
from trinity.formats.gguf_reader import GGUFStructure, TensorInfo, read_structure
from trinity.formats.gguf_writer import GGUFWriter, refuse_existing
from trinity.formats.imatrix_dat import read_dat
from trinity.formats.mapping import MappedFile, path_text

DEFAULT_CHUNK_SIZE = 512
SUMS, COUNTS = ".in_sum2", ".counts"
DATASETS, CHUNK_COUNT, CHUNK_SIZE = (
    "imatrix.datasets",
    "imatrix.chunk_count",
    "imatrix.chunk_size",
)
NEXT_CHUNK, TEXT_HASH = "trinity.imatrix.next_chunk", "trinity.imatrix.text_sha256"
# Names of a stack of all experts, and of a single expert.
_EXPERTS = re.compile(r"blk\.(\d{1,9})\.ffn_(?:\w+_exps|\w+?\.(\d{1,9}))\.weight", re.ASCII)
MAX_COUNT = 1 << 53
MAX_DATASETS = 1 << 12


@dataclass(frozen=True, slots=True)
class ImatrixEntry:
    """Sums and counts of one weight's inputs.

    A dense weight is one matrix; a stack of experts has several. Shapes: sums (matrices, K), counts
    (matrices,).
    """

    sums: NDArray[np.float32]
    counts: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Position:
    """Where an interrupted run continues: a chunk, and the SHA-256 of the text's chunks."""

    next_chunk: int
    text_sha256: str


@dataclass(frozen=True, slots=True)
class Imatrix:
    """An importance matrix."""

    entries: Mapping[str, ImatrixEntry]  # by name of the weight, such as "blk.0.attn_q.weight"
    chunk_size: int = DEFAULT_CHUNK_SIZE  # tokens per chunk
    datasets: tuple[str, ...] = ()  # names of the texts
    # where the run that wrote it stopped; None in other programs' files
    position: Position | None = None
    source: str = field(default="the importance matrix", compare=False)  # the file, for messages

    @property
    def chunk_count(self) -> int:
        """The number of whole chunks, from the largest count, as in llama.cpp."""
        counts = [int(entry.counts.max()) for entry in self.entries.values()]
        return max(counts, default=0) // self.chunk_size

    @property
    def unseen_experts(self) -> list[tuple[str, int]]:
        """Return layer ("blk.3") and number of every expert that no token of the texts used."""
        experts: set[tuple[int, int]] = set()
        for name, entry in self.entries.items():
            match = _EXPERTS.fullmatch(name)
            if match is not None:
                first = int(match[2] or 0)
                experts.update(
                    (int(match[1]), first + int(i)) for i in np.flatnonzero(entry.counts == 0)
                )
        return [(f"blk.{layer}", expert) for layer, expert in sorted(experts)]

    def mean(self, tensor_name: str) -> NDArray[np.float32] | None:
        """Return the mean squares (matrices, K) of a weight's inputs, or None without an entry.

        A matrix that no token used has ones, as in llama.cpp's quantizer.
        """
        entry = self.entries.get(tensor_name)
        if entry is None:
            return None
        counts = np.maximum(entry.counts, 1).astype(np.float64)[:, None]
        mean: NDArray[np.float32] = (entry.sums / counts).astype(np.float32)
        mean[entry.counts == 0] = 1
        return mean


def read_imatrix(
    path: str | os.PathLike[str], *, dat_chunk_size: int = DEFAULT_CHUNK_SIZE
) -> Imatrix:
    """Read the importance matrix at ``path``, GGUF or the older .dat.

    ``dat_chunk_size`` is the number of tokens per chunk, which .dat files do not contain; it scales
    counts and sums alike, so means do not depend on it. Raises InputError if the file cannot be
    opened; FormatError if it is malformed, another kind of file, or has values that are not sums of
    squares.
    """
    source = path_text(path)
    file = MappedFile(source)
    try:
        buffer = file.buffer()
        if buffer[:4] != MAGIC:
            return _from_dat(file, source, dat_chunk_size)
        structure = read_structure(buffer, source)
        return _from_gguf(file, structure, GGUFMetadata(source, structure.entries, file.buffer))
    finally:
        file.close()


def _from_dat(file: MappedFile, source: str, chunk_size: int) -> Imatrix:
    dat = read_dat(file.buffer(), source)
    entries = {}
    for name, entry in dat.entries.items():
        # Without calls the values are means, as the quantizer interprets them.
        sums = entry.values
        with np.errstate(over="ignore", invalid="ignore"):
            sums *= np.float32(chunk_size)
        counts = np.array([max(entry.calls, 1) * chunk_size], np.int64)
        entries[name] = _checked(source, name, sums[None], counts)
    return Imatrix(entries, chunk_size, (dat.dataset,) if dat.dataset else (), source=source)


def _from_gguf(file: MappedFile, structure: GGUFStructure, metadata: GGUFMetadata) -> Imatrix:
    source = file.path
    kind = _text(metadata, "general.type")
    tensors = {info.name: info for info in structure.tensors}
    names = [name.removesuffix(SUMS) for name in tensors if name.endswith(SUMS)]
    if kind not in ("", "imatrix") or not names:
        raise FormatError(
            f"{source}: this is not an importance matrix but a GGUF file of type "
            f"{kind[:40] or 'model'!r} with {len(names)} tensors named *{SUMS}; give a file that "
            "`trinity imatrix` or llama.cpp's llama-imatrix wrote"
        )
    entries = {}
    for name in names:
        sums = _floats(file, tensors[name + SUMS])
        if name + COUNTS not in tensors:
            raise FormatError(f"{source}: {name!r} has sums, but no {name + COUNTS!r}")
        counts = _floats(file, tensors[name + COUNTS]).reshape(-1)
        matrices = sums.size // tensors[name + SUMS].dims[0]
        if len(counts) not in (1, matrices):
            raise FormatError(
                f"{source}: {name!r} has sums of {matrices} matrices, but {len(counts)} counts"
            )
        if not np.all((counts >= 0) & (counts <= MAX_COUNT)):
            raise FormatError(
                f"{source}: the counts of {name!r} are not numbers of tokens: the file is damaged"
            )
        whole = np.rint(counts).astype(np.int64)
        if len(whole) != matrices:  # one count for all, as for dense stacks
            whole = np.broadcast_to(whole, matrices)
        entries[name] = _checked(source, name, sums.reshape(matrices, -1), whole)
    chunk_size = _integer(source, metadata, CHUNK_SIZE)
    if chunk_size < 1:
        raise FormatError(f"{source}: {CHUNK_SIZE} is {chunk_size}; expected at least 1")
    datasets: tuple[str, ...] = ()
    if DATASETS in metadata and metadata.value_type(DATASETS) == "array[string]":
        if (metadata.array_length(DATASETS) or 0) > MAX_DATASETS:
            raise FormatError(f"{source}: {DATASETS} names more than {MAX_DATASETS} texts")
        datasets = tuple(metadata[DATASETS])  # type: ignore[arg-type]
    position = None
    if NEXT_CHUNK in metadata and TEXT_HASH in metadata:
        text_hash = _text(metadata, TEXT_HASH)
        position = Position(_integer(source, metadata, NEXT_CHUNK), text_hash)
    return Imatrix(entries, chunk_size, datasets, position, source)


def _text(metadata: GGUFMetadata, key: str) -> str:
    """Return a string; empty if the key is missing, the name of the type if it is not a string."""
    if key not in metadata:
        return ""
    kind = metadata.value_type(key)
    return str(metadata[key]) if kind == "string" else f"({kind})"


def _floats(file: MappedFile, info: TensorInfo) -> NDArray[np.float32]:
    if info.type != "F32" or not info.dims:
        raise FormatError(
            f"{file.path}: tensor {info.name!r} is {info.type} with dims {list(info.dims)}; "
            "expected float32"
        )
    view = np.frombuffer(file.buffer(), "<f4", info.nbytes // 4, info.start)
    return view.astype(np.float32)


def _checked(
    source: str, name: str, sums: NDArray[np.float32], counts: NDArray[np.int64]
) -> ImatrixEntry:
    bad = ~(np.isfinite(sums) & (sums >= 0))
    if bad.any():
        place = int(bad.argmax())
        raise FormatError(
            f"{source}: {name!r} has {sums.reshape(-1)[place]} at channel {place % sums.shape[1]} "
            f"(and {int(bad.sum()) - 1} more invalid values), which is not a sum of squares: "
            "compute the matrix again, with a model whose activations are finite"
        )
    return ImatrixEntry(sums, counts)


def _integer(source: str, metadata: GGUFMetadata, key: str) -> int:
    kind = metadata.value_type(key) if key in metadata else "missing"
    value = metadata[key] if kind.startswith(("int", "uint")) else f"({kind})"
    if not isinstance(value, int) or value < 0:
        raise FormatError(f"{source}: {key} is {value}; expected an integer from 0")
    return value


def write_imatrix(
    path: str | os.PathLike[str], imatrix: Imatrix, *, overwrite: bool = False
) -> None:
    """Write ``imatrix`` as GGUF, entries sorted by name.

    Counts are stored as float32, which is exact up to 2^24 tokens. With ``overwrite`` an older file
    is replaced once the new one is complete. Raises InputError if there is no entry, or if the file
    exists or cannot be written; FormatError for sums that are not finite.
    """
    refuse_existing(path_text(path), overwrite)
    if not imatrix.entries:
        raise InputError(f"{path_text(path)}: the importance matrix has no entries to write")
    with GGUFWriter(path) as writer:
        writer.add("general.type", "imatrix")
        writer.add(DATASETS, list(imatrix.datasets), "array[string]")
        writer.add(CHUNK_COUNT, imatrix.chunk_count, "uint32")
        writer.add(CHUNK_SIZE, imatrix.chunk_size, "uint32")
        if imatrix.position is not None:
            writer.add(NEXT_CHUNK, imatrix.position.next_chunk, "uint32")
            writer.add(TEXT_HASH, imatrix.position.text_sha256)
        for name, entry in sorted(imatrix.entries.items()):
            _checked(imatrix.source, name, entry.sums, entry.counts)
            counts = entry.counts.astype(np.float32)[:, None]
            writer.add_tensor(name + SUMS, entry.sums.shape, "F32", entry.sums)
            writer.add_tensor(name + COUNTS, counts.shape, "F32", counts)


def merge(first: Imatrix, second: Imatrix) -> Imatrix:
    """Add the sums and counts of two matrices of one model.

    The texts are concatenated; the chunk size is the first's. Each may have entries that the other
    lacks, such as the output's. Sums are added in float64 and rounded once to float32. Raises
    InputError if the two are not of one model.
    """
    check_same_shapes(
        first, {name: entry.sums.shape for name, entry in second.entries.items()}, second.source
    )
    entries = dict(first.entries)
    for name, entry in second.entries.items():
        if name in entries:
            other = entries[name]
            with np.errstate(over="ignore"):  # infinities are rejected when they are written
                sums = np.add(entry.sums, other.sums, dtype=np.float64).astype(np.float32)
            entry = ImatrixEntry(sums, entry.counts + other.counts)
        entries[name] = entry
    return Imatrix(entries, first.chunk_size, first.datasets + second.datasets, None, first.source)


def check_same_shapes(imatrix: Imatrix, shapes: Mapping[str, tuple[int, ...]], source: str) -> None:
    """Raise InputError unless ``imatrix`` fits ``shapes``, the (matrices, K) of each weight.

    Every weight of a layer must be in both; ``source`` names the owner of the shapes.
    """
    advice = "they belong to different models: use a matrix that was computed with this model"
    for name, entry in imatrix.entries.items():
        if name in shapes and entry.sums.shape != shapes[name]:
            raise InputError(
                f"{imatrix.source}: {name!r} has sums of shape {entry.sums.shape}, but {source} "
                f"has {shapes[name]}; {advice}"
            )
    for name in sorted(set(imatrix.entries) ^ set(shapes)):
        if name.startswith("blk."):
            here, there = imatrix.source, source
            if name not in imatrix.entries:
                here, there = there, here
            raise InputError(f"{here} has {name!r}, which {there} lacks; {advice}")
