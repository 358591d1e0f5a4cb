"""Build an engine for a model: bind weights, choose kernels, allocate buffers, write plans."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

import numpy as np

from trinity.config import ModelConfig
from trinity.errors import InputError, KernelError, UnsupportedError
from trinity.formats.mapping_table import TABLE
from trinity.formats.provider import WeightProvider
from trinity.formats.tensor_names import complete
from trinity.models import decoder_of, families_of, find_architecture
from trinity.models.architecture import AddedRowNames
from trinity.models.decoder import Decoder, token_tables
from trinity.options.adapter_files import adapter_files
from trinity.options.load_options import LoadKeywords, LoadOptions
from trinity.runtime.added_rows import AddedRows
from trinity.runtime.bound_weights import BoundWeights
from trinity.runtime.embedding import TokenEmbedding
from trinity.runtime.engine import DECODE_ROWS, CPUEngine, EngineParts
from trinity.runtime.expert_buffers import rows_that_fit
from trinity.runtime.file_watch import FileWatch
from trinity.runtime.interface import PREFILL_CHUNK
from trinity.runtime.kernel_choice import KernelChoice
from trinity.runtime.memory import enough_memory
from trinity.runtime.pages.page_layout import PageLayout
from trinity.runtime.paging import available_memory, populate, small_pages
from trinity.runtime.plan import Buffers, PlanBuilder
from trinity.runtime.rounding import rounds_prompts, same_bits
from trinity.runtime.step import Step, StepInput
from trinity.runtime.step_plans import StepPlans
from trinity.runtime.thread_count import usable_threads
from trinity.runtime.weights import Weights, warn_of_inverted_scales
from trinity_kernels import isa as isa_levels
from trinity_kernels.bus_errors import catch_bus_errors
from trinity_kernels.ops.kv_layout import KV_TYPES
from trinity_kernels.ops.matmul import variants
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.record import RECORD

if TYPE_CHECKING:
    from trinity.formats.adapters import LoraAdapter
    from trinity_kernels.team import Team

Progress = Callable[[str], None]

SKETCHED_BYTES = 32_000_000  # bytes of an output head from which a sketch may pay
USUAL_CONTEXT, USUAL_CACHE = 4096, 150_000_000  # tokens; bytes, in addition to the weights
# The default of kv_memory: at most 16 whole contexts, and at most a quarter of the free memory.
USUAL_SEQUENCES, MEMORY_SHARE = 16, 4


def load_engine(
    provider: WeightProvider, *, progress: Progress | None = None, **options: Unpack[LoadKeywords]
) -> CPUEngine:
    """An engine for a provider's model. ``options`` are those of ``trinity.load``."""
    return build_engine(provider, LoadOptions(**options), progress)


def build_engine(
    provider: WeightProvider,
    options: LoadOptions,
    progress: Progress | None = None,
    team: Team | None = None,
) -> CPUEngine:
    """An engine for a provider's model on this machine.

    ``progress`` receives lines about compilation and warnings. ``team``: the threads of another
    engine, which is closed after this one.
    Raises: InputError, KernelError, ConfigError, UnsupportedError.
    """
    named = provider.metadata.get("general.architecture")
    if isinstance(named, str):  # checked before unknown keys of other families are reported
        find_architecture(named, provider.path, provider.tensor_names())
    config = provider.config
    if options.rotary:
        from trinity.runtime.rope_options import with_rope_options

        config = with_rope_options(config, options, provider.path)
    context = options.context_length or min(config.context_length, USUAL_CONTEXT)
    if config.rope_scaling.type == "dynamic" and context > config.context_length:
        raise UnsupportedError(
            f"{provider.path}: a context of {context} tokens exceeds max_position_embeddings, "
            f"{config.context_length}; beyond that this model's RoPE scaling (dynamic) depends on "
            "how a text is divided into steps: use a smaller context_length (--ctx), or another "
            "scaling (--rope-scaling)"
        )
    try:
        isa = isa_levels.select_level(options.isa)
    except isa_levels.IsaError as error:
        raise KernelError(str(error)) from error
    threads = usable_threads(options.threads, progress)
    if progress:
        _warn_of_context(context, config, progress)
    with enough_memory(f"to load {provider.path} for a context of {context} tokens"):
        return CPUEngine(_parts(provider, config, options, threads, context, isa, progress), team)


