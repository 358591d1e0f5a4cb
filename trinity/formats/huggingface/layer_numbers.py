"""Numbers that a checkpoint has as tensors of one value in each layer, and GGUF as keys."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trinity.errors import FormatError
from trinity.formats.config_limits import gguf_keys
from trinity.formats.huggingface.family import LAYER
from trinity.formats.huggingface.hf_model import HFModel
from trinity.formats.huggingface.packed.logical import LogicalCheckpoint
from trinity.formats.huggingface.tensors import own_names


def number_names(model: HFModel) -> dict[str, list[str]]:
    """Return the tensors with one value, layer after layer, of each field of ModelConfig."""
    layers = range(model.config.num_layers)
    return {
        field: [f"{LAYER}{layer}.{name}" for layer in layers]
        for field, name in model.family.numbers.items()
    }


def number_keys(model: HFModel, checkpoint: LogicalCheckpoint) -> Mapping[str, object]:
    """Return GGUF's keys of the numbers, each an array with one for each layer.

    They are without the architecture.

    Raises FormatError for a tensor with more than one value.
    """
    named = number_names(model)
    if not named:
        return {}
    actual = own_names(model, checkpoint)
    return {
        key: np.array([_number(checkpoint, actual[name]) for name in names], np.float32)
        for key, names in gguf_keys(named).items()
    }


def _number(checkpoint: LogicalCheckpoint, name: str) -> float:
    tensor = checkpoint.tensor(name)
    if tensor.shape not in ((), (1,)):
        raise FormatError(
            f"{tensor.source}: tensor {name!r} has the shape {tensor.shape}; expected one value"
        )
    return float(tensor.all_floats().reshape(-1)[0])
