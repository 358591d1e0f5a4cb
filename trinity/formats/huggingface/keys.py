"""GGUF's keys that several families have beside the usual ones."""

from __future__ import annotations

import numpy as np

from trinity.config import ModelConfig
from trinity.formats.huggingface.config import every_layer_but_each_last_of


def windowed_layers(config: ModelConfig) -> tuple[bool, ...]:
    """Return whether each layer of a configuration of config.json has the window."""
    pattern = config.sliding_window_pattern
    return pattern if isinstance(pattern, tuple) else ()


def window_keys(config: ModelConfig, period: int = 0) -> dict[str, object]:
    """Return the window, and which layers have it.

    By default every layer except each last of ``period`` has it; with 0 all layers have it.
    """
    if not config.sliding_window:
        return {}
    keys: dict[str, object] = {"sliding_window": config.sliding_window}
    usual = every_layer_but_each_last_of(period, config.num_layers)
    if not period or config.sliding_window_pattern != usual:
        keys["sliding_window_pattern"] = np.array(windowed_layers(config), np.bool_)
    return keys
