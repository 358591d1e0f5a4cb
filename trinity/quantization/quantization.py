"""Quantize a model: plan all tensors, then write the file."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError
from trinity.formats.file_keys import file_keys
from trinity.formats.gguf import GGUFProvider
from trinity.formats.gguf_layout import DEFAULT_ALIGNMENT
from trinity.formats.gguf_order import GGUFOrder
from trinity.formats.gguf_types import tensor_nbytes
from trinity.formats.gguf_writer import GGUFWriter, refuse_existing
from trinity.formats.mapping import path_text
from trinity.formats.mapping_table import TABLE
from trinity.formats.provider import Tensor, WeightProvider
from trinity.options.load_options import LoadOptions
from trinity.options.option import check_option
from trinity.providers import open_weights
from trinity.quantization.assignment import Overrides
from trinity.quantization.importance import Importance
from trinity.quantization.mixes import QuantizationMix, find_mix, find_tensor_type
from trinity.quantization.plan import QuantizationStep, notes, planned
from trinity.quantization.rows import (
    Floats,
    encode_rows,
    in_order,
    read_rows,
    row_steps,
    whole_chunks,
)
from trinity.quantization.ternary import bare_rows, i2_s_chunks
from trinity.tokenizers.rules import tokenizer_notes
from trinity_kernels.bus_errors import catch_bus_errors
from trinity_kernels.code_files import take_cache_problem
from trinity_kernels.cores import default_threads

Progress = Callable[[int, int, str], None]
Array = NDArray[np.generic]
QUANTIZATION_VERSION = 2  # ggml's GGML_QNT_VERSION
_REPLACED_KEYS = (
    "general.quantization_version", "general.file_type",
    "split.no", "split.count", "split.tensors.count",
)  # fmt: skip
_COPIED_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class QuantizedTensor:
    """A tensor of the output: ``nbytes`` in its new ``type``, which was ``source_type``."""

    name: str
    shape: tuple[int, ...]
    source_type: str
    type: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Quantization:
    """The result, or with dry_run the plan: mix, tensors and file size.

    ``notes`` are for the user, such as types that did not fit.
    """

    path: str
    type: str
    architecture: str
    tensors: tuple[QuantizedTensor, ...]
    source_bytes: int
    num_bytes: int
    notes: tuple[str, ...]

    @property
    def bits_per_weight(self) -> float:
        """Bits of all tensors' data, divided by the number of weights."""
        weights = sum(prod(tensor.shape) for tensor in self.tensors)
        return 8 * sum(tensor.nbytes for tensor in self.tensors) / weights


def quantize(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    type: str,
    *,
    token_embedding_type: str | None = None,
    output_tensor_type: str | None = None,
    tensor_types: Sequence[tuple[str, str]] = (),
    pure: bool = False,
    imatrix: str | os.PathLike[str] | None = None,
    allow_requantize: bool = False,
    overwrite: bool = False,
    dry_run: bool = False,
    threads: int | None = None,
    progress: Progress = lambda done, total, name: None,
    notice: Callable[[str], None] = lambda line: None,
) -> Quantization:
    """Quantize the model ``source``, a name as for ``trinity.load``, to the GGUF file ``path``.

    Args:
        type: the name of a mix, such as "Q4_K_M", in any case.
        tensor_types: pairs of a regular expression and a type; the first that matches anywhere in
            a tensor's name wins.
        pure: give all matrices the mix's main type.
        imatrix: the path of an importance matrix.
        dry_run: write nothing.
        threads: the default is the number of fast physical cores.
        progress: called with the bytes done, all bytes, and the next tensor.
        notice: called with lines about the source for the user.

    Everything but the weights is checked before the first byte is written, and the file appears
    under its name only when it is complete. It has the keys and the alignment of the source, with
    other values of general.file_type and general.quantization_version. A model in several files
    becomes one file.

    Raises InputError for a bad argument, a file that is missing or exists already, too little
    space, or weights that are quantized already; FormatError, ConfigError and UnsupportedError for
    a model that is damaged or cannot be quantized.
    """
    mix = find_mix(type)
    overrides = _overrides(token_embedding_type, output_tensor_type, tensor_types, pure)
    threads = check_option(LoadOptions, "threads", threads)
    target = path_text(path)
    with closing(open_weights(source, notice=notice)) as provider:
        _check_target(target, provider, overwrite or dry_run)
        return write_quantized(
            provider,
            target,
            mix,
            overrides,
            importance=None if imatrix is None else Importance(imatrix),
            allow_requantize=allow_requantize,
            dry_run=dry_run,
            threads=threads,
            progress=progress,
        )