def _parts(
    provider: WeightProvider,
    config: ModelConfig,
    options: LoadOptions,
    threads: int,
    context_length: int,
    isa: str,
    progress: Progress | None,
) -> EngineParts:
    """The parts of an engine. Every tensor is checked before memory is allocated for it."""
    weights = Weights(provider)
    catch_bus_errors(TABLE)
    decoder = decoder_of(config, weights.names, weights.shape, provider.path)
    architecture = decoder.architecture
    # The keys and values of an encoder last for one step; float32 costs no more.
    kv_type = "F32" if architecture.encodes else options.kv_type.upper()
    tables = token_tables(decoder)
    files = adapter_files(options.lora)
    adapters = _open_adapters([path for path, _ in files], decoder, provider)
    embeddings = [
        TokenEmbedding(
            weights, complete(t.weight), t.rows or config.vocab_size, t.width, t.scale,
            fewer=t.rows > 0,
        )
        for t in tables
    ]  # fmt: skip
    choice = KernelChoice(isa, progress)
    halves = architecture.rope_halves or not provider.rope_interleaved
    builder = PlanBuilder(decoder, weights, context_length, threads, not halves, choice.address)
    added = AddedRows(weights, decoder, context_length)
    heads = []
    if decoder.head:
        head = weights.linear(decoder.head, config.vocab_size, config.hidden_size)
        heads.append(head.scaled(architecture.logit_scale(config)))
    bound = BoundWeights(builder, heads)
    rows = context_length if architecture.encodes else min(PREFILL_CHUNK, context_length)
    rows = rows_that_fit(decoder, bound.all_experts, rows)
    scales = [scale for _, scale in files]
    adapter_set = None
    if adapters:
        from trinity.runtime.adapters import AdapterSet

        adapter_set = AdapterSet(adapters, scales, decoder, weights, tables, rows)
    state_widths = [operation.state_width for _, operation in decoder.states]
    layout = builder.layout = PageLayout(decoder.attention, context_length, rows, state_widths)
    kv_memory = _kv_memory(options.kv_memory, layout, kv_type, context_length)
    warn_of_inverted_scales(bound.scales(), provider.path, progress)
    populating = populate(bound.arrays())
    single_bits = _choose_kernel(builder, bound, choice) or options.batch_invariant
    reaches = {layer.reach for layer in decoder.attention if layer.both_ways}
    windows = {layer.window for layer in decoder.attention}
    chunks = {layer.window for layer in decoder.attention if layer.chunked}
    step = Step(
        rows, reaches, windows if architecture.images_both_ways else None, chunks,
        context_length if len(builder.axes) else 0,
        only_windowed=architecture.images_both_ways == "windowed",
    )  # fmt: skip
    linears = [*bound.all_linears, *heads]
    buffers = Buffers(decoder, linears, bound.all_experts, rows, threads, builder.kernel)
    into = [buffers.rows(table.buffer, table.width) for table in tables]
    drafter = None
    if decoder.drafting and heads:
        from trinity.runtime.speculation.drafting import Drafter

        few = min(DECODE_ROWS, rows)
        drafter = Drafter(builder, buffers, step, heads[0], embeddings[0], few)
    sketched, mode = None, options.head_sketch
    if heads and (mode == "on" or (mode == "auto" and heads[0].nbytes >= SKETCHED_BYTES)):
        # Imported here because small models do not need it.
        from trinity.runtime.sketch.sketched_head import sketched_head

        sketched = sketched_head(
            heads[0], mode, isa, builder.kernel, choice.address, step,
            capped=bool(architecture.logit_softcap(config)),
        )  # fmt: skip
    states = builder.states(buffers, step)
    state_records = np.zeros(len(states), RECORD)
    if states:
        state_records["slots"] = states
    return EngineParts(
        config=config,
        threads=threads,
        context_length=context_length,
        isa=isa,
        kv_type=kv_type,
        batch_invariant=options.batch_invariant,
        reuse_answers=options.reuse_answers,
        adapters=tuple(zip((adapter.path for adapter in adapters), scales, strict=True)),
        decoder=decoder,
        weights=bound,
        builder=builder,
        buffers=buffers,
        step=step,
        step_input=StepInput(
            step,
            config,
            context_length=context_length,
            encodes=architecture.encodes,
            windowed=layout.window is not None,
        ),
        plans=StepPlans(builder, buffers, step, heads, adapter_set, DECODE_ROWS),
        states=state_records,
        embeddings=list(zip(embeddings, into, strict=True)),
        added_rows=added if architecture.added_rows != AddedRowNames() else None,
        adapter_set=adapter_set,
        drafter=drafter,
        sketched_head=sketched,
        choice=choice,
        layout=layout,
        kv_memory=kv_memory,
        prepare_pages=_page_size(layout, kv_type, bound),
        same_bits=single_bits,
        populating=populating,
        watch=FileWatch(provider.check),
    )


