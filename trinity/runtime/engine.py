"""A loaded model: weights bound, plans built, a team of threads that walks them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.errors import ContextLengthError, InputError, KernelError, TrinityError
from trinity.formats.provider import Tensor, WeightProvider
from trinity.models import find_architecture
from trinity.runtime.channel_squares import ChannelSquares
from trinity.runtime.kernel_choice import KernelChoice
from trinity.runtime.kv_cache import KVCache
from trinity.runtime.paging import populate
from trinity.runtime.plan import Buffers, PlanBuilder, Step
from trinity.runtime.profile import OperationTime, PlanRecorder, time_operations
from trinity.runtime.rope import rope_table
from trinity.runtime.weights import Weight, Weights
from trinity_kernels import isa as isa_levels
from trinity_kernels.ops.kv_layout import KV_TYPES, TILE
from trinity_kernels.ops.matmul import variants
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.quants import TYPES
from trinity_kernels.record import RECORD
from trinity_kernels.team import Team, default_threads

Progress = Callable[[str], None]

PREFILL_CHUNK = 512
# Of ternary weights; inverted scales are 1 / 0.02 or so.
LARGEST_SCALE = 8.0
DECODE_ROWS = 16
OUTPUT_ROWS = 16


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
        architecture = find_architecture(config.architecture, provider.path)
        self._weights = Weights(provider)
        self._embedding: Tensor = self._weights.matrix(
            "token_embd.weight", config.vocab_size, config.hidden_size
        )
        factors = None
        if self._weights.has("rope_freqs.weight"):
            factors = self._weights.vector("rope_freqs.weight", config.rope_dim // 2)
        capacity = -(-context_length // TILE) * TILE
        choice = self._choice = KernelChoice(isa, progress)
        halves = architecture.rope_halves or not provider.rope_interleaved
        builder = PlanBuilder(
            config, self._weights, capacity, threads,
            rope_table(config, capacity, factors), not halves, choice.address,
        )  # fmt: skip
        builder.load(architecture)
        head = "token_embd" if config.tie_word_embeddings else "output"
        output = self._weights.linear(head, config.vocab_size, config.hidden_size)
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
            config,
            [*linears, output],
            self.prefill_chunk,
            OUTPUT_ROWS,
            threads,
            builder.kernel,
        )
        self._builder = builder
        self._architecture = architecture
        self._output = output
        self._head = _plan(builder.head(self._buffers, self._step, output))
        self._plans: dict[str, tuple[NDArray[np.void], NDArray[np.void]]] = {}
        self._exact_plans: dict[str, NDArray[np.void]] = {}
        self._plans_for(kv_type)
        self._row_bytes = TYPES[self._embedding.type].nbytes((1, config.hidden_size))
        self._team = Team(threads)
        self._closed = False

    def new_cache(self, kv_type: str | None = None) -> KVCache:
        """An empty cache of ``context_length`` positions, of the engine's type or another."""
        return KVCache(self.config, self.context_length, kv_type or self.kv_type)

    def _plans_for(self, kv_type: str) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """The plans for many tokens (layers only) and for few (layers and head)."""
        if kv_type not in self._plans:
            builder, buffers, architecture = self._builder, self._buffers, self._architecture
            few = builder.steps(architecture, buffers, self._few, kv_type, True)
            few += builder.head(buffers, self._few, self._output)
            many = builder.steps(architecture, buffers, self._step, kv_type, False)
            self._plans[kv_type] = _plan(many), _plan(few)
        return self._plans[kv_type]

    def _exact_plan(self, kv_type: str) -> NDArray[np.void]:
        """The plan for few tokens in the arithmetic of one, built when it is first wanted."""
        if self._builder.kernel is matmul:
            return self._plans_for(kv_type)[1]
        if kv_type not in self._exact_plans:
            builder, buffers, step = self._builder, self._buffers, self._few
            records = builder.steps(self._architecture, buffers, step, kv_type, True, exact=True)
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
        one = KVCache(self.config, TILE, self.kv_type)
        cache = one.layer_bytes * self.config.num_layers // TILE * context
        return self._layer_bytes + self._head_bytes + cache

    def forward(
        self, tokens: NDArray[np.int32], cache: Any, *, all_logits: bool = False
    ) -> NDArray[np.float32]:
        """Logits (1, V) of the last token, or (n, V) of all; see runtime/interface.py."""
        count = len(tokens)
        if count == 1:
            return self.forward_batch(tokens, [cache])
        if not 1 <= count <= self.prefill_chunk:
            raise InputError(f"a step takes 1 to {self.prefill_chunk} tokens, got {count}")
        self._check(cache, count)
        self._embed(tokens)
        step = self._step
        step.tokens[0] = count
        step.positions[:count] = np.arange(cache.length, cache.length + count)
        step.caches[:count] = cache.address
        self._team.run(self._plans_for(cache.kv_type)[0])
        cache.length += count
        if not all_logits:
            return self._outputs(np.array([count - 1]))
        logits = np.empty((count, self.config.vocab_size), np.float32)
        for start in range(0, count, OUTPUT_ROWS):
            rows = np.arange(start, min(start + OUTPUT_ROWS, count))
            logits[rows] = self._outputs(rows)
        return logits

    def forward_batch(
        self, tokens: NDArray[np.int32], caches: Sequence[KVCache]
    ) -> NDArray[np.float32]:
        """One token for each of several sequences, in one pass over the weights.

        Shapes: tokens (B,), B caches that are all different, B <= 16; returns (B, V), valid until
        the next step.
        """
        count = len(tokens)
        if count != len(caches) or not 1 <= count <= self.few:
            raise InputError(
                f"a batch takes 1 to {self.few} tokens and as many caches, "
                f"got {count} and {len(caches)}"
            )
        step = self._few
        for i, cache in enumerate(caches):
            self._check(cache, 1)
            step.positions[i] = cache.length
            step.caches[i] = cache.address
        logits = self._run_few(tokens, self._plans_for(caches[0].kv_type)[1])
        for cache in caches:
            cache.length += 1
        return logits

    def forward_few(self, tokens: NDArray[np.int32], cache: Any) -> NDArray[np.float32]:
        """Logits (n, V) after each of at most ``few`` tokens; see runtime/interface.py."""
        count = len(tokens)
        if not 1 <= count <= self.few:
            raise InputError(f"this step takes 1 to {self.few} tokens, got {count}")
        self._check(cache, count)
        self._few.positions[:count] = np.arange(cache.length, cache.length + count)
        self._few.caches[:count] = cache.address
        logits = self._run_few(tokens, self._exact_plan(cache.kv_type))
        cache.length += count
        return logits

    def _run_few(self, tokens: NDArray[np.int32], plan: NDArray[np.void]) -> NDArray[np.float32]:
        """Logits of a step whose positions and caches are set."""
        count, step = len(tokens), self._few
        self._embed(tokens)
        step.tokens[0] = step.outputs[0] = count
        step.output_rows[:count] = np.arange(count)
        self._team.run(plan)
        return self._buffers.logits[:count]

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
            sum(before) + len(caches), lambda: self._embed(tokens), rounds,
        )  # fmt: skip

    def _outputs(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        self._step.outputs[0] = len(rows)
        self._step.output_rows[: len(rows)] = rows
        self._team.run(self._head)
        return self._buffers.logits[: len(rows)]

    def _check(self, cache: KVCache, count: int) -> None:
        if self._closed:
            raise InputError("this model is closed")
        if cache.length + count > self.context_length:
            raise ContextLengthError(
                f"{cache.length} + {count} tokens do not fit a context of {self.context_length}"
            )

    def _embed(self, tokens: NDArray[np.int32]) -> None:
        ids = np.asarray(tokens, np.int64)
        if ids.min() < 0 or ids.max() >= self.config.vocab_size:
            raise InputError(
                f"token ids must lie in 0..{self.config.vocab_size - 1}, "
                f"got {ids.min()}..{ids.max()}"
            )
        table = self._embedding.data[: self._row_bytes * self.config.vocab_size]
        rows = np.ascontiguousarray(table.reshape(self.config.vocab_size, -1)[ids])
        shape = (len(ids), self.config.hidden_size)
        self._buffers.x[: len(ids)] = TYPES[self._embedding.type].dequantize(
            rows.reshape(-1), shape
        )

    def close(self) -> None:
        """End the threads; the engine must not be used afterwards."""
        if not self._closed:
            self._closed = True
            self._team.close()


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
    kv_type: str = "f16", isa: str | None = None, progress: Progress | None = None,
) -> CPUEngine:  # fmt: skip
    """Bind a provider's model to this machine.

    ``threads``: default the physical cores that this process may use. ``context_length``: default
    the model's own, at most 4096 unless asked for. ``progress`` gets lines about compilation.
    Raises: InputError, KernelError, ConfigError, UnsupportedError.
    """
    if kv_type.upper() not in KV_TYPES:
        raise InputError(f"kv_type must be f16 or f32, got {kv_type!r}")
    if threads is not None and not 1 <= threads <= 1024:
        raise InputError(f"threads must be 1 to 1024, got {threads}")
    config = provider.config
    # Attention is over all positions: a model with a window is right as long as it holds them.
    window = config.sliding_window or config.context_length
    limit = min(config.context_length, window, 4096)
    context = limit if context_length is None else context_length
    if config.sliding_window and context > config.sliding_window:
        raise InputError(
            f"{provider.path}: the model attends to the last {config.sliding_window} tokens only, "
            f"which trinity does not do; ask for a context_length of at most that, not {context}"
        )
    if context < 1:
        raise InputError(f"context_length must be at least 1, got {context}")
    try:
        level = isa_levels.select_level(isa)
    except isa_levels.IsaError as error:
        raise KernelError(str(error)) from error
    try:
        return CPUEngine(
            provider, threads=threads or default_threads(), context_length=context,
            kv_type=kv_type.upper(), isa=level, progress=progress,
        )  # fmt: skip
    except MemoryError as error:
        raise TrinityError(
            f"{provider.path}: not enough memory for a context of {context} tokens; "
            "ask for a smaller context_length"
        ) from error
