"""Convert a model: check everything, then write the file tensor by tensor."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from trinity.errors import InputError, UnsupportedError
from trinity.formats.file_keys import file_keys
from trinity.formats.gguf import GGUFProvider
from trinity.formats.gguf_order import GGUFOrder
from trinity.formats.gguf_types import is_type_of_gguf
from trinity.formats.gguf_writer import Chunk, GGUFWriter, refuse_existing
from trinity.formats.mapping import path_text
from trinity.formats.mapping_table import TABLE
from trinity.formats.provider import Tensor, WeightProvider
from trinity.providers import open_weights
from trinity.tokenizers.rules import tokenizer_notes
from trinity.tools.convert.encode import (
    OUTTYPES,
    chosen_type,
    file_type,
    needs_scale_tensor,
    own_type,
    tensor_data,
)
from trinity_kernels.bus_errors import catch_bus_errors
from trinity_kernels.quants import TYPES, nbytes

ScaleRule = Literal["multiply", "divide"]
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Conversion:
    """The result: the file, its architecture and tensors, and notes for the user."""

    path: str
    architecture: str
    num_tensors: int
    num_bytes: int
    notes: tuple[str, ...]


def convert(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    outtype: str | None = None,
    *,
    weight_scale: ScaleRule | None = None,
    allow_requantize: bool = False,
    overwrite: bool = False,
    progress: Progress = lambda done, total, name: None,
    notice: Callable[[str], None] = lambda line: None,
) -> Conversion:
    """Convert the model ``source``, a name as for ``trinity.load``, to the GGUF file ``path``.

    ``outtype`` is a key of OUTTYPES; by default, the one that keeps the layers' values.
    ``weight_scale`` says how packed ternary weights store their scale, if config.json is wrong
    about it. Quantized weights that GGUF has no type for become F32 without loss;
    ``allow_requantize`` permits other types. ``progress`` is called with bytes done, all bytes, and
    the next tensor, ``notice`` with lines for the user. Everything but the weights is checked
    before the first byte is written; the file appears under its name only when it is complete.

    Raises InputError for a missing file, a bad argument, a model that is GGUF already, or a
    ``path`` that exists unless ``overwrite`` is set; FormatError, ConfigError, TokenizerError or
    UnsupportedError for a model that is damaged, contradicts itself or cannot be stored in GGUF.
    """
    if outtype is not None and outtype not in OUTTYPES:
        raise InputError(f"outtype is {outtype!r}; it must be one of {', '.join(OUTTYPES)}")
    if weight_scale not in (None, "multiply", "divide"):
        raise InputError(f"weight_scale is {weight_scale!r}; it must be multiply or divide")
    target = path_text(path)
    if os.path.isdir(target):
        raise InputError(f"{target}: this is a directory; give the name of the .gguf file to write")
    catch_bus_errors(TABLE)
    with closing(open_weights(source, weight_scale=weight_scale, notice=notice)) as provider:
        if isinstance(provider, GGUFProvider):
            raise InputError(
                f"{provider.path}: the model is GGUF already; `trinity quantize` changes its types"
            )
        _check_not_a_source(target, provider)
        refuse_existing(target, overwrite)
        model = GGUFOrder(provider)
        tensors = [model.tensor(name) for name in model.tensor_names()]
        is_ternary = any(tensor.type == "I2_S" for tensor in tensors)
        notes = [*model.notes, *tokenizer_notes(model.metadata)]
        if outtype is None:
            outtype = own_type(tensors)
            notes.append(
                f"no type was given: the weights become {outtype}, which keeps their values"
            )
        _check_outtype(outtype, is_ternary, provider)
        architecture = str(provider.metadata["general.architecture"])
        encodes = provider.metadata.get(f"{architecture}.attention.causal") is False
        types = {t.name: chosen_type(t, outtype, encodes=encodes) for t in tensors}
        if not allow_requantize:
            _refuse_requantizing(provider, tensors, types)
        notes += _ternary_notes(is_ternary, outtype)
        keys = file_keys(provider.metadata, file_type(outtype, types.values()))
        with GGUFWriter(target) as writer:
            for key, value in keys.items():
                writer.add(key, value, "array[string]" if isinstance(value, list) else None)
            num_tensors = _add_tensors(writer, tensors, types, provider, progress)
    num_bytes = os.path.getsize(target)
    progress(num_bytes, num_bytes, "")
    return Conversion(target, architecture, num_tensors, num_bytes, tuple(notes))


def _add_tensors(
    writer: GGUFWriter,
    tensors: Sequence[Tensor],
    types: Mapping[str, str],
    provider: WeightProvider,
    progress: Progress,
) -> int:
    """Announce all tensors, whose data are computed when they are written; return their number."""
    scales: dict[str, np.float32] = {}
    for tensor in tensors:
        if needs_scale_tensor(tensor, types[tensor.name], types):
            scales[tensor.name] = np.float32(1)
    total = sum(nbytes(types[tensor.name], tensor.shape) for tensor in tensors)
    done = 0
    for tensor in tensors:
        type_name = types[tensor.name]
        data = tensor_data(tensor, type_name, scales)
        begun = partial(progress, done, total, tensor.name)
        made = partial(_in_turn, begun, data, provider)
        writer.add_tensor(tensor.name, tensor.shape, type_name, made)
        if tensor.name in scales:
            name = tensor.name.removesuffix("weight") + "scale"
            writer.add_tensor(name, (1,), "F32", partial(_scale_of, tensor.name, scales))
        done += nbytes(type_name, tensor.shape)
    return len(tensors) + len(scales)


def _in_turn(
    begun: Callable[[], None], data: Callable[[], Iterator[Chunk]], provider: WeightProvider
) -> Iterator[Chunk]:
    """Yield the chunks of a tensor when it is written."""
    begun()
    for chunk in data():
        provider.check()  # a truncated file would read as zeros
        yield chunk


def _scale_of(name: str, scales: Mapping[str, np.float32]) -> Chunk:
    """Return the scale of a weight that was written just before."""
    return np.array([scales[name]], "<f4")


def _check_not_a_source(target: str, provider: WeightProvider) -> None:
    """Raise InputError if the file would replace one of the source's files."""
    for path in provider.paths:
        with suppress(OSError):
            if os.path.samefile(path, target):
                raise InputError(
                    f"{target}: this is one of the model's own files; give the name of a .gguf file"
                )


