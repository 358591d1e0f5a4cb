"""GGUF's keys that several families have beside the usual ones."""

from __future__ import annotations

import numpy as np

from trinity.formats.huggingface.config import HFConfig, every_layer_but_each_last_of


def window_keys(config: HFConfig, period: int = 0) -> dict[str, object]:
    """The window and which layers have it.

    Without further word every layer but each last of ``period`` has it; 0: nothing goes without.
    """
    if not config.sliding_window:
        return {}
    keys: dict[str, object] = {"sliding_window": config.sliding_window}
    usual = every_layer_but_each_last_of(period, config.num_layers)
    if not period or config.windowed != usual:
        keys["sliding_window_pattern"] = np.array(config.windowed, np.bool_)
    return keys
