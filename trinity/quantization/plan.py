"""The plan for each tensor, checked before the first byte is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from trinity.errors import InputError, UnsupportedError
from trinity.formats.provider import Tensor, WeightProvider
from trinity.models import check_model
from trinity.quantization.assignment import (
    Assigned,
    ModelTensor,
    Overrides,
    assign,
    in_order,
    network_of,
)
from trinity.quantization.mixes import PLAIN, QuantizationMix
from trinity.quantization.rows import (
    I2_S_BLOCK,
    LARGEST_STEP,
    finite,
    i2_s_scale,
    read_rows,
    row_steps,
)
from trinity.quantization.ternary import (
    TERNARY_BLOCKS,
    check_start,
    is_exact,
    is_ternary,
    rounds_in_half,
)
from trinity_kernels.quants import TYPES


@dataclass(frozen=True, slots=True)
class QuantizationStep:
    """One tensor of the output.

    ``factor`` multiplies an I2_S scale. With ``bare``, ternary weights are written as -1, 0, 1.
    ``scale`` has the values of a new .scale tensor.
    """

    assigned: Assigned
    factor: float = 1.0
    bare: bool = False
    scale: float | None = None

    @property
    def entry(self) -> ModelTensor:
        """The tensor."""
        return self.assigned.entry

    @property
    def is_copy(self) -> bool:
        """Whether the bytes are copied."""
        return self.scale is None and self.assigned.type == self.entry.type


def planned(
    provider: WeightProvider,
    mix: QuantizationMix,
    overrides: Overrides,
    *,
    has_imatrix: bool = False,
    allow_requantize: bool = False,
) -> list[QuantizationStep]:
    """Return the tensors of the output, in its order.

    Raises InputError if quantized tensors would be quantized again without permission,
    UnsupportedError for a model or a tensor that cannot be quantized.
    """
    check_model(provider)
    tensors = [provider.tensor(name) for name in provider.tensor_names()]
    network = network_of(provider.config, [tensor.name for tensor in tensors])
    entries = [ModelTensor(t.name, t.shape, t.type) for t in tensors]
    steps = [
        QuantizationStep(assigned)
        for assigned in assign(entries, mix, network, overrides, has_imatrix=has_imatrix)
    ]
    changed = [step for step in steps if not step.is_copy]
    _check_readable(provider, changed)
    if not allow_requantize:
        _refuse_requantizing(provider, changed)
    for step in changed:
        if step.assigned.type == "I2_S":
            check_start(provider.tensor(step.entry.name))
    return _with_scales(provider, steps)


def notes(provider: WeightProvider, steps: Sequence[QuantizationStep]) -> list[str]:
    """Notes for the user: fallback types, and ternary types for weights that are not ternary."""
    notes = [
        f"{s.entry.name}: rows of {s.entry.shape[-1]} weights are not a multiple of "
        f"{s.assigned.misfit}'s block; it gets {s.assigned.type}"
        for s in steps
        if s.assigned.misfit
    ]
    poor = [
        step.entry.name
        for step in steps
        if step.assigned.type in TERNARY_BLOCKS
        and not step.is_copy
        and not is_ternary(_beginning(provider.tensor(step.entry.name)))
    ]
    rounded = [
        step.entry.name
        for step in steps
        if step.entry.type == "I2_S"
        and step.assigned.type in TERNARY_BLOCKS
        and not step.bare
        and rounds_in_half(provider.tensor(step.entry.name))
    ]
    if rounded:
        notes.append(
            f"the scales of {len(rounded)} tensors, such as {rounded[0]}, are rounded to half "
            "precision: a .scale tensor would also apply to their biases"
        )
    if poor:
        notes.append(
            f"{len(poor)} tensors are not ternary, such as {poor[0]}: a ternary type loses most "
            "of their information; it is for models that were trained to be ternary"
        )
    return notes


def _beginning(tensor: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    first, last = row_steps(tensor.shape)[0]
    return read_rows(tensor, first, last)


def _check_readable(provider: WeightProvider, changed: Sequence[QuantizationStep]) -> None:
    for step in changed:
        entry = step.entry
        if len(entry.shape) > 3:
            raise UnsupportedError(
                f"{provider.path}: tensor {entry.name!r} has the shape {entry.shape}; trinity "
                "quantizes only matrices and stacks of them"
            )
        first, last = row_steps(entry.shape)[0]
        if (last - first) * entry.shape[-1] > LARGEST_STEP:
            raise UnsupportedError(
                f"{provider.path}: tensor {entry.name!r} has rows of {entry.shape[-1]} weights, "
                f"more than the limit of {LARGEST_STEP}; no model has such rows"
            )
        quant = TYPES.get(entry.type)
        if quant is None or (quant.tensor_scale and prod(entry.shape) % I2_S_BLOCK):
            raise UnsupportedError(
                f"{provider.path}: tensor {entry.name!r} has type {entry.type}, which trinity "
                "cannot quantize from; start from a file in F16, BF16 or F32"
            )


def _refuse_requantizing(provider: WeightProvider, changed: Sequence[QuantizationStep]) -> None:
    lossy = [
        step
        for step in changed
        if step.entry.type not in PLAIN and not is_exact(step.entry.type, step.assigned.type)
    ]
    if lossy:
        first = lossy[0]
        raise InputError(
            f"{provider.path}: {len(lossy)} tensors are quantized already, such as "
            f"{first.entry.name}, which is {first.entry.type} and would become "
            f"{first.assigned.type}; quantizing twice loses quality: start from a file in F16, "
            "BF16 or F32, or give --allow-requantize"
        )


def _with_scales(
    provider: WeightProvider, steps: Sequence[QuantizationStep]
) -> list[QuantizationStep]:
    """Add .scale tensors if half precision needs them, and fold them into I2_S scales."""
    by_name = {step.entry.name: step for step in steps}
    for step in steps:
        name = step.entry.name
        if step.is_copy or not name.endswith(".weight"):
            continue
        stem = name.removesuffix("weight")
        # The scale would also apply to the feed-forward's biases.
        if ".ffn_" in name and f"{stem}bias" in by_name:
            continue
        scale_name = f"{stem}scale"
        present = _scale(provider, scale_name) if scale_name in by_name else None
        if present is None and scale_name in by_name:
            continue
        if step.assigned.type == "I2_S" and present is not None:
            by_name[name] = replace(step, factor=present)
            del by_name[scale_name]
        elif step.entry.type == "I2_S" and step.assigned.type in TERNARY_BLOCKS:
            tensor = provider.tensor(name)
            if rounds_in_half(tensor):
                by_name[name] = replace(step, bare=True)
                entry = ModelTensor(scale_name, step.entry.shape[:-2] or (1,), "F32")
                scale = i2_s_scale(tensor) * (np.float32(1.0 if present is None else present))
                by_name[scale_name] = QuantizationStep(Assigned(entry, "F32"), scale=float(scale))
    order = in_order([step.entry for step in by_name.values()])
    return [by_name[entry.name] for entry in order]


def _scale(provider: WeightProvider, name: str) -> float | None:
    tensor = provider.tensor(name)
    if tensor.type != "F32" or tensor.shape != (1,):
        return None
    return float(finite(tensor, tensor.data.view("<f4")[0]))
