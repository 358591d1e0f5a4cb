"""A loaded model: weights bound, plans built, a team of threads that walks them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.errors import (
    ContextLengthError,
    InputError,
    KernelError,
    TrinityError,
    UnsupportedError,
)
from trinity.formats.mapping_table import TABLE, faults
from trinity.formats.provider import Tensor, WeightProvider
from trinity.load_options import LoadOptions
from trinity.models import decoder_of
from trinity.runtime.channel_squares import ChannelSquares
from trinity.runtime.kernel_choice import KernelChoice
from trinity.runtime.kv_cache import KVCache
from trinity.runtime.memory import enough_memory, zeros
from trinity.runtime.paging import populate, small_pages
from trinity.runtime.plan import Buffers, PlanBuilder, Step
from trinity.runtime.profile import OperationTime, PlanRecorder, time_operations
from trinity.runtime.weights import Weight, Weights
from trinity_kernels import isa as isa_levels
from trinity_kernels.bus_errors import catch_bus_errors
from trinity_kernels.ops.kv_layout import KV_TYPES, TILE, layer_bytes
from trinity_kernels.ops.matmul import variants
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.quants import TYPES
from trinity_kernels.record import RECORD
from trinity_kernels.team import Team, TeamError, default_threads

Progress = Callable[[str], None]

PREFILL_CHUNK = 512
# Of ternary weights; inverted scales are 1 / 0.02 or so.
LARGEST_SCALE = 8.0
DECODE_ROWS = 16
USUAL_CONTEXT, USUAL_CACHE = 4096, 150_000_000  # tokens; bytes beside any weights
OUTPUT_ROWS = 16
CHECK_SECONDS = 0.1  # between looks at the file


class CPUEngine:
    """Maps token ids to logits. One step at a time; not to be called from two threads at once."""

    def __init__(
        self, provider: WeightProvider, *, threads: int, context_length: int, kv_type: str,
        isa: str, progress: Progress | None,
    ) -> None:  # fmt: skip
        config = provider.config
        self.config: ModelConfig = config
        self.context_length = context_length
        self.threads = threads
        self.isa = isa
        self.kv_type = kv_type
        self.prefill_chunk = min(PREFILL_CHUNK, context_length)
        self._weights = Weights(provider)
        catch_bus_errors(TABLE)
        # All tensors are found to be what the configuration asks for before memory is taken for it.
        decoder = self._decoder = decoder_of(
            config, self._weights.names, self._weights.shape, provider.path
        )
        architecture = decoder.architecture
        self._embedding: Tensor = self._weights.matrix(
            "token_embd.weight", config.vocab_size, config.hidden_size
        )
        if TYPES[self._embedding.type].tensor_scale:  # one sequence of codes, no rows to look up
            raise UnsupportedError(
                f"{provider.path}: tensor 'token_embd.weight' has type {self._embedding.type}, "
                "which trinity runs in layers only; take a file with another type of embedding"
            )
        self._embedding_scale = np.float32(architecture.embedding_scale(config))
        capacity = -(-context_length // TILE) * TILE
        choice = self._choice = KernelChoice(isa, progress)
        halves = architecture.rope_halves or not provider.rope_interleaved
        builder = PlanBuilder(
            decoder, self._weights, capacity, threads, not halves, choice.address
        )  # fmt: skip
        output = self._weights.linear(decoder.head, config.vocab_size, config.hidden_size)
        linears = [weight for layer in builder.layers for weight in layer.values()]
        self._layer_bytes = sum(weight.nbytes for weight in linears)
        self._head_bytes = output.nbytes
        _warn_of_inverted_scales(linears, provider.path, progress)
        populate(weight.data for weight in [*linears, output])
        types = {w.type for w in linears} | ({output.type} if output.form != "f32" else set())
        builder.kernel = variants.choose_kernel(isa, types, choice.work)
        # What forward_few multiplies by: nobody shall wait for the compiler in mid-text.
        for type_name in sorted({weight.type for weight in [*linears, output]}):
            if not variants.serves(builder.kernel, type_name, exact=True):
                choice.prepare(matmul, type_name)
        self.few = min(DECODE_ROWS, self.prefill_chunk)
        self._step = Step(self.prefill_chunk)
        self._few = Step(self.few)
        self._buffers = Buffers(
            decoder,
            [*linears, output],
            self.prefill_chunk,
            OUTPUT_ROWS,
            threads,
            builder.kernel,
        )
        self._builder = builder
        self._output = output
        self._head = _plan(builder.head(self._buffers, self._step, output))
        self._plans: dict[str, tuple[NDArray[np.void], NDArray[np.void]]] = {}
        self._exact_plans: dict[str, NDArray[np.void]] = {}
        self._plans_for(kv_type)
        self._row_bytes = TYPES[self._embedding.type].nbytes((1, config.hidden_size))
        self._check_file()
        self._key = object()  # what its caches are known by
        try:
            self._team = Team(threads)
        except TeamError as error:
            raise TrinityError(str(error)) from error
        self._closed = False

    def new_cache(self, kv_type: str | None = None) -> KVCache:
        """An empty cache of ``context_length`` positions, of the engine's type or another.

        Raises: InputError for an unknown type, TrinityError where there is no memory for it.
        """
        kind = (kv_type or self.kv_type).upper()
        if kind not in KV_TYPES:
            raise InputError(f"kv_type must be f16 or f32, got {kv_type!r}")
        cache = KVCache(self._decoder.attention, self.context_length, kind, self._key)
        # Heads lie far apart: in large pages the first token would fill the whole cache, which is
        # right beside weights of that size, and not where a small file asks for a huge one.
        usual = cache.nbytes * min(USUAL_CONTEXT, self.context_length) // self.context_length
        if usual > USUAL_CACHE + 2 * (self._layer_bytes + self._head_bytes):
            small_pages(cache.address, cache.nbytes)
        return cache

    def _plans_for(self, kv_type: str) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """The plans for many tokens (layers only) and for few (layers and head)."""
        if kv_type not in self._plans:
            builder, buffers = self._builder, self._buffers
            few = builder.steps(buffers, self._few, kv_type, True)
            few += builder.head(buffers, self._few, self._output)
            many = builder.steps(buffers, self._step, kv_type, False)
            self._plans[kv_type] = _plan(many), _plan(few)
        return self._plans[kv_type]

    def _exact_plan(self, kv_type: str) -> NDArray[np.void]:
        """The plan for few tokens in the arithmetic of one, built when it is first wanted."""
        if self._builder.kernel is matmul:
            return self._plans_for(kv_type)[1]
        if kv_type not in self._exact_plans:
            builder, buffers, step = self._builder, self._buffers, self._few
            records = builder.steps(buffers, step, kv_type, True, exact=True)
            records += builder.head(buffers, step, self._output, exact=True)
            self._exact_plans[kv_type] = _plan(records)
        return self._exact_plans[kv_type]

    def gather(self, squares: ChannelSquares | None) -> None:
        """From now on every step adds the squares of the linears' inputs to ``squares``.

        None ends it; steps are then as they were, at no cost.
        """
        self._builder.squares = squares
        self._plans.clear()
        self._exact_plans.clear()
        self._head = _plan(self._builder.head(self._buffers, self._step, self._output))

    def linears(self) -> list[tuple[str, Weight]]:
        """Every bound linear with its canonical name, the output head last."""
        layers = [weight for layer in self._builder.layers for weight in layer.values()]
        return [(weight.name, weight) for weight in [*layers, self._output]]

    def bytes_per_token(self, context: int) -> int:
        """Bytes of weights and cache that decoding one token at ``context`` positions reads."""
        cache = 0
        for layer in self._decoder.attention:
            seen = min(context, layer.window or context)
            one = layer_bytes(self.kv_type, layer.num_kv_heads, layer.head_dim, TILE)
            cache += one // TILE * seen
        return self._layer_bytes + self._head_bytes + cache

    def forward(
        self, tokens: NDArray[np.int32], cache: Any, *, all_logits: bool = False
    ) -> NDArray[np.float32]:
        """Logits (1, V) of the last token, or (n, V) of all; see runtime/interface.py."""
        ids = self._ids(tokens, self.prefill_chunk)
        count = len(ids)
        if count == 1:
            return self.forward_batch(ids, [cache])
        self._check(cache, count)
        if all_logits:
            logits = zeros((count, self.config.vocab_size), "f4", f"the logits of {count} tokens")
        self._embed(ids)
        self._builder.reach(cache.length + count)
        step = self._step
        step.tokens[0] = count
        step.positions[:count] = np.arange(cache.length, cache.length + count)
        step.caches[:count] = cache.address
        self._walk(self._plans_for(cache.kv_type)[0])
        cache.length += count
        if not all_logits:
            return self._outputs(np.array([count - 1]))
        for start in range(0, count, OUTPUT_ROWS):
            rows = np.arange(start, min(start + OUTPUT_ROWS, count))
            logits[rows] = self._outputs(rows)
        return logits

    def forward_batch(
        self, tokens: NDArray[np.integer], caches: Sequence[KVCache]
    ) -> NDArray[np.float32]:
        """One token for each of several sequences, in one pass over the weights.

        Shapes: tokens (B,), B caches that are all different, B <= 16; returns (B, V), valid until
        the next step.
        """
        ids = self._ids(tokens, self.few)
        if len(ids) != len(caches):
            raise InputError(
                f"a batch takes as many caches as tokens, got {len(ids)} tokens and "
                f"{len(caches)} caches"
            )
        step = self._few
        for i, cache in enumerate(caches):
            self._check(cache, 1)
            self._builder.reach(cache.length + 1)
            step.positions[i] = cache.length
            step.caches[i] = cache.address
        if len(caches) > 1:
            _check_batch(caches)
        logits = self._run_few(ids, self._plans_for(caches[0].kv_type)[1])
        for cache in caches:
            cache.length += 1
        return logits

    def forward_few(self, tokens: NDArray[np.int32], cache: Any) -> NDArray[np.float32]:
        """Logits (n, V) after each of at most ``few`` tokens; see runtime/interface.py."""
        ids = self._ids(tokens, self.few)
        count = len(ids)
        self._check(cache, count)
        self._builder.reach(cache.length + count)
        self._few.positions[:count] = np.arange(cache.length, cache.length + count)
        self._few.caches[:count] = cache.address
        logits = self._run_few(ids, self._exact_plan(cache.kv_type))
        cache.length += count
        return logits

    def _run_few(self, ids: NDArray[np.integer], plan: NDArray[np.void]) -> NDArray[np.float32]:
        """Logits of a step whose positions and caches are set."""
        count, step = len(ids), self._few
        self._embed(ids)
        step.tokens[0] = step.outputs[0] = count
        step.output_rows[:count] = np.arange(count)
        self._walk(plan)
        return self._buffers.logits[:count]

    def _walk(self, plan: NDArray[np.void]) -> None:
        if monotonic() >= self._next_check or faults() != self._faults:
            self._check_file()
        try:
            self._team.run(plan)
        except TeamError as error:  # the first step of a forked child starts threads
            raise TrinityError(str(error)) from error
        if faults() != self._faults:  # what was read as zeros must not become a token
            self._check_file()

    def _check_file(self) -> None:
        """Raise FormatError where the model's file was cut or overwritten."""
        found = faults()
        self._weights.provider.check()
        self._faults = found
        self._next_check = monotonic() + CHECK_SECONDS

    def profile(
        self, tokens: NDArray[np.int32], caches: Sequence[KVCache], *, rounds: int = 3
    ) -> list[OperationTime]:
        """The time of every operation of a step, each run alone; the caches stay as they are.

        The step is ``forward_batch``'s where there are as many caches as tokens, else that of
        ``forward`` with the one cache. Raises: as these do.
        """
        before, team = [cache.length for cache in caches], self._team
        recorder = PlanRecorder(team)
        self._team = cast(Team, recorder)
        try:
            if len(tokens) == len(caches):
                self.forward_batch(tokens, caches)
            else:
                self.forward(tokens, caches[0])
        finally:
            self._team = team
        for cache, length in zip(caches, before, strict=True):
            cache.truncate(length)
        return time_operations(
            team, np.concatenate(recorder.plans), self._choice.names(),
            sum(before) + len(caches), lambda: self._embed(np.asarray(tokens)), rounds,
        )  # fmt: skip

    def _outputs(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        self._step.outputs[0] = len(rows)
        self._step.output_rows[: len(rows)] = rows
        self._walk(self._head)
        return self._buffers.logits[: len(rows)]

    def _check(self, cache: Any, count: int) -> None:
        """Kernels reach a cache by its address: nothing but an own one, with room, may go there."""
        if self._closed:
            raise InputError("this model is closed")
        if type(cache) is not KVCache or cache.owner is not self._key:
            raise InputError(
                "the cache is not one of this engine's; take one from its new_cache(), got "
                f"{type(cache).__name__}"
            )
        length = cache.length
        if type(length) is not int or length < 0:
            raise InputError(f"the cache's length is {length!r}, which no step has left there")
        if length + count > self.context_length:
            raise ContextLengthError(
                f"{length} + {count} tokens do not fit a context of {self.context_length}"
            )

    def _ids(self, tokens: Any, most: int) -> NDArray[np.integer]:
        """``tokens`` as an array, which is checked."""
        ids = np.asarray(tokens)
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise InputError(
                f"tokens must be a flat sequence of integers, got shape {ids.shape} of {ids.dtype}"
            )
        if not 1 <= len(ids) <= most:
            raise InputError(f"this step takes 1 to {most} tokens, got {len(ids)}")
        if ids.min() < 0 or ids.max() >= self.config.vocab_size:
            raise InputError(
                f"token ids must lie in 0..{self.config.vocab_size - 1}, "
                f"got {ids.min()}..{ids.max()}"
            )
        return ids

    def _embed(self, ids: NDArray[np.integer]) -> None:
        table = self._embedding.data[: self._row_bytes * self.config.vocab_size]
        rows = np.ascontiguousarray(table.reshape(self.config.vocab_size, -1)[ids])
        shape = (len(ids), self.config.hidden_size)
        self._buffers.x[: len(ids)] = TYPES[self._embedding.type].dequantize(
            rows.reshape(-1), shape
        )
        if self._embedding_scale != 1:
            self._buffers.x[: len(ids)] *= self._embedding_scale

    def close(self) -> None:
        """End the threads; the engine must not be used afterwards."""
        if not self._closed:
            self._closed = True
            self._team.close()


def _check_batch(caches: Sequence[KVCache]) -> None:
    if len({cache.address for cache in caches}) != len(caches):
        raise InputError("the caches of a batch must all be different, and one is there twice")
    kinds = sorted({cache.kv_type for cache in caches})
    if len(kinds) > 1:
        raise InputError(f"the caches of a batch must have one type, got {' and '.join(kinds)}")


def _plan(records: list[NDArray[np.int64]]) -> NDArray[np.void]:
    plan = np.zeros(len(records), RECORD)
    plan["slots"] = records
    return plan


def _warn_of_inverted_scales(
    linears: Sequence[Weight], path: str, progress: Progress | None
) -> None:
    """Scales are means of weights' magnitudes or so; one over them is a converter's mistake."""
    scales = [abs(weight.scale) for weight in linears if TYPES[weight.type].tensor_scale]
    if not scales or float(np.median(scales)) <= LARGEST_SCALE:
        return
    message = (
        f"{path}: half of the ternary scales exceed {float(np.median(scales)):.3g}, where "
        f"trained models have less than {LARGEST_SCALE:g}: they look inverted, by a converter that "
        "divided where it should have multiplied. Expect nonsense; convert the checkpoint again"
    )
    if progress:
        progress(f"warning: {message}")
    else:
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def load_engine(
    provider: WeightProvider, *, threads: int | None = None, context_length: int | None = None,
    kv_type: str = "f16", isa: str | None = None, kv_memory: int | None = None,
    batch_invariant: bool = False, progress: Progress | None = None,
) -> CPUEngine:  # fmt: skip
    """Bind a provider's model to this machine.

    ``threads``: default the physical cores that this process may use. ``context_length``: default
    the model's own, at most 4096 unless asked for. ``progress`` gets lines about compilation.
    Raises: InputError, KernelError, ConfigError, UnsupportedError.
    """
    LoadOptions(
        threads=threads, context_length=context_length, kv_type=kv_type, isa=isa,
        kv_memory=kv_memory, batch_invariant=batch_invariant,
    )  # fmt: skip
    config = provider.config
    limit = min(config.context_length, USUAL_CONTEXT)
    context = limit if context_length is None else context_length
    try:
        level = isa_levels.select_level(isa)
    except isa_levels.IsaError as error:
        raise KernelError(str(error)) from error
    with enough_memory(f"to load {provider.path} for a context of {context} tokens"):
        return CPUEngine(
            provider, threads=threads or default_threads(), context_length=context,
            kv_type=kv_type.upper(), isa=level, progress=progress,
        )  # fmt: skip
