"""The methods by which weights are packed; they are good for every class."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.packed import awq, compressed_tensors, fp8, gptq, mlx, modelopt
from trinity.formats.huggingface.packed.logical import LogicalCheckpoint
from trinity.formats.huggingface.packed.weight import Find
from trinity.formats.huggingface.values import Values

# The values of quant_method, and what finds the weights.
METHODS: Mapping[str, Find] = {
    "awq": awq.find,
    "compressed-tensors": compressed_tensors.find,
    "fp8": fp8.find,
    "gptq": gptq.find,
    "modelopt": modelopt.find,
}


def method_of(values: Values) -> str | None:
    """Return the method of METHODS that a model's configuration names, or None."""
    config = values.values.get("quantization_config")
    method = config.get("quant_method") if isinstance(config, dict) else None
    return method if isinstance(method, str) and method in METHODS else None


def logical_checkpoint(
    checkpoint: Checkpoint, values: Values, columns: Callable[[], Mapping[str, int]]
) -> LogicalCheckpoint:
    """Return the checkpoint of the model that config.json's ``values`` describe.

    Weights quantized by MLX are recognized by their tensors, whatever method is named: Ollama
    changes tensors without changing config.json. ``columns`` are those of the model's weights.
    Raises as the methods do.
    """
    if mlx.is_packed(checkpoint):
        return LogicalCheckpoint(checkpoint, mlx.find(checkpoint, values, columns()))
    method = method_of(values)
    if method is None:
        return LogicalCheckpoint(checkpoint)
    packed = METHODS[method](checkpoint, values.inner("quantization_config"))
    return LogicalCheckpoint(checkpoint, packed)