def _open_adapters(
    paths: list[str | os.PathLike[str]], decoder: Decoder, provider: WeightProvider
) -> list[LoraAdapter]:
    """Open the adapters and check them against the model."""
    if not paths:
        return []
    if decoder.config.rotation is not None:
        raise UnsupportedError(
            f"{provider.path}: its weights are rotated (prism.hadamard keys), so adapters of the "
            "model do not fit them; load it without lora (--lora)"
        )
    from trinity.formats.adapters import open_adapter
    from trinity.models.adapter_base import base_of

    base = base_of(decoder, provider, families_of(decoder.config.architecture))
    return [open_adapter(path, base) for path in paths]


def _choose_kernel(builder: PlanBuilder, weights: BoundWeights, choice: KernelChoice) -> bool:
    """Choose the kernel of products; return whether a row's bits do not depend on its step."""
    types = {weight.type for weight in weights.all_linears}
    types |= {weight.type for weight in weights.all_experts}
    types |= {weight.type for weight in weights.heads if weight.form != "f32"}
    builder.kernel = variants.choose_kernel(choice.level, types, choice.work)
    # Exact steps use other kernels; compile them now rather than during a response.
    for type_name in sorted(weights.types):
        if not variants.serves(builder.kernel, type_name, exact=True):
            choice.prepare(matmul, type_name)
    if rounds_prompts(builder.kernel, weights.layer_types):
        builder.works = choice.work
    return same_bits(builder.kernel, weights.layer_types)


def _kv_memory(wanted: int | None, layout: PageLayout, kv_type: str, context_length: int) -> int:
    """Bytes that all KV pages may take. Raises: InputError if one context does not fit."""
    sizes = {kind: layout.sequence_bytes(kind, context_length) for kind in KV_TYPES}
    least = sizes[kv_type]
    if wanted is None:
        share = min(USUAL_SEQUENCES * least, available_memory() // MEMORY_SHARE)
        return max(share, *sizes.values())
    if wanted < least:
        raise InputError(
            f"kv_memory is {wanted} bytes, but one sequence of {context_length} tokens needs "
            f"{least} for its keys and values: give more, or use a smaller context_length (--ctx)"
        )
    return wanted


def _page_size(
    layout: PageLayout, kv_type: str, weights: BoundWeights
) -> Callable[[int, int], None] | None:
    """The size of memory pages for the KV cache; None lets the system choose.

    The heads of one KV page are far apart in memory. With large memory pages the first token would
    therefore touch nearly the whole KV page, which is only acceptable for weights of about that
    size.
    """
    usual = layout.sequence_bytes(kv_type, USUAL_CONTEXT)
    large = usual > USUAL_CACHE + 2 * (weights.layer_bytes + weights.head_bytes)
    return small_pages if large else None


def _warn_of_context(context: int, config: ModelConfig, progress: Progress) -> None:
    """Warn of a context that is longer than the model was made for."""
    if context > config.context_length:
        progress(
            f"warning: a context of {context} tokens, but the model was trained for "
            f"{config.context_length}: later text may be worse; a smaller context_length (--ctx) "
            "prevents this"
        )