def _refuse_requantizing(
    provider: WeightProvider, tensors: Sequence[Tensor], types: Mapping[str, str]
) -> None:
    """Raise InputError if weights of a type that GGUF lacks would be rounded again."""
    lossy = [
        tensor
        for tensor in tensors
        if not is_type_of_gguf(tensor.type) and types[tensor.name] != "F32"
    ]
    if lossy:
        raise InputError(
            f"{provider.path}: {len(lossy)} tensors have a quantization that GGUF has no type "
            f"for, such as {lossy[0].name}, which is {lossy[0].type} and would become "
            f"{types[lossy[0].name]}; quantizing twice loses quality: start from the original "
            "model, use --outtype f32, which keeps the values, or give --allow-requantize"
        )


def _check_outtype(outtype: str, is_ternary: bool, provider: WeightProvider) -> None:
    if not is_ternary and TYPES[OUTTYPES[outtype][0]].ternary:
        raise UnsupportedError(
            f"{provider.path}: {outtype} is for ternary weights, but this is not a BitNet model: "
            "it has no quantization_config of method bitnet; use q8_0, f16, bf16 or f32"
        )


def _ternary_notes(is_ternary: bool, outtype: str) -> list[str]:
    if not is_ternary or TYPES[OUTTYPES[outtype][0]].ternary:
        return []
    return [
        f"the layers are ternary; {outtype} takes more space than i2_s, and activations are not "
        "rounded to int8 as in the model's training"
    ]