def write_quantized(
    provider: WeightProvider,
    target: str,
    mix: QuantizationMix,
    overrides: Overrides,
    *,
    importance: Importance | None = None,
    allow_requantize: bool = False,
    dry_run: bool = False,
    threads: int | None = None,
    progress: Progress = lambda done, total, name: None,
    room: str = "free some space or choose another folder",
) -> Quantization:
    """As ``quantize``, for an open model; replaces the file ``target``.

    ``room`` is advice for a full disk.
    """
    catch_bus_errors(TABLE)
    is_gguf = isinstance(provider, GGUFProvider)
    model = provider if is_gguf else GGUFOrder(provider)
    steps = planned(
        model, mix, overrides, has_imatrix=importance is not None, allow_requantize=allow_requantize
    )
    remarks = notes(model, steps)
    if importance is not None:
        remarks += importance.notes([s.assigned for s in steps if not s.is_copy])
    alignment = provider.alignment if isinstance(provider, GGUFProvider) else DEFAULT_ALIGNMENT
    writer = GGUFWriter(target, alignment=alignment)
    _add_keys(writer, provider, mix, importance)
    count = threads or default_threads()
    with ThreadPoolExecutor(count, "trinity-quantize") as pool:
        making = _Making(model, importance, pool, count + 1, progress)
        made = tuple(making.add(writer, step) for step in steps)
        done = Quantization(
            target,
            mix.name,
            provider.config.architecture,
            made,
            sum(os.path.getsize(path) for path in provider.paths),
            writer.size_bytes,
            (*model.notes, *tokenizer_notes(model.metadata), *remarks),
        )
        if not dry_run:
            _check_space(target, writer.size_bytes, room)
            writer.finish()
    problem = take_cache_problem()
    if problem is not None:
        done = replace(done, notes=(*done.notes, problem))
    progress(making.total, making.total, "")
    return done


@dataclass(slots=True)
class _Making:
    """Adds tensors to the writer; their bytes are computed when they are written."""

    provider: WeightProvider
    importance: Importance | None
    pool: Executor
    ahead: int
    progress: Progress
    total: int = 0

    def add(self, writer: GGUFWriter, step: QuantizationStep) -> QuantizedTensor:
        """Announce one tensor."""
        entry, type_name = step.entry, step.assigned.type
        nbytes = tensor_nbytes(type_name, entry.shape[::-1])
        assert nbytes is not None, entry
        data = partial(self._in_turn, step, self.total)
        self.total += nbytes
        writer.add_tensor(entry.name, entry.shape, type_name, data)
        return QuantizedTensor(entry.name, entry.shape, entry.type, type_name, nbytes)

    def _in_turn(self, step: QuantizationStep, done: int) -> Iterator[Array]:
        for chunk in self._chunks(step):
            self.provider.check()  # a truncated file would read as zeros
            self.progress(done, self.total, step.entry.name)
            yield chunk
            done += chunk.nbytes

    def _chunks(self, step: QuantizationStep) -> Iterator[Array]:
        if step.scale is not None:
            yield np.full(step.entry.shape, step.scale, "<f4")
            return
        tensor = self.provider.tensor(step.entry.name)  # again, to notice a truncated file
        _ = tensor.data  # computes it once, before several threads read it
        type_name = step.assigned.type
        if step.is_copy:
            yield from whole_chunks(tensor, _COPIED_BYTES)
        elif type_name == "I2_S":
            yield from i2_s_chunks(tensor, step.factor, self.pool, self.ahead)
        else:
            encode = self._encoder(tensor, type_name, step)
            yield from in_order(self.pool, encode, row_steps(tensor.shape), self.ahead)

    def _encoder(
        self, tensor: Tensor, type_name: str, step: QuantizationStep
    ) -> Callable[[int, int], Array]:
        if step.bare:
            return partial(bare_rows, tensor, type_name)
        importance: list[Floats | None] = []
        if self.importance is not None:
            importance = self.importance.columns(tensor.name, tensor.shape)

        def encode(first: int, last: int) -> Array:
            values = read_rows(tensor, first, last)
            return encode_rows(tensor, values, type_name, importance, first)

        return encode


def _overrides(
    embedding: str | None, output: str | None, patterns: Sequence[tuple[str, str]], pure: bool
) -> Overrides:
    compiled = []
    for pattern, type_name in patterns:
        option = f"--tensor-type {pattern}"
        try:
            expression = re.compile(pattern, re.IGNORECASE)
        except re.error as error:
            raise InputError(f"{option}: not a regular expression: {error}") from error
        if not pattern:
            raise InputError("--tensor-type: the pattern is empty; give a part of tensor names")
        compiled.append((expression, find_tensor_type(type_name, option)))
    return Overrides(
        None if output is None else find_tensor_type(output, "--output-tensor-type"),
        None if embedding is None else find_tensor_type(embedding, "--token-embedding-type"),
        tuple(compiled),
        pure,
    )


def _check_target(target: str, provider: WeightProvider, overwrite: bool) -> None:
    if os.path.isdir(target):
        raise InputError(f"{target}: this is a directory; give the name of the .gguf file to write")
    for path in provider.paths:
        with suppress(OSError):
            if os.path.samefile(path, target):
                raise InputError(f"{target}: this is the source model; give another name to write")
    refuse_existing(target, overwrite)


def _check_space(target: str, needed: int, room: str) -> None:
    folder = os.path.dirname(os.path.realpath(target))
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise InputError(
                f"{target}: the file needs {needed:,} bytes, but {folder} has only {free:,} free; "
                f"{room}"
            )


def _add_keys(
    writer: GGUFWriter,
    provider: WeightProvider,
    mix: QuantizationMix,
    importance: Importance | None,
) -> None:
    """Add the source's keys, then those of the quantization, in llama.cpp's order."""
    ours = {} if importance is None else importance.keys()
    if not isinstance(provider, GGUFProvider):
        for key, value in {**file_keys(provider.metadata, mix.file_type), **ours}.items():
            writer.add(key, value, "array[string]" if isinstance(value, list) else None)
        return
    for key in provider.metadata:
        if key not in _REPLACED_KEYS and key not in ours:
            writer.add_encoded(key, provider.metadata.encoded(key))
    writer.add("general.quantization_version", QUANTIZATION_VERSION, "uint32")
    writer.add("general.file_type", mix.file_type, "uint32")
    for key, value in ours.items():
        writer.add(key, value)
