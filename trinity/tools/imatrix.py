"""Compute an importance matrix: the mean squares of every linear's inputs over a text.

The tokens are divided into chunks, each computed separately, with the first token replaced by BOS
if the model wants one, as in llama.cpp's llama-imatrix; for an encoder also the last one by EOS.
The engine's steps add the squares of the float32 activations before they are quantized. Sums are
float64 within a run (``trinity_kernels.ops.squares``), float32 in the file.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError, TrinityError
from trinity.formats.imatrix import (
    DEFAULT_CHUNK_SIZE,
    Imatrix,
    ImatrixEntry,
    Position,
    check_same_shapes,
    merge,
)
from trinity.model import Model
from trinity.options.checks import check_integer
from trinity.runtime.channel_squares import HEAD, ChannelSquares
from trinity.runtime.expert_weight import ExpertWeight
from trinity.runtime.interface import Engine, Rows
from trinity.runtime.likelihoods.perplexity import negative_log_likelihoods
from trinity.runtime.options import Cancel
from trinity.runtime.pages.kv_cache import KVCache
from trinity.runtime.prompts import check_ids
from trinity.runtime.scheduling.scheduler import LOGITS_BYTES
from trinity.runtime.scheduling.sequence import check_context
from trinity.runtime.weights import Weight


class GatheringEngine(Engine, Protocol):
    """An engine that collects the squares of its linears' inputs."""

    def gather(self, squares: ChannelSquares | None) -> None:
        """Add them to ``squares`` in every following step; None ends it."""
        ...

    def linears(self) -> list[tuple[str, Weight]]:
        """Return every linear with its name, the output head last."""
        ...

    def expert_linears(self) -> list[ExpertWeight]:
        """Return every linear of experts."""
        ...


@dataclass(frozen=True, slots=True)
class ImatrixProgress:
    """Progress: chunks ``done`` of ``total``, and the perplexity of this run's chunks if wanted."""

    done: int
    total: int
    perplexity: float | None


def gather_imatrix(
    model: Model,
    text: str | Sequence[int],
    *,
    dataset: str = "text",
    chunk_size: int = DEFAULT_CHUNK_SIZE,
    chunks: int | None = None,
    from_chunk: int = 0,
    process_output: bool = False,
    perplexity: bool = True,
    start: Imatrix | None = None,
    resume: Imatrix | None = None,
    progress: Callable[[ImatrixProgress], None] | None = None,
    save: Callable[[Imatrix], None] | None = None,
    save_frequency: int = 10,
    cancel: Cancel | None = None,
) -> Imatrix:
    """Compute the importance matrix of ``model`` over ``text``; other users of the model wait.

    ``chunks`` is the number of chunks of ``chunk_size`` tokens, None for all; ``from_chunk`` skips
    some. ``dataset`` is the name of the text in the file. ``process_output`` includes the output
    head. ``perplexity`` reports that of the second halves to ``progress``, at the cost of computing
    logits; encoders have none. ``start`` is added to the result. ``resume`` is the result of a
    cancelled or saved run with the same text, which is continued. ``save`` is called with the
    result so far every ``save_frequency`` chunks. When ``cancel`` is set, the result has the chunks
    so far.

    Raises InputError for a text shorter than one chunk, for a ``start`` or ``resume`` of another
    model or text, and if it is cancelled before the first chunk; TrinityError if the model's
    activations are not finite.
    """
    engine = cast(GatheringEngine, model.engine)
    check_integer("chunk_size", chunk_size, low=4)
    check_context(chunk_size, engine.context_length)
    check_integer("from_chunk", from_chunk, low=0)
    check_integer("save_frequency", save_frequency, low=1)
    if chunks is not None:
        check_integer("chunks", chunks, low=1)
    if engine.encodes and process_output:
        raise InputError("the model is an encoder without an output head; remove --process-output")
    windows = _cut(model, text, chunk_size, dataset)
    digest = hashlib.sha256(windows.astype("<i4").tobytes()).hexdigest()
    shapes = _shapes(engine, process_output)
    base = start if resume is None else resume
    if base is not None:
        check_same_shapes(base, shapes, "the model")
    if from_chunk >= len(windows):
        raise InputError(f"there is no chunk {from_chunk}: the text has {len(windows)} chunks")
    end = min(len(windows), from_chunk + (len(windows) if chunks is None else chunks))
    first = done = from_chunk
    datasets = (*(base.datasets if base is not None else ()), dataset)
    if resume is not None:
        first = done = max(from_chunk, _next_chunk(resume, digest, chunk_size, process_output))
        datasets = resume.datasets

    def result() -> Imatrix:
        matrix = Imatrix(run.entries(), chunk_size)
        matrix = matrix if base is None else merge(matrix, base)
        return replace(matrix, datasets=datasets, position=Position(done, digest))

    with model.exclusive():
        run = _Run(engine, process_output, perplexity and not engine.encodes)
        try:
            while done < end and run.chunk(windows[done], cancel):
                done += 1
                if save is not None and done < end and done % save_frequency == 0:
                    save(result())
                if progress is not None:
                    progress(ImatrixProgress(done - from_chunk, end - from_chunk, run.perplexity))
        finally:
            run.close()
    if done > first:
        matrix = result()
        if save is not None:
            save(matrix)
        return matrix
    if resume is not None:
        return resume
    raise InputError("cancelled before the first chunk was computed")


