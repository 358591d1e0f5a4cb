"""Engines of the reference data's small models, and their logits for each step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.engine import CPUEngine
from trinity.runtime.interface import Rows
from trinity.runtime.pages.kv_cache import KVCache

Logits = NDArray[np.float32]
Load = Callable[..., CPUEngine]
CONTEXT, ROWS = 512, 32  # windowed layers keep two pages of four


def text_of(engine: CPUEngine, length: int, seed: int = 1) -> list[int]:
    """Random token ids."""
    rng = np.random.default_rng(seed)
    return [int(token) for token in rng.integers(10, engine.config.vocab_size, length)]


def evaluate(engine: CPUEngine, tokens: list[int], cache: KVCache, size: int = 0) -> Logits:
    """The logits of ``tokens`` after those in a cache, by steps of ``size`` rows."""
    size = size or engine.prefill_chunk
    parts = [tokens[at : at + size] for at in range(0, len(tokens), size)]
    return np.concatenate([engine.step([Rows(cache, part, len(part))]) for part in parts])
