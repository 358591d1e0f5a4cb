"""The conversion as a whole: everything is checked, then the file is written tensor by tensor."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Literal

import numpy as np

from trinity.errors import InputError, UnsupportedError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.gguf_writer import Chunk, GGUFWriter, refuse_existing
from trinity.formats.huggingface.config import HFConfig
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.files import CONFIG, files_of_directory, model_name
from trinity.formats.huggingface.metadata import model_metadata, usable_context
from trinity.formats.huggingface.model import read_model
from trinity.formats.huggingface.quantization import Ternary
from trinity.formats.huggingface.tensors import HFTensor, hf_tensors, other_networks
from trinity.formats.huggingface.weights import check_stored, weight_scale
from trinity.formats.json_object import read_json_object
from trinity.formats.mapping import path_text
from trinity.formats.mapping_table import TABLE
from trinity.tokenizers.huggingface.metadata import tokenizer_metadata
from trinity.tools.convert.encode import (
    OUTTYPES,
    chosen_type,
    file_type,
    needs_scale_tensor,
    tensor_data,
)
from trinity.tools.convert.file_keys import file_keys
from trinity_kernels.bus_errors import catch_bus_errors
from trinity_kernels.quants import TYPES, nbytes

ScaleRule = Literal["multiply", "divide"]
Progress = Callable[[int, int, str], None]
# Products of ternary layers with int8 inputs keep their size where the scale is near
# 1 / sqrt(inputs), 0.02 for 2,560 of them; the largest of published models is near 2. An inverted
# scale of 0.02 is 50.
LARGEST_USUAL_SCALE = 8.0


@dataclass(frozen=True, slots=True)
class Conversion:
    """What was made: the file, its architecture and tensors, and remarks for the user."""

    path: str
    architecture: str
    num_tensors: int
    num_bytes: int
    notes: tuple[str, ...]


def convert(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    outtype: str,
    *,
    weight_scale: ScaleRule | None = None,
    overwrite: bool = False,
    progress: Progress = lambda done, total, name: None,
) -> Conversion:
    """Write the model in the directory ``source`` to the GGUF file ``path``.

    ``outtype`` is a key of OUTTYPES. ``weight_scale`` says how packed ternary weights carry their
    scale, where config.json is wrong about it. ``progress`` is called with bytes done, bytes in
    all, and the tensor to come. Everything but the weights themselves is checked before the first
    byte is written; the file appears under its name only when it is complete.

    Raises InputError for a missing file, a bad argument or a ``path`` that exists and that
    ``overwrite`` does not allow to be replaced; FormatError, ConfigError,
    TokenizerError, UnsupportedError for a model that is damaged, contradicts itself or cannot be
    said in GGUF.
    """
    if outtype not in OUTTYPES:
        raise InputError(f"outtype is {outtype!r}; it must be one of {', '.join(OUTTYPES)}")
    if weight_scale not in (None, "multiply", "divide"):
        raise InputError(f"weight_scale is {weight_scale!r}; it must be multiply or divide")
    target = path_text(path)
    if os.path.isdir(target):
        raise InputError(f"{target}: a directory; give the name of the .gguf file to write")
    catch_bus_errors(TABLE)
    with Checkpoint(source) as checkpoint:
        _check_not_a_source(target, checkpoint.directory)
        refuse_existing(target, overwrite)
        files = files_of_directory(checkpoint.directory)
        if CONFIG not in files:
            raise InputError(
                f"{checkpoint.directory}: no {CONFIG}; give the directory of a whole model"
            )
        family, config = read_model(read_json_object(files[CONFIG]), files[CONFIG])
        architecture = family.architecture(config)
        model = model_metadata(config, family, model_name(checkpoint.directory))
        ternary = _ternary(config, family, outtype, weight_scale)
        tensors = hf_tensors(config, family, checkpoint)
        for tensor in tensors:
            check_stored(tensor, ternary, checkpoint)
        types = {tensor.name: chosen_type(tensor, outtype, ternary) for tensor in tensors}
        notes = [
            *_left_out(config, family),
            *_ternary_notes(tensors, ternary, outtype, checkpoint),
        ]
        keys = file_keys(
            model,
            tokenizer_metadata(files, checkpoint.directory, config.vocab_size, family.tokenizer),
            file_type(outtype, types.values()),
            microsoft_form=family.microsoft_form,
        )
        with GGUFWriter(target) as writer:
            for key, value in keys.items():
                writer.add(key, value, "array[string]" if isinstance(value, list) else None)
            num_tensors = _add_tensors(writer, tensors, types, ternary, checkpoint, progress)
            factors = config.rope.scaling.tensors(config.rope.theta, family.rope_dim(config))
            for name, divisors in factors.items():
                writer.add_tensor(name, divisors.shape, "F32", divisors)
                num_tensors += 1
    num_bytes = os.path.getsize(target)
    progress(num_bytes, num_bytes, "")
    return Conversion(target, architecture, num_tensors, num_bytes, tuple(notes))


def _add_tensors(
    writer: GGUFWriter,
    tensors: Sequence[HFTensor],
    types: Mapping[str, str],
    ternary: Ternary | None,
    checkpoint: Checkpoint,
    progress: Progress,
) -> int:
    """Give the writer all tensors, to be made in their turn; returns their number."""
    scales: dict[str, np.float32] = {}
    for tensor in tensors:
        if needs_scale_tensor(tensor, types[tensor.name], ternary, checkpoint):
            scales[tensor.name] = np.float32(1)
    total = sum(nbytes(types[tensor.name], tensor.shape) for tensor in tensors)
    done = 0
    for tensor in tensors:
        type_name = types[tensor.name]
        data = tensor_data(tensor, type_name, ternary, checkpoint, scales)
        begun = partial(progress, done, total, tensor.name)
        made = partial(_in_turn, begun, data, checkpoint)
        writer.add_tensor(tensor.name, tensor.shape, type_name, made)
        if tensor.name in scales:
            name = tensor.name.removesuffix("weight") + "scale"
            writer.add_tensor(name, (1,), "F32", partial(_scale_of, tensor.name, scales))
        done += nbytes(type_name, tensor.shape)
    return len(tensors) + len(scales)


def _in_turn(
    begun: Callable[[], None], data: Callable[[], Iterator[Chunk]], checkpoint: Checkpoint
) -> Iterator[Chunk]:
    """The chunks of a tensor whose turn to be written has come."""
    begun()
    for chunk in data():
        checkpoint.check()  # what was cut meanwhile reads as zeros
        yield chunk


def _scale_of(name: str, scales: Mapping[str, np.float32]) -> Chunk:
    """The scale of a weight that was written just before."""
    return np.array([scales[name]], "<f4")


def _check_not_a_source(target: str, directory: str) -> None:
    """Raises InputError where the file would replace one of those that it is made from."""
    beside = os.path.dirname(os.path.realpath(target)) == os.path.realpath(directory)
    if beside and os.path.lexists(target) and not target.endswith(".gguf"):
        raise InputError(
            f"{target}: this is one of the model's own files; give the name of a .gguf file"
        )


def _ternary(
    config: HFConfig, family: Family, outtype: str, rule: ScaleRule | None
) -> Ternary | None:
    """How the layers' weights are ternary, if they are."""
    ternary = family.ternary_form(config)
    if rule is not None:
        if ternary is None or not ternary.packed:
            raise InputError("weight_scale is for packed ternary weights, which this model has not")
        ternary = replace(ternary, divides=rule == "divide")
    if ternary is None and TYPES[OUTTYPES[outtype][0]].ternary:
        raise UnsupportedError(
            f"{config.source}: {outtype} holds ternary weights, and this {config.class_name} is no "
            "BitNet model: it has no quantization_config of method bitnet; use q8_0, f16, bf16 or "
            "f32"
        )
    return ternary


