"""The methods by which weights are packed; they are good for every class."""

from __future__ import annotations

from collections.abc import Mapping

from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.packed import fp8
from trinity.formats.huggingface.packed.logical import LogicalCheckpoint
from trinity.formats.huggingface.packed.weight import Find
from trinity.formats.huggingface.values import Values

# The values of quant_method, and what finds the weights.
METHODS: Mapping[str, Find] = {
    "fp8": fp8.find,
}


def method_of(values: Values) -> str | None:
    """The method of METHODS that a model's configuration names, if it is one of them."""
    config = values.values.get("quantization_config")
    method = config.get("quant_method") if isinstance(config, dict) else None
    return method if isinstance(method, str) and method in METHODS else None


def logical_checkpoint(checkpoint: Checkpoint, values: Values) -> LogicalCheckpoint:
    """The checkpoint of the model that config.json's ``values`` describe. Raises as methods do."""
    method = method_of(values)
    if method is None:
        return LogicalCheckpoint(checkpoint)
    found = METHODS[method](checkpoint, values.inner("quantization_config"))
    return LogicalCheckpoint(checkpoint, found)