def _cut(model: Model, text: str | Sequence[int], size: int, dataset: str) -> NDArray[np.int32]:
    """Return tokens (chunks, ``size``), without those after the last whole chunk."""
    ids = np.asarray(model.tokenize(text, add_eos=False) if isinstance(text, str) else text)
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or len(ids) < size:
        raise InputError(
            f"{dataset}: the text has {len(ids)} tokens, less than one chunk of {size}: give a "
            "longer text, or smaller chunks (--ctx-size)"
        )
    check_ids(ids, model.config.vocab_size)
    windows = ids[: len(ids) // size * size].astype(np.int32).reshape(-1, size)
    if model.tokenizer.add_bos and model.tokenizer.bos_id is not None:
        windows[:, 0] = model.tokenizer.bos_id
    if model.encodes and model.tokenizer.add_eos and model.tokenizer.eos_id is not None:
        windows[:, -1] = model.tokenizer.eos_id
    return windows


def _shapes(engine: GatheringEngine, process_output: bool) -> dict[str, tuple[int, ...]]:
    """Map the names of weights to the shapes of their sums."""
    shapes: dict[str, tuple[int, ...]] = {
        f"{name}.weight": (weight.matrices, weight.k) for name, weight in engine.linears()
    }
    for weight in engine.expert_linears():
        matrices = weight.num_experts if len(weight.tensors) == 1 else 1
        shapes |= dict.fromkeys(weight.tensors, (matrices, weight.k))
    if process_output and HEAD not in shapes:
        raise InputError(
            "the model has no separate output.weight: its output head is the embedding; remove "
            "--process-output"
        )
    return {
        name: shape
        for name, shape in shapes.items()
        if name.startswith("blk.") or (process_output and name == HEAD)
    }


def _next_chunk(resume: Imatrix, digest: str, chunk_size: int, process_output: bool) -> int:
    """Return the chunk to continue ``resume`` with.

    Raises InputError unless it is of the same text and options.
    """
    position = resume.position
    if position is None:
        raise InputError(
            f"{resume.source}: it does not say where its run stopped, so --resume cannot continue "
            "it; to add to it, give it with --in-file and write another file"
        )
    if position.text_sha256 != digest or resume.chunk_size != chunk_size:
        raise InputError(
            f"{resume.source}: its run was over another text, another tokenizer or chunks of "
            f"another size (it has {resume.chunk_size} tokens); give the same, or add to it with "
            "--in-file"
        )
    if (HEAD in resume.entries) != process_output:
        raise InputError(
            f"{resume.source}: its run was {'without' if process_output else 'with'} "
            "--process-output; resume it in the same way"
        )
    return position.next_chunk


class _Run:
    """The sums of the chunks so far."""

    def __init__(self, engine: GatheringEngine, process_output: bool, perplexity: bool) -> None:
        self._engine = engine
        self._squares = ChannelSquares(process_output)
        self._process_output = process_output
        self._wants_perplexity = perplexity
        self._sums: dict[str, NDArray[np.float64]] = {}
        self._counts: dict[str, NDArray[np.int64]] = {}
        self._nll, self._scored = 0.0, 0
        self._cache = engine.new_cache()
        row_bytes = engine.config.vocab_size * np.dtype(np.float32).itemsize
        self._rows = max(1, min(engine.prefill_chunk, LOGITS_BYTES // row_bytes))
        engine.gather(self._squares)

    def close(self) -> None:
        """Stop collecting."""
        self._engine.gather(None)

    @property
    def perplexity(self) -> float | None:
        """exp of the mean negative log-likelihood so far; None if not wanted."""
        if not self._scored:
            return None
        mean = self._nll / self._scored
        return math.exp(mean) if mean < 700 else math.inf

    def chunk(self, tokens: NDArray[np.int32], cancel: Cancel | None) -> bool:
        """Compute one chunk; return False if cancelled, which leaves the sums unchanged."""
        if not self._evaluate(tokens, self._cache, cancel):
            self._squares.take()
            return False
        added: set[int] = set()
        for name, (sums, counts) in self._squares.take().items():
            if not np.isfinite(sums).all():
                raise TrinityError(
                    f"the inputs of {name} are not finite: the model is damaged, or its scales are "
                    "wrong"
                )
            if name not in self._sums:
                self._sums[name], self._counts[name] = sums, counts
            elif id(self._sums[name]) not in added:  # weights that share an input share the arrays
                self._sums[name] += sums
                self._counts[name] += counts
                added.add(id(self._sums[name]))
        return True

    def _evaluate(self, tokens: NDArray[np.int32], cache: KVCache, cancel: Cancel | None) -> bool:
        half, size = len(tokens) // 2, len(tokens)
        scores = self._wants_perplexity
        cache.truncate(0)
        if self._engine.encodes:
            if cancel is not None and cancel.is_set():
                return False
            self._engine.step([Rows(cache, tokens, 0)])
            return True
        step = self._rows if self._process_output else self._engine.prefill_chunk
        starts = [*range(0, half, step), *range(half, size, self._rows if scores else step)]
        for start, end in zip(starts, [*starts[1:], size], strict=True):
            if cancel is not None and cancel.is_set():
                return False
            scored = scores and start >= half
            wanted = end - start if scored or self._process_output else 0
            logits = self._engine.step([Rows(cache, tokens[start:end], wanted)])
            targets = tokens[start + 1 : end + 1]
            if scored and len(targets):
                nlls = negative_log_likelihoods(logits[: len(targets)], targets)
                self._nll += float(nlls.sum())
                self._scored += len(nlls)
        return True

    def entries(self) -> dict[str, ImatrixEntry]:
        """Return the sums so far."""
        with np.errstate(over="ignore"):  # infinities are rejected when they are written
            return {
                name: ImatrixEntry(sums.astype(np.float32), self._counts[name].copy())
                for name, sums in self._sums.items()
            }
