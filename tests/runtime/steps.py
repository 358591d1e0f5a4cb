"""Runs of an engine step by step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.engine import CPUEngine
from trinity.runtime.interface import Rows
from trinity.runtime.pages.kv_cache import KVCache

Logits = NDArray[np.float32]


def stepwise(engine: CPUEngine, tokens: list[int], cache: KVCache | None = None) -> Logits:
    """Return the logits of steps of one token."""
    cache = cache or engine.new_cache()
    return np.concatenate([engine.step([Rows(cache, [t])]) for t in tokens])


def at_once(
    engine: CPUEngine, tokens: list[int], cache: KVCache | None = None, *, exact: bool = False
) -> Logits:
    """Return the logits of one step."""
    rows = Rows(cache or engine.new_cache(), tokens, logits=len(tokens))
    return engine.step([rows], exact=exact)
