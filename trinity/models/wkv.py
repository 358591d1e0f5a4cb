"""What both RWKV families have: heads of one size, and weights in other shapes."""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.errors import ConfigError
from trinity.formats.config_limits import MAX_STATE_VALUES
from trinity.formats.huggingface.stored import View


def wkv_heads(config: ModelConfig) -> int:
    """Return the number of heads. Raises ConfigError if they do not divide the hidden size."""
    hidden, size = config.hidden_size, config.wkv_head_size
    if hidden % size or hidden * size > MAX_STATE_VALUES:
        raise ConfigError(
            f"wkv.head_size is {size}; it must divide embedding_length {hidden}, and their product "
            f"must be at most {MAX_STATE_VALUES}; convert the model again"
        )
    return hidden // size


def as_shape(*shape: int) -> View:
    """Return the view of a tensor in another shape."""
    return lambda array: array.reshape(shape)
