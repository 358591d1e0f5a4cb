"""A loaded model: weights bound, plans built, a team of threads that walks them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
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
)
from trinity.formats.adapters import open_adapter
from trinity.formats.mapping_table import TABLE, faults
from trinity.formats.provider import WeightProvider
from trinity.formats.tensor_names import complete
from trinity.models import decoder_of, find_architecture
from trinity.models.adapter_base import base_of, token_tables
from trinity.options.load_options import AdapterFile, LoadOptions, adapter_files
from trinity.runtime.adapters import AdapterSet
from trinity.runtime.added_rows import AddedRows
from trinity.runtime.channel_squares import ChannelSquares
from trinity.runtime.drafting import Drafter
from trinity.runtime.embedding import Embedding
from trinity.runtime.emptied import Emptied
from trinity.runtime.expert_buffers import rows_that_fit
from trinity.runtime.expert_weight import ExpertWeight
from trinity.runtime.interface import Rows
from trinity.runtime.kernel_choice import KernelChoice
from trinity.runtime.kv_cache import KVCache, check_different
from trinity.runtime.memory import enough_memory, zeros
from trinity.runtime.page import COMMON, AdapterWeights, Domain
from trinity.runtime.page_layout import PageLayout
from trinity.runtime.page_pool import PagePool
from trinity.runtime.paging import available_memory, populate, small_pages
from trinity.runtime.plan import Buffers, PlanBuilder, Step
from trinity.runtime.profile import OperationTime, PlanRecorder, time_operations
from trinity.runtime.rounding import Rounding, same_bits
from trinity.runtime.step_plans import StepPlan, StepPlans
from trinity.runtime.weights import Weight, Weights, warn_of_inverted_scales
from trinity_kernels import isa as isa_levels
from trinity_kernels.bus_errors import catch_bus_errors
from trinity_kernels.cores import default_threads
from trinity_kernels.ops.kv_layout import KV_TYPES, layer_bytes
from trinity_kernels.ops.matmul import variants
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.record import RECORD
from trinity_kernels.team import Team, TeamError

Progress = Callable[[str], None]

PREFILL_CHUNK = 512
DECODE_ROWS = 16
USUAL_CONTEXT, USUAL_CACHE = 4096, 150_000_000  # tokens; bytes beside any weights
USUAL_SEQUENCES, MEMORY_SHARE = 16, 4  # whole contexts in the pool; in a part of the free memory
OUTPUT_ROWS = 16
FINGER_BYTES = 64  # of each end of a tensor
CHECK_SECONDS = 0.1  # between looks at the file
# What an engine still has when it is closed: nothing of the model's size, and no view of its file.
_KEPT = ("_closed", "adapters", "batch_invariant", "config", "context_length", "drafts", "encodes",
         "few", "isa", "kv_type", "pool", "prefill_chunk", "threads")  # fmt: skip


class CPUEngine(Emptied):
    """Maps rows of tokens to logits. One step at a time; not to be called from two threads at once.

    ``batch_invariant``: every step is as if ``exact`` was asked for. ``reuse_answers``: prompts may
    begin with the keys and values of generated tokens, whatever their bits.
    """

    def __init__(
        self, provider: WeightProvider, *, threads: int, context_length: int, kv_type: str,
        isa: str, kv_memory: int | None, batch_invariant: bool, reuse_answers: bool,
        progress: Progress | None,
        lora: Sequence[tuple[str | os.PathLike[str], float]] = (),
    ) -> None:  # fmt: skip
        config = provider.config
        self.config: ModelConfig = config
        self.context_length = context_length
        self.threads = threads
        self.isa = isa
        self.batch_invariant = batch_invariant
        self._reuse_answers = reuse_answers
        self._weights = Weights(provider)
        catch_bus_errors(TABLE)
        # All tensors are found to be what the configuration asks for before memory is taken for it.
        decoder = self._decoder = decoder_of(
            config, self._weights.names, self._weights.shape, provider.path
        )
        architecture = decoder.architecture
        # An encoder's last for one step: it is not worth to round them and to widen them again.
        kv_type = self.kv_type = "F32" if architecture.encodes else kv_type
        tables = token_tables(decoder)
        base = base_of(decoder, provider)
        adapters = [open_adapter(path, base) for path, _ in lora]
        embeddings = [
            Embedding(
                self._weights, complete(t.weight), config.vocab_size, t.width, t.scale
            ) for t in tables
        ]  # fmt: skip
        choice = self._choice = KernelChoice(isa, progress)
        halves = architecture.rope_halves or not provider.rope_interleaved
        builder = PlanBuilder(
            decoder, self._weights, context_length, threads, not halves, choice.address
        )  # fmt: skip
        self._added = AddedRows(self._weights, decoder, context_length)
        output = None
        if decoder.head:
            output = self._weights.linear(decoder.head, config.vocab_size, config.hidden_size)
            output = output.scaled(architecture.logit_scale(config))
        heads = [] if output is None else [output]
        drafting = decoder.drafting_prefix
        linears = [weight for part in builder.bound.values() for weight in part.values()]
        experts = [weight for part in builder.experts.values() for weight in part.values()]
        self._linears = linears[: len(linears) - len(builder.bound[drafting])]
        self._experts = experts[: len(experts) - len(builder.experts[drafting])]
        self.encodes = architecture.encodes
        rows = context_length if self.encodes else min(PREFILL_CHUNK, context_length)
        self.prefill_chunk = rows_that_fit(decoder, experts, rows)
        self.few = min(DECODE_ROWS, self.prefill_chunk)
        self._adapters: AdapterSet | None = None
        scales = [scale for _, scale in lora]
        self.adapters = tuple(zip((one.path for one in adapters), scales, strict=True))
        if adapters:
            self._adapters = AdapterSet(
                adapters, scales, decoder, self._weights, tables, self.prefill_chunk
            )  # fmt: skip
        self._layout = PageLayout(
            decoder.attention, context_length, self.prefill_chunk,
            [operation.state_width for _, operation in decoder.states],
        )  # fmt: skip
        builder.layout = self._layout
        self._kv_memory = self._memory_limit(kv_memory)
        self._layer_bytes = sum(weight.nbytes for weight in self._linears)
        used = config.experts.num_experts_per_tok if config.experts else 0
        self._active_bytes = sum(used * weight.expert_bytes for weight in self._experts)
        self._head_bytes = sum(weight.nbytes for weight in heads)
        bound: list[Weight | ExpertWeight] = [*linears, *experts]
        factors = [(weight.type, weight.scale) for weight in linears]
        factors += [(weight.type, float(scale)) for weight in experts for scale in weight.scales]
        warn_of_inverted_scales(factors, provider.path, progress)
        mapped = [weight.data for weight in [*linears, *heads]]
        self._populating = populate(
            [*mapped, *(data for weight in experts for data in weight.data)]
        )
        types = {w.type for w in bound} | {w.type for w in heads if w.form != "f32"}
        builder.kernel = variants.choose_kernel(isa, types, choice.work)
        of_layers = {w.type for w in self._linears} | {w.type for w in self._experts}
        self._same_bits = batch_invariant or same_bits(builder.kernel, of_layers)
        # What exact steps multiply by: nobody shall wait for the compiler in mid-text.
        for type_name in sorted({weight.type for weight in [*bound, *heads]}):
            if not variants.serves(builder.kernel, type_name, exact=True):
                choice.prepare(matmul, type_name)
        reaches = {layer.reach for layer in decoder.attention if layer.both_ways}
        self._step = Step(self.prefill_chunk, reaches)
        self._buffers = Buffers(
            decoder,
            [*linears, *heads],
            experts,
            self.prefill_chunk,
            threads,
            builder.kernel,
        )
        into = [self._buffers.rows(table.buffer, table.width) for table in tables]
        self._embeddings = list(zip(embeddings, into, strict=True))
        self._builder = builder
        self._heads = heads
        self._drafter: Drafter | None = None
        if decoder.drafting and output is not None:
            self._drafter = Drafter(
                builder, self._buffers, self._step, output, embeddings[0], self.few
            )
        self.drafts = self._drafter is not None
        states = builder.states(self._buffers, self._step)
        self._states = np.zeros(len(states), RECORD)
        if states:
            self._states["slots"] = states
        self._plans = StepPlans(
            builder, self._buffers, self._step, heads, self._adapters, DECODE_ROWS
        )  # fmt: skip
        for adapted in (False, True) if self._adapters else (False,):
            for few in (True, False):
                self._plans.get(kv_type, few, self._rounding(prompt=not few), adapted)
                if self._drafter is not None:
                    self._drafter.plan(kv_type, few)
        self._check_file()
        self.renew_pool()
        try:
            self._team = Team(threads)
        except TeamError as error:
            raise TrinityError(str(error)) from error
        self._closed = False

    def _memory_limit(self, wanted: int | None) -> int:
        """Bytes that all pages may take together. Raises: InputError where that is no context."""
        needs = {kind: self._layout.sequence_bytes(kind, self.context_length) for kind in KV_TYPES}
        least = needs[self.kv_type]
        if wanted is None:
            share = min(USUAL_SEQUENCES * least, available_memory() // MEMORY_SHARE)
            return max(share, *needs.values())
        if wanted < least:
            raise InputError(
                f"kv_memory is {wanted} bytes, but one sequence of {self.context_length} tokens "
                f"needs {least} for its keys and values: give more, or use a smaller "
                "context_length (--ctx)"
            )
        return wanted

    def renew_pool(self) -> None:
        """Begin with an empty pool; see runtime/interface.py."""
        layout = self._layout
        sizes = {kind: layout.sizes(kind) for kind in KV_TYPES}
        # A page's heads lie far apart: in large pages of the system the first token would fill all
        # of it, which is right beside weights of that size, and not where a small file asks for it.
        usual = layout.sequence_bytes(self.kv_type, USUAL_CONTEXT)
        large = usual > USUAL_CACHE + 2 * (self._layer_bytes + self._head_bytes)
        prepare = small_pages if large else None
        self.pool = PagePool(sizes, self._kv_memory, layout.window, prepare)

    def adapter_weights(self, wanted: Mapping[int, float] | None = None) -> AdapterWeights:
        """The weights that a request means; see runtime/interface.py."""
        if self._adapters is not None:
            return self._adapters.chosen(wanted)
        if wanted:
            raise InputError(
                f"lora names adapter {next(iter(wanted))}, but the model was loaded without "
                "adapters: load it with lora=[(file, scale)] (--lora FILE)",
                "lora",
            )
        return ()

    @property
    def fingerprint(self) -> str:
        """Of configuration, adapters, and names, types and some bytes of all weights."""
        found = sha256(repr(self.config).encode())
        for path, _ in self.adapters:
            found.update(f"{os.path.basename(path)} {os.path.getsize(path)}".encode())
        parts = [(one.name, one.type, (one.data,)) for _, one in self.linears()]
        experts = self.expert_linears()
        for name, kind, arrays in [*parts, *((str(e.tensors), e.type, e.data) for e in experts)]:
            found.update(f"{name} {kind}".encode())
            for flat in (array.reshape(-1) for array in arrays):
                found.update(flat[:FINGER_BYTES].tobytes() + flat[-FINGER_BYTES:].tobytes())
        return found.hexdigest()

    def new_cache(
        self, kv_type: str | None = None, adapters: AdapterWeights | None = None,
        domain: Domain = COMMON,
    ) -> KVCache:  # fmt: skip
        """An empty cache of the engine's type or another, which grows to ``context_length``.

        Raises: InputError for an unknown type.
        """
        kind = (kv_type or self.kv_type).upper()
        if kind not in KV_TYPES:
            raise InputError(f"kv_type must be f16 or f32, got {kv_type!r}")
        weights = self.adapter_weights() if adapters is None else adapters
        return KVCache(self.pool, kind, self.context_length, weights, domain)

    @property
    def rounding(self) -> str:
        """What two engines of the same ``fingerprint`` agree in where prompts have the same bits.

        Kernels for single rows have the same bits on every level.
        """
        return "single" if self._same_bits else f"{self._builder.kernel.name} {self.isa}"

    def _rounding(self, *, prompt: bool, exact: bool = False) -> Rounding:
        """The kernels of a step. ``prompt``: some of its rows are of prompts."""
        if exact or self.batch_invariant:
            return Rounding.SINGLE
        return Rounding.PROMPT if prompt and not self._same_bits else Rounding.FASTEST

    def gather(self, squares: ChannelSquares | None) -> None:
        """From now on every step adds the squares of the linears' inputs to ``squares``.

        None ends it; steps are then as they were, at no cost.
        """
        self._builder.squares = squares
        self._plans.clear()

    def linears(self) -> list[tuple[str, Weight]]:
        """Every linear of the layers with its name, the output head last where there is one."""
        return [(weight.name, weight) for weight in [*self._linears, *self._heads]]

    def expert_linears(self) -> list[ExpertWeight]:
        """Every linear of experts of the layers."""
        return self._experts

    def bytes_per_token(self, context: int) -> int:
        """Bytes of weights and cache that decoding one token at ``context`` positions reads.

        Adapters count with the weights of loading.
        """
        cache = 0
        layers = self._decoder.attention
        for layer in layers[:-1] if self.drafts else layers:
            seen = min(context, layer.window or context)
            cache += layer_bytes(
                self.kv_type, layer.num_kv_heads, layer.head_dim, layer.width_of_values, seen
            )
        cache += sum(4 * operation.state_width for _, operation in self._decoder.states)
        adapters = 0 if self._adapters is None else self._adapters.token_bytes
        return self._layer_bytes + self._active_bytes + self._head_bytes + adapters + cache

    def step(
        self, rows: Sequence[Rows], *, exact: bool = False, out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Logits (n, vocab) of the rows that want them; see runtime/interface.py."""
        ids = self._take(rows)
        wanted = self._step.wanted
        shape = wanted, self.config.vocab_size
        if out is None:
            out = zeros(shape, "f4", f"the logits of {wanted} tokens")
        elif out.dtype != np.float32 or not out.flags.c_contiguous or out.shape[1:] != shape[1:]:
            raise InputError(f"out must be contiguous float32 of shape {shape}")
        elif len(out) < wanted:
            raise InputError(f"out has room for {len(out)} rows of logits, the step gives {wanted}")
        adapted = self._adapters is not None and self._adapters.begin(
            [(len(piece.tokens), piece.cache.adapters) for piece in rows]
        )
        self._embed(ids, adapted)
        self._add_rows(rows, len(ids))
        kv_type = rows[0].cache.kv_type
        rounding = self._rounding(prompt=any(piece.prompt for piece in rows), exact=exact)
        plan = self._plans.get(kv_type, len(ids) <= self.few, rounding, adapted)
        try:
            self._run(plan, out[:wanted], adapted)
            self._put_states(rows)
            if self._drafter is not None:
                self._drafter.note(rows, self._walk)
        except BaseException:
            for piece in rows:
                piece.cache.spoil(piece.cache.length)
            raise
        hidden = not (rounding is Rounding.PROMPT or self._same_bits or self._reuse_answers)
        for piece in rows:
            tokens = piece.tokens
            found = tokens.tolist() if isinstance(tokens, np.ndarray) else tokens
            piece.cache.append(found, hidden=hidden)
        return out[:wanted]

    def draft(
        self, cache: KVCache, tokens: Sequence[int], most: int, wants: Callable[[float], bool]
    ) -> list[int]:
        """Tokens that may come behind ``tokens``; see runtime/interface.py."""
        if self._drafter is None:
            return []
        return self._drafter.propose(cache, tokens, most, wants, self._walk)

    def _run(self, plan: StepPlan, out: NDArray[np.float32], adapted: bool) -> None:
        """Walk a plan, its head for 16 rows of logits at a time."""
        if not len(out):
            self._walk(plan.records[: plan.head])
            return
        step, records = self._step, plan.records
        for start in range(0, len(out), OUTPUT_ROWS):
            some = out[start : start + OUTPUT_ROWS]
            step.output_rows[: len(some)] = step.wanted_rows[start : start + len(some)]
            step.outputs[0] = len(some)
            if adapted and self._adapters is not None:
                self._adapters.begin_outputs(step.output_rows[: len(some)])
            for record, slot in plan.logits:
                plan.records["slots"][record, slot] = some.ctypes.data
            self._walk(records)
            records = plan.records[plan.head :]

    def _put_states(self, rows: Sequence[Rows]) -> None:
        """The hidden states that the residual stream holds, for the rows that want them."""
        step, at = self._step, 0
        for piece in rows:
            count = len(piece.tokens)
            if piece.states is not None and not len(self._states):
                piece.states[:] = self._buffers.rows("x", self.config.hidden_size)[at : at + count]
            elif piece.states is not None:
                step.output_rows[:count] = np.arange(at, at + count)
                step.outputs[0] = count
                self._walk(self._states)
                piece.states[:] = self._buffers.rows("h", self.config.hidden_size)[:count]
            at += count

    def _take(self, rows: Sequence[Rows]) -> NDArray[np.integer]:
        """Check the rows, make room for them and set the step's numbers; all ids (M,)."""
        if self._closed:
            raise InputError("this model is closed")
        step, found, at = self._step, [], 0
        wanted_rows: list[int] = []
        windowed = self._layout.window is not None
        for piece in rows:
            cache = piece.cache
            ids = self._ids(piece.tokens)
            count = len(ids)
            if at + count > self.prefill_chunk:
                raise InputError(f"a step takes {self.prefill_chunk} rows, got {at + count}")
            if not 0 <= piece.logits <= count:
                raise InputError(f"logits of {piece.logits} rows are wanted, of {count}")
            if self.encodes and (piece.logits or cache.length):
                raise InputError(
                    f"the model ({self.config.architecture}) is an encoder: it has no logits, and "
                    "takes a whole text in one step; use embed() or rank()"
                )
            if piece.states is not None and piece.states.shape != (count, self.config.hidden_size):
                raise InputError(
                    f"the states of {count} rows have shape {(count, self.config.hidden_size)}, "
                    f"the array for them {piece.states.shape}"
                )
            self._check(cache, count)
            revocable = count - 1 if piece.revocable else 0
            if revocable > cache.most_revocable:
                raise InputError(
                    f"{revocable} of {count} rows are to be revocable, the cache can take back "
                    f"{cache.most_revocable}"
                )
            if not cache.reserve(cache.length + count, revocable=revocable):
                raise TrinityError(
                    f"no page of keys and values is left for a sequence of {cache.length + count} "
                    "tokens: release another cache, or give more kv_memory (--kv-memory)"
                )
            self._builder.reach(cache.length + count)
            end = at + count
            step.place(at, cache.length, count)
            step.caches[at:end] = cache.address
            if windowed:
                step.window_caches[at:end] = cache.window_address
                cache.state_tables(step.state_tables[at:end], revocable=revocable > 0)
            wanted_rows.extend(range(end - piece.logits, end))
            found.append(ids)
            at = end
        if not found:
            raise InputError("a step takes at least one row, got none")
        if len(rows) > 1:
            check_different([piece.cache for piece in rows])
        step.tokens[0] = at
        step.wanted = len(wanted_rows)
        step.wanted_rows[: len(wanted_rows)] = wanted_rows
        return found[0] if len(found) == 1 else np.concatenate(found)

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

    def profile(self, rows: Sequence[Rows], *, rounds: int = 3) -> list[OperationTime]:
        """The time of every operation of a step, each run alone; the caches stay as they are.

        Raises: as ``step``.
        """
        before, team = [piece.cache.length for piece in rows], self._team
        recorder = PlanRecorder(team)
        self._team = cast(Team, recorder)
        try:
            logits = self.step(rows)
        finally:
            self._team = team
        ids = np.concatenate([np.asarray(piece.tokens) for piece in rows])
        adapted = any(piece.cache.adapters for piece in rows)
        times = time_operations(
            team, np.concatenate(recorder.plans), self._choice.names(),
            [length + 1 for length in before], lambda: self._embed(ids, adapted), rounds,
        )  # fmt: skip
        del logits  # till here the records wrote into it
        for piece, length in zip(rows, before, strict=True):
            piece.cache.spoil(length)
            piece.cache.truncate(min(length, piece.cache.length))
        return times

    def _check(self, cache: Any, count: int) -> None:
        """Kernels reach a cache by its address: nothing but an own one, with room, may go there."""
        if type(cache) is not KVCache or cache.pool is not self.pool:
            raise InputError(
                "the cache is not one of this engine's; take one from its new_cache(), got "
                f"{type(cache).__name__}"
            )
        if cache.length + count > self.context_length:
            raise ContextLengthError(
                f"{cache.length} + {count} tokens do not fit a context of {self.context_length}"
            )

    def _ids(self, tokens: Any) -> NDArray[np.integer]:
        """``tokens`` as an array, which is checked."""
        ids = np.asarray(tokens)
        if ids.ndim != 1 or ids.dtype.kind not in "iu" or not len(ids):
            raise InputError(
                "tokens must be a flat sequence of integers, at least one, got shape "
                f"{ids.shape} of {ids.dtype}"
            )
        if ids.min() < 0 or ids.max() >= self.config.vocab_size:
            raise InputError(
                f"token ids must lie in 0..{self.config.vocab_size - 1}, "
                f"got {ids.min()}..{ids.max()}"
            )
        return ids

    def _embed(self, ids: NDArray[np.integer], adapted: bool) -> None:
        for embedding, rows in self._embeddings:
            embedding.put(ids, rows)
        if adapted and self._adapters is not None:
            self._adapters.look_up(ids)

    def _add_rows(self, rows: Sequence[Rows], count: int) -> None:
        """What encoders add to embeddings."""
        if not self.encodes:
            return
        second = [np.arange(len(p.tokens)) >= (p.second or len(p.tokens)) for p in rows]
        x = self._buffers.rows("x", self.config.hidden_size)[:count]
        self._added.add(x, self._step.positions[:count], np.concatenate(second).astype(np.int8))

    def close(self) -> None:
        """End the threads and free all memory; of the engine only what it is like can be asked.

        A cache that a caller still has keeps its pages until it is released.
        """
        if self._closed:
            return
        self._closed = True
        self._team.close()
        if self._populating is not None:
            self._populating.end()
        self.pool.close()
        self.empty(_KEPT)