def _left_out(config: HFConfig, family: Family) -> list[str]:
    """What of the model the file does not have."""
    notes = []
    if other_networks(config, family):
        notes.append(
            f"of a {config.class_name} the part that writes is converted; those for images and "
            "sound are left out"
        )
    context = usable_context(config, family)
    if context != config.context_length:
        notes.append(
            f"the model sees the last {config.sliding_window} tokens only, which GGUF's "
            f"{family.architecture(config)} cannot say: its context length is set to {context}, "
            f"where that makes no difference, instead of {config.context_length}"
        )
    return notes


def _ternary_notes(
    tensors: Iterable[HFTensor], ternary: Ternary | None, outtype: str, checkpoint: Checkpoint
) -> list[str]:
    if ternary is None:
        return []
    notes = []
    if not TYPES[OUTTYPES[outtype][0]].ternary:
        notes.append(
            f"the layers are ternary; {outtype} takes more space than i2_s, and activations are "
            "not rounded to int8 as the model was trained to have them"
        )
    if ternary.packed:
        scales = [
            float(weight_scale(tensor, ternary, checkpoint))
            for tensor in tensors
            if tensor.kind == "linear"
        ]
        if median(scales) > LARGEST_USUAL_SCALE:
            used, other = ("divide", "multiply") if ternary.divides else ("multiply", "divide")
            notes.append(
                f"the layers' scales look inverted: half of them exceed {median(scales):.3g}, "
                f"where below {LARGEST_USUAL_SCALE:g} is usual; weight_scale was taken to {used}, "
                f"by config.json; if the model writes nonsense, convert with --weight-scale {other}"
            )
    return notes
