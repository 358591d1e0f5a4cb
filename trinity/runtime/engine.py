"""The engine: computes one step at a time, from rows of tokens to their logits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.errors import InputError, TrinityError
from trinity.models.decoder import Decoder
from trinity.options.adapter_files import adapter_scales
from trinity.runtime.added_rows import AddedRows
from trinity.runtime.bound_weights import BoundWeights, fingerprint
from trinity.runtime.embedding import TokenEmbedding
from trinity.runtime.expert_weight import ExpertWeight
from trinity.runtime.file_watch import FileWatch
from trinity.runtime.image_rows import FIRST_ID, ImageRows, add_images, put_images
from trinity.runtime.interface import Rows
from trinity.runtime.kernel_choice import KernelChoice
from trinity.runtime.memory import zeros
from trinity.runtime.pages.kv_cache import KVCache
from trinity.runtime.pages.page import COMMON, AdapterWeights, Domain
from trinity.runtime.pages.page_layout import PageLayout
from trinity.runtime.pages.page_pool import PagePool
from trinity.runtime.paging import Populating
from trinity.runtime.plan import Buffers, PlanBuilder
from trinity.runtime.rounding import Rounding
from trinity.runtime.step import Step, StepInput
from trinity.runtime.step_plans import StepPlan, StepPlans
from trinity.runtime.weights import Weight
from trinity_kernels.ops.kv_layout import KV_TYPES, layer_bytes
from trinity_kernels.team import Team, TeamError

if TYPE_CHECKING:
    from trinity.runtime.adapters import AdapterSet
    from trinity.runtime.channel_squares import ChannelSquares
    from trinity.runtime.profile import OperationTime
    from trinity.runtime.sketch.sketched_head import SketchedHead
    from trinity.runtime.speculation.draft_model import DraftModel
    from trinity.runtime.speculation.drafting import Drafter

DECODE_ROWS = 16  # rows of a step that costs little more than a step of one row
OUTPUT_ROWS = 16  # rows that the output head computes at once
# Attributes that a closed engine keeps; none grows with the model or refers to its file.
_KEPT = ("_closed", "adapters", "batch_invariant", "config", "context_length", "drafts", "encodes",
         "few", "isa", "kv_type", "pool", "prefill_chunk", "threads")  # fmt: skip


class Emptied:
    """After ``empty``, only the kept attributes can be used; all others raise InputError."""

    def empty(self, kept: Collection[str]) -> None:
        """Drop all attributes except those in ``kept``."""
        for name in self.__dict__.keys() - kept:
            delattr(self, name)
        self._emptied = True

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if "_emptied" in self.__dict__:
                raise InputError("the model is closed; load it again")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """The parts of an engine; ``engine_building.py`` builds them."""

    config: ModelConfig
    threads: int
    context_length: int
    isa: str  # the instruction-set level
    kv_type: str  # one of KV_TYPES
    batch_invariant: bool  # compute every step with ``exact``
    reuse_answers: bool  # let prompts reuse pages of generated tokens, even if the bits differ
    adapters: tuple[tuple[str, float], ...]  # paths and default scales
    decoder: Decoder
    weights: BoundWeights
    builder: PlanBuilder
    buffers: Buffers
    step: Step
    step_input: StepInput
    plans: StepPlans
    states: NDArray[np.void]  # records that write hidden states after the output norm
    embeddings: list[tuple[TokenEmbedding, NDArray[np.float32]]]  # each with its buffer
    added_rows: AddedRows | None  # position and token-type embeddings of an encoder
    adapter_set: AdapterSet | None
    drafter: Drafter | None
    sketched_head: SketchedHead | None
    choice: KernelChoice
    layout: PageLayout
    kv_memory: int  # bytes of all pages
    prepare_pages: Callable[[int, int], None] | None  # for the memory of new pages
    same_bits: bool  # a row's bits do not depend on the other rows of its step
    populating: Populating | None  # the thread that maps the pages of the weights
    watch: FileWatch


class CPUEngine(Emptied):
    """Computes logits for rows of tokens, one step at a time. One thread at a time may call it."""

    def __init__(self, parts: EngineParts, team: Team | None = None) -> None:
        """``team``: the threads of another engine, which is closed after this one."""
        self._closed = True
        self._parts = parts
        self.config = parts.config
        self.context_length = parts.context_length
        self.threads = parts.threads
        self.isa = parts.isa
        self.kv_type = parts.kv_type
        self.batch_invariant = parts.batch_invariant
        self.adapters = parts.adapters
        self.encodes = parts.decoder.architecture.encodes
        self.drafts = parts.drafter is not None
        self.prefill_chunk = len(parts.step.positions)
        self.few = min(DECODE_ROWS, self.prefill_chunk)
        self._step = parts.step
        self._input = parts.step_input
        self._adapters = parts.adapter_set
        self._drafter = parts.drafter
        self._draft_model: DraftModel | None = None
        self._watch = parts.watch
        self._build_usual_plans()
        self._watch.check()
        self.renew_pool()
        self._owns_team = team is None
        try:
            self.team = team or Team(parts.threads)
        except TeamError as error:
            raise TrinityError(str(error)) from error
        self._closed = False

    def draft_with(self, model: DraftModel) -> None:
        """Let a draft model propose tokens, in the place of a drafting layer; it is closed with
        this engine.
        """
        self._draft_model, self._drafter, self.drafts = model, None, True

    def step(
        self, batch: Sequence[Rows], *, exact: bool = False, out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Logits (n, vocab) of the rows that ask for them; see runtime/interface.py."""
        if self._closed:
            raise InputError("this model is closed")
        ids, positions = self._input.take(batch, self.pool)
        if positions > self._parts.builder.reached:
            self._parts.builder.reach(positions)
        if self._step.image_places:
            self._parts.builder.mix(self._step.image_places)
        out = self._logits(out)
        adapted = self._begin_adapters(batch)
        if any(rows.images for rows in batch):
            self._embed_images(ids, batch, adapted)
        else:
            self.embed(ids, adapted)
        self._add_rows(batch, len(ids))
        rounding = self._rounding(prompt=any(rows.prompt for rows in batch), exact=exact)
        kv_type, few = batch[0].cache.kv_type, len(ids) <= self.few
        plan = self._parts.plans[kv_type, few, rounding, adapted]
        try:
            if self.config.deepstack_layers and any(rows.images for rows in batch):
                plan = self._run_first_layers(plan, batch)
            sketched = self._parts.sketched_head
            if sketched is None or not sketched.run(self._walk, plan, out, batch):
                self._run(plan, out, adapted)
            self._put_states(batch)
            if self._drafter is not None:
                self._drafter.note(batch, self._walk)
        except BaseException:
            for rows in batch:
                rows.cache.spoil(rows.cache.length)
            raise
        self._append(batch, rounding)
        return out

    def draft(
        self, cache: KVCache, tokens: Sequence[int], most: int, wants: Callable[[float], bool]
    ) -> list[int]:
        """Tokens that may follow ``tokens``; see runtime/interface.py."""
        if self._draft_model is not None:
            return self._draft_model.propose(cache, tokens, most, wants)
        if self._drafter is None:
            return []
        return self._drafter.propose(cache, tokens, most, wants, self._walk)

    def new_cache(
        self, kv_type: str | None = None, adapters: AdapterWeights | None = None,
        domain: Domain = COMMON,
    ) -> KVCache:  # fmt: skip
        """An empty KV cache of the engine's type or another; it grows up to ``context_length``.

        Raises: InputError for an unknown type.
        """
        kind = (kv_type or self.kv_type).upper()
        if kind not in KV_TYPES:
            raise InputError(f"kv_type must be f16, q8_0 or f32, got {kv_type!r}")
        weights = self.adapter_weights() if adapters is None else adapters
        return KVCache(self.pool, kind, self.context_length, weights, domain)

    def renew_pool(self) -> None:
        """Replace the pool of pages by an empty one; see runtime/interface.py."""
        parts, layout = self._parts, self._parts.layout
        sizes = {kind: layout.sizes(kind) for kind in KV_TYPES}
        self.pool = PagePool(sizes, parts.kv_memory, layout.window, parts.prepare_pages)

    def adapter_weights(self, wanted: Mapping[int, float] | None = None) -> AdapterWeights:
        """The adapter scales of a request; see runtime/interface.py."""
        if self._adapters is not None:
            return self._adapters.chosen(wanted)
        return adapter_scales((), wanted) if wanted else ()

    @property
    def fingerprint(self) -> str:
        """A hash of the configuration, the adapters, and names, types and some bytes of all
        weights.
        """
        paths = [path for path, _ in self.adapters]
        return fingerprint(self.config, paths, self._parts.weights)

    @property
    def rounding(self) -> str:
        """See runtime/interface.py. Kernels for single rows give the same bits on every CPU."""
        parts = self._parts
        if parts.same_bits:
            return "single"
        rounds = " prompt_attention" if parts.builder.works is not None else ""
        return f"{parts.builder.kernel.name} {self.isa}{rounds}"

    @property
    def other_bytes(self) -> int:
        """See runtime/interface.py."""
        sketched, draft = self._parts.sketched_head, self._draft_model
        sketch_bytes = 0 if sketched is None else sketched.nbytes
        return sketch_bytes + (0 if draft is None else draft.nbytes)

    def gather(self, squares: ChannelSquares | None) -> None:
        """Add the squares of the linears' inputs to ``squares`` in every following step.

        None stops it; steps then cost no more than before.
        """
        self._parts.builder.squares = squares
        self._parts.plans.clear()

    def linears(self) -> list[tuple[str, Weight]]:
        """Every linear of the layers with its name; the output head is last, if there is one."""
        return self._parts.weights.named()

    def expert_linears(self) -> list[ExpertWeight]:
        """Every linear of experts of the layers."""
        return self._parts.weights.experts

    def bytes_per_token(self, context: int) -> int:
        """Bytes of weights and KV cache that decoding one token at ``context`` positions reads.

        Adapters count with their default scales. If the output head has a sketch that is used for
        single rows, the sketch counts in its place.
        """
        decoder, cache = self._parts.decoder, 0
        for layer in decoder.attention[:-1] if self._parts.drafter else decoder.attention:
            seen = min(context, layer.window or context)
            cache += layer_bytes(
                self.kv_type, layer.num_kv_heads, layer.head_dim, layer.width_of_values, seen
            )
        cache += sum(4 * operation.state_width for _, operation in decoder.states)
        adapters = 0 if self._adapters is None else self._adapters.token_bytes
        sketched = self._parts.sketched_head
        spared = 0 if sketched is None else sketched.spared
        return self._parts.weights.token_bytes - spared + adapters + cache

    def profile(self, batch: Sequence[Rows], *, rounds: int = 3) -> list[OperationTime]:
        """Measure every operation of a step; see runtime/profile.py."""
        from trinity.runtime.profile import profile_step

        return profile_step(self, batch, rounds)

    def kernel_names(self) -> dict[int, tuple[str, str]]:
        """The name and tag of every compiled kernel in the plans, by address."""
        return self._parts.choice.names()

    def embed(self, ids: NDArray[np.integer], adapted: bool) -> None:
        """Write the embeddings of ``ids`` into the first rows of the residual stream."""
        for embedding, rows in self._parts.embeddings:
            embedding.put(ids, rows)
        if adapted and self._adapters is not None:
            self._adapters.look_up(ids)

    def _embed_images(self, ids: NDArray[np.integer], batch: Sequence[Rows], adapted: bool) -> None:
        """As ``embed``, with the rows of images in the place of their ids."""
        of_images = ids >= FIRST_ID
        self.embed(np.where(of_images, 0, ids), adapted)
        if adapted and self._adapters is not None:
            self._adapters.forget_lookups(of_images)
        for images, start, x in self._residuals_of(batch):
            put_images(images, start, x)

    def _run_first_layers(self, plan: StepPlan, batch: Sequence[Rows]) -> StepPlan:
        """Run the layers after which rows of images add to the residual stream; return the rest."""
        for layer in range(self.config.deepstack_layers):
            self._walk(plan.records[: plan.ends[0]])
            for images, start, x in self._residuals_of(batch):
                add_images(images, start, x, layer)
            plan = plan.after(1)
        return plan

    def _residuals_of(
        self, batch: Sequence[Rows]
    ) -> Iterator[tuple[tuple[ImageRows, ...], int, NDArray[np.float32]]]:
        """Yield the images of each sequence, the position of its first row and the residual stream
        of its rows.
        """
        x, first = self._parts.buffers.rows("x", self.config.hidden_size), 0
        for rows in batch:
            count = len(rows.tokens)
            yield rows.images, rows.cache.length, x[first : first + count]
            first += count

    def close(self) -> None:
        """End the threads and free all memory; afterwards only the engine's settings can be read.

        A KV cache that a caller still holds keeps its pages until it is released.
        """
        if self._closed:
            return
        self._closed = True
        if self._draft_model is not None:
            self._draft_model.close()
        if self._owns_team:
            self.team.close()
        if self._parts.populating is not None:
            self._parts.populating.end()
        if self._parts.sketched_head is not None:
            self._parts.sketched_head.end()
        self.pool.close()
        self.empty(_KEPT)

    def _build_usual_plans(self) -> None:
        """Build the plans that most steps use, and compile their kernels."""
        parts = self._parts
        for adapted in (False, True) if parts.adapter_set else (False,):
            for few in (True, False):
                _ = parts.plans[self.kv_type, few, self._rounding(prompt=not few), adapted]
                if parts.drafter is not None:
                    parts.drafter.plan(self.kv_type, few)

    def _rounding(self, *, prompt: bool, exact: bool = False) -> Rounding:
        """The rounding of a step. ``prompt``: some of its rows belong to prompts."""
        if exact or self.batch_invariant:
            return Rounding.SINGLE
        return Rounding.PROMPT if prompt and not self._parts.same_bits else Rounding.FASTEST

    def _logits(self, out: NDArray[np.float32] | None) -> NDArray[np.float32]:
        """The array for the step's logits: the first rows of ``out``, or a new array."""
        wanted, vocab_size = self._step.wanted, self.config.vocab_size
        if out is None:
            return zeros((wanted, vocab_size), "f4", f"the logits of {wanted} tokens")
        if out.dtype != np.float32 or not out.flags.c_contiguous or out.shape[1:] != (vocab_size,):
            raise InputError(f"out must be contiguous float32 of shape {(wanted, vocab_size)}")
        if len(out) < wanted:
            raise InputError(f"out has room for {len(out)} rows of logits, the step has {wanted}")
        return out[:wanted]

    def _begin_adapters(self, batch: Sequence[Rows]) -> bool:
        """Set each row's adapter scales; return whether any adapter is used."""
        if self._adapters is None:
            return False
        return self._adapters.begin([(len(rows.tokens), rows.cache.adapters) for rows in batch])

    def _add_rows(self, batch: Sequence[Rows], count: int) -> None:
        """Add the position and token-type embeddings of an encoder."""
        added = self._parts.added_rows
        if added is None:
            return
        second = [np.arange(len(r.tokens)) >= (r.second or len(r.tokens)) for r in batch]
        x = self._parts.buffers.rows("x", self.config.hidden_size)[:count]
        added.add(x, self._step.positions[:count], np.concatenate(second).astype(np.int8))

    def _run(self, plan: StepPlan, out: NDArray[np.float32], adapted: bool) -> None:
        """Run a plan; its head runs for ``OUTPUT_ROWS`` rows of logits at a time."""
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

    def _put_states(self, batch: Sequence[Rows]) -> None:
        """Copy hidden states from the residual stream for the rows that ask for them."""
        step, parts, first, width = self._step, self._parts, 0, self.config.hidden_size
        for rows in batch:
            count = len(rows.tokens)
            if rows.states is not None and not len(parts.states):
                rows.states[:] = parts.buffers.rows("x", width)[first : first + count]
            elif rows.states is not None:
                step.output_rows[:count] = np.arange(first, first + count)
                step.outputs[0] = count
                self._walk(parts.states)
                rows.states[:] = parts.buffers.rows("h", width)[:count]
            first += count

    def _append(self, batch: Sequence[Rows], rounding: Rounding) -> None:
        """Add the tokens of a step to their KV caches."""
        parts = self._parts
        hidden = not (rounding is Rounding.PROMPT or parts.same_bits or parts.reuse_answers)
        for rows in batch:
            tokens = rows.tokens
            rows.cache.append(
                tokens.tolist() if isinstance(tokens, np.ndarray) else tokens, hidden=hidden
            )

    def _walk(self, plan: NDArray[np.void]) -> None:
        """Run the records of a plan on all threads."""
        self._watch.before_walk()
        try:
            self.team.run(plan)
        except TeamError as error:  # the first step of a forked child starts threads
            raise TrinityError(str(error)) from error
        self._watch.after_walk()