def _tell_of_too_much(
    threads: int | None, context: int, config: ModelConfig, progress: Progress
) -> None:
    """What was asked for and can be had, but does no good."""
    cores = default_threads()
    if threads is not None and threads > cores:
        progress(
            f"warning: {threads} threads, but this process may use {cores} cores: threads that "
            "wait for a core hold up all others; leave threads (-t) out"
        )
    if context > config.context_length:
        progress(
            f"warning: a context of {context} tokens, but the model was made for "
            f"{config.context_length}: its text may get worse beyond those"
        )


def load_engine(
    provider: WeightProvider, *, threads: int | None = None, context_length: int | None = None,
    kv_type: str = "f16", isa: str | None = None, kv_memory: int | None = None,
    batch_invariant: bool = False, reuse_answers: bool = False,
    lora: Sequence[AdapterFile] | None = None, progress: Progress | None = None,
) -> CPUEngine:  # fmt: skip
    """Bind a provider's model to this machine.

    ``threads``: default the fast physical cores this process may use. ``context_length``: default
    the model's own, at most 4096 unless asked for. ``kv_memory``: bytes of all keys and values;
    default 16 whole contexts in a quarter of the free memory, but one context at least.
    ``batch_invariant``: answers do not depend on what else is in a step, whatever the weights'
    types; prompts take longer. ``reuse_answers``: prompts reuse what was computed for an answer
    that they contain. ``lora``: files of adapters, each with its weight. ``progress`` gets lines
    about compilation.
    Raises: InputError, KernelError, ConfigError, UnsupportedError.
    """
    options = LoadOptions(
        threads=threads, context_length=context_length, kv_type=kv_type, isa=isa,
        kv_memory=kv_memory, batch_invariant=batch_invariant, reuse_answers=reuse_answers,
        lora=lora,
    )  # fmt: skip
    named = provider.metadata.get("general.architecture")
    if isinstance(named, str):  # before keys are missed that others do not have
        find_architecture(named, provider.path, provider.tensor_names())
    config = provider.config
    limit = min(config.context_length, USUAL_CONTEXT)
    context = limit if context_length is None else context_length
    try:
        level = isa_levels.select_level(isa)
    except isa_levels.IsaError as error:
        raise KernelError(str(error)) from error
    if progress:
        _tell_of_too_much(threads, context, config, progress)
    with enough_memory(f"to load {provider.path} for a context of {context} tokens"):
        return CPUEngine(
            provider, threads=threads or default_threads(), context_length=context,
            kv_type=kv_type.upper(), isa=level, kv_memory=kv_memory,
            batch_invariant=batch_invariant, reuse_answers=reuse_answers, progress=progress,
            lora=adapter_files(options.lora),
        )  # fmt: skip
