"""Target: models whose buffers lie between protected pages, for each type, level and end.

The logits must equal those in ordinary memory bit by bit. An access beyond an end raises a signal,
which the parent process sees.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from tests.fuzzing import families, models, weights
from tests.fuzzing.case import Case, Finding
from tests.fuzzing.guard_pages import guarded, guarded_copy
from trinity.formats import GGUFProvider
from trinity.formats.provider import Tensor
from trinity.models import ARCHITECTURES
from trinity.runtime import engine_building, plan, rotation, step
from trinity.runtime import weights as runtime_weights
from trinity.runtime.interface import Rows
from trinity.runtime.pages import page_memory
from trinity.runtime.weights import Weight, Weights
from trinity_kernels.isa import available_levels, select_level
from trinity_kernels.ops.matmul.activations import FORMS

TYPES = tuple(sorted(FORMS))
DECODERS = [name for name in families.NAMES if not ARCHITECTURES[name].encodes]
STAND_IN = "F16"  # in the file of a model of a type that no file has
TOKENS = (1, 3, 5, 16, 17, 40)
LINE = 64


def combinations() -> list[tuple[str, str, bool]]:
    """Type, level, and whether buffers lie against the page behind: a seed is one of these.

    Levels are those from TRINITY_ISA, or the machine's best, downwards.
    """
    levels = available_levels()
    levels = levels[levels.index(select_level()) :]
    return [(t, level, end) for level, t, end in product(levels, TYPES, (True, False))]


def guard(case: Case) -> None:
    """Test one type on one level, with random sizes and numbers of tokens."""
    rng = case.rng
    case.compiled = True  # every level is compiled on the way: times mean nothing here
    every = combinations()
    type_name, level, at_end = every[case.seed % len(every)]
    block = 128 if type_name == "I2_S" else weights.block_size(type_name)
    width = block * rng.choice((1, 3, 5)) if block > 32 else max(block, 4) * rng.choice((2, 4, 10))
    is_of_gguf = type_name in weights.RUNNABLE
    family = rng.choice(DECODERS)
    main = type_name if is_of_gguf else STAND_IN
    draft = models.model(rng, 0.0, width=width, main=main, family=family, context=256)
    path = case.write("model.gguf", bytes(draft.encode()[0]))
    steps = [rng.choice(TOKENS) for _ in range(rng.choice((1, 2, 3)))]
    options = {
        "threads": rng.choice((1, 1, 2)),
        "context_length": 130,
        "isa": level,
        "kv_type": rng.choice(("f16", "f32", "q8_0")),
    }
    own = None if is_of_gguf else type_name
    expected = case.attempt("loaded", _logits, case, path, own, steps, options)
    if expected is None:
        raise Finding("refused", f"{type_name} on {level} does not load: {case.refusals}")
    with guarded_buffers(at_end):
        found = case.attempt("token", _logits, case, path, own, steps, options)
    if found is None or expected.tobytes() != found.tobytes():
        raise Finding("bits", f"{type_name} on {level}: other logits between protected pages")


class _Retyped(GGUFProvider):
    """A file whose matrices of the type STAND_IN are of another one, with bytes of their own."""

    def __init__(self, path: Any, type_name: str) -> None:
        super().__init__(path)
        self._type_name = type_name

    def tensor(self, name: str) -> Tensor:
        found = super().tensor(name)
        if found.type != STAND_IN or found.shape[-1] % weights.block_size(self._type_name):
            return found
        raw = weights.own_content(self._type_name, found.shape, random.Random(name))
        return replace(found, type=self._type_name, data=np.frombuffer(raw, np.uint8))


def _logits(
    case: Case, path: Any, own: str | None, steps: list[int], options: dict[str, Any]
) -> NDArray[np.float32]:
    with GGUFProvider(path) if own is None else _Retyped(path, own) as provider:
        made = engine_building.load_engine(provider, progress=case.progress, **options)
        try:
            cache = made.new_cache()
            tokens = np.arange(sum(steps), dtype=np.int32) % made.config.vocab_size
            parts, at = [], 0
            for count in steps:
                parts.append(made.step([Rows(cache, tokens[at : at + count], count)]))
                at += count
            return np.concatenate(parts)
        finally:
            made.close()


class _Numpy:
    """numpy, for a module whose arrays shall be guarded."""

    def __init__(self, at_end: bool) -> None:
        self._at_end = at_end

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def zeros(self, shape: Any, dtype: Any = float) -> Any:
        """Return guarded zeros."""
        kind = np.dtype(dtype)
        count = int(np.prod(shape))
        raw = guarded(count * kind.itemsize, at_end=self._at_end, alignment=kind.alignment)
        return raw.view(kind).reshape(shape)

    empty = zeros


@contextlib.contextmanager
def guarded_buffers(at_end: bool) -> Iterator[None]:
    """Guard weights, activations and caches of engines that are made meanwhile."""

    bound, vector = runtime_weights._bound, plan.PlanBuilder.vector

    def guarded_weight(name: str, tensor: Tensor, n: int, k: int) -> Weight:
        weight = bound(name, tensor, n, k)
        flat = weight.data.reshape(-1)[: n * weight.stride]
        return replace(weight, data=guarded_copy(flat, at_end=at_end))  # type: ignore[arg-type]

    def guarded_vector(
        builder: plan.PlanBuilder, name: str, length: int, factor: float = 1.0
    ) -> NDArray[np.float32]:
        kept, key = builder._vectors, (name, length, factor)
        if key not in kept:
            kept[key] = guarded_copy(vector(builder, *key), at_end=at_end)  # type: ignore[assignment]
        return kept[key]

    class GuardedWeights(Weights):
        def linear(
            self, name: str, n: int, k: int, apart: Collection[str] = (), *,
            scales_bias: bool = False,
        ) -> Weight:  # fmt: skip
            weight = super().linear(name, n, k, apart, scales_bias=scales_bias)
            if weight.bias is None:
                return weight
            return replace(weight, bias=guarded_copy(weight.bias, at_end=at_end))  # type: ignore[arg-type]

    def aligned(nbytes: int) -> NDArray[np.uint8]:
        return guarded(nbytes, at_end=at_end, alignment=LINE)

    def mapped(nbytes: int, what: str) -> NDArray[np.uint8]:
        return guarded(nbytes, at_end=at_end, alignment=LINE)

    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(engine_building, "Weights", GuardedWeights))
        stack.enter_context(patch.object(runtime_weights, "_bound", guarded_weight))
        stack.enter_context(patch.object(plan.PlanBuilder, "vector", guarded_vector))
        for name, module in list(sys.modules.items()):
            if name.startswith("trinity.runtime.") and hasattr(module, "aligned"):
                stack.enter_context(patch.object(module, "aligned", aligned))
        for module in (plan, rotation, step):
            stack.enter_context(patch.object(module, "np", _Numpy(at_end)))
        stack.enter_context(patch.object(page_memory, "mapped", mapped))
        # A part of a page is a buffer of its own.
        stack.enter_context(patch.object(page_memory, "SLAB_BYTES", 0))
        stack.enter_context(patch.object(page_memory, "ALIGNMENT", LINE))
        yield
