"""Which type to take for a model: sizes from block bytes, memory with the KV cache, and speed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, prod
from typing import Literal

from trinity.config import ExpertConfig, ModelConfig
from trinity.errors import InputError, UnsupportedError
from trinity.formats.gguf_types import tensor_nbytes
from trinity.formats.provider import WeightProvider
from trinity.formats.speech_config import is_speech, speech_config
from trinity.models import find_architecture
from trinity.quantization.assignment import ModelTensor, Network, Overrides, assign, network_of
from trinity.quantization.mixes import MIXES, PLAIN
from trinity.tools.active import active_parameters, share
from trinity.tools.amounts import UNITS, count_text, size_text
from trinity.tools.file_type import file_type
from trinity.tools.shapes import SHAPES

Purpose = Literal["quality", "balanced", "speed"]

# Beside weights and cache: interpreter, compiled code, activations (docs/laboratory.md).
_PAGES_OF_A_STEP = 5  # of 128 positions, of 512 rows
WORKING_BYTES = 300 << 20
# Of the read bandwidth, what decoding reaches (docs/laboratory.md: 0.75 to 0.95).
EFFICIENCY = 0.8
# Where the user names no context; less where the model has less.
CONTEXT = 4096
# From the least error to the largest: perplexities of llama.cpp's quantize documentation.
BY_QUALITY = (
    "F16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S", "IQ4_NL", "IQ4_XS", "Q4_0",
    "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K",
)  # fmt: skip
TERNARY = ("I2_S", "TQ2_0", "TQ1_0")
# What is taken, the first that fits. Small models lose more to few bits.
_CHOICES: dict[Purpose, tuple[str, ...]] = {
    "quality": BY_QUALITY[1:],
    "balanced": ("Q4_K_M", "Q4_K_S", "IQ4_XS", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K"),
    "speed": ("Q4_K_S", "IQ4_XS", "Q3_K_M", "Q3_K_S", "Q2_K"),
}
_SMALL = 4e9
_LEAST_PARAMETERS = 1e5
_WHY = {
    "quality": "of all that fit it is the nearest to the original, whose text it hardly changes",
    "balanced": "a third of the original's size, with little lost: what most people take",
    "speed": "a smaller file is a faster one, and smaller ones than this write worse text",
}


@dataclass(frozen=True, slots=True)
class TypeEstimate:
    """One type: the file's bytes, bits per weight, memory in use, and tokens/s to expect."""

    type: str
    bits_per_weight: float
    file_bytes: int
    memory_bytes: int
    fits: bool
    tokens_per_second: float


@dataclass(frozen=True, slots=True)
class Recommendation:
    """``take`` is a type's name, or None where nothing fits; ``reason`` says why, in a sentence.

    ``usable_bytes``: memory that the model may use. ``bandwidth``: bytes per second.
    """

    model: str
    parameters: int
    active_parameters: int
    context: int
    kv_cache_bytes: int
    usable_bytes: int
    bandwidth: float
    rows: list[TypeEstimate]
    take: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Subject:
    """The model in question. ``factor``: its parameters relative to those of ``entries``.

    ``quantized``: the type that it has already, from which no better one can be made.
    ``unread``: how names begin of tensors that a token does not read, or reads one row of.
    ``read_bytes``: what a token reads beside weights.
    """

    name: str
    entries: list[ModelTensor]
    network: Network
    kv_bytes_per_token: float
    context_length: int
    ternary: bool = False
    factor: float = 1.0
    quantized: str | None = None
    experts: ExpertConfig | None = None
    state_bytes: int = 0
    unread: tuple[str, ...] = ()
    read_bytes: int = 0

    @property
    def active_parameters(self) -> int:
        """How many of its weights one token takes."""
        shapes = ((e.name, e.shape) for e in self.entries if not e.name.startswith(self.unread))
        return round(self.factor * active_parameters(shapes, self.experts))

    @property
    def parameters(self) -> int:
        """How many weights it has."""
        return round(self.factor * sum(prod(entry.shape) for entry in self.entries))

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors as they are."""
        sizes = (tensor_nbytes(entry.type, entry.shape[::-1]) for entry in self.entries)
        return round(self.factor * sum(size or 0 for size in sizes))


def parse_count(text: str) -> int:
    """Parameters from "7B", "350M" or "7e9". Raises InputError."""
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][+]?[0-9]+)?)\s*([KMBT]?)\s*", text.upper())
    value = float(found[1]) * UNITS.get(found[2], 1) if found else 0.0
    if not _LEAST_PARAMETERS <= value <= 1e14:
        raise InputError(
            f"--params is {text!r:.40}; expected a number of parameters such as 7B, 350M or 7e9"
        )
    return round(value)


def of_size(parameters: int) -> Subject:
    """A llama of about so many parameters: the known shape nearest in size, made to measure.

    Names round: what is called 7B has 6.7, what is called 1B has 1.24. So the number that a known
    model is called by means that model.
    """
    called = [shape for shape in SHAPES if abs(log(shape.called / parameters)) < 0.01]
    near = min(SHAPES, key=lambda shape: abs(log(shape.parameters / parameters)))
    shape = called[0] if called else near
    off = 0.0 if called else abs(log(shape.parameters / parameters))
    factor = 1.0 if off < 0.06 else parameters / shape.parameters
    # Depth and width share the growth; the cache grows with both, weights with width squared.
    per_token = 4.0 * shape.num_layers * shape.num_kv_heads * shape.head_dim * factor ** (2 / 3)
    return Subject(
        f"{count_text(parameters)} parameters, shaped as {shape.name}",
        shape.entries(), shape.network, per_token, 131_072, factor=factor,
    )  # fmt: skip


def of_file(provider: WeightProvider) -> Subject:
    """The model of an open file.

    Raises ConfigError where it says too little of itself, UnsupportedError for an architecture
    that trinity does not run.
    """
    if is_speech(provider.metadata):
        return _of_speech(provider)
    config: ModelConfig = provider.config
    find_architecture(config.architecture, provider.path, provider.tensor_names())
    entries = _entries(provider)
    network = network_of(config, provider.tensor_names())
    kv_heads = [config.kv_heads_of(layer) for layer in range(config.num_layers)]
    recurrent = config.recurrent_layers or tuple(count == 0 for count in kv_heads)
    if not config.layer_kv_heads:
        kv_heads = [0 if one else config.num_kv_heads for one in recurrent]
    per_token = 4.0 * sum(kv_heads) * config.head_dim
    # Llama models are trained with ternary weights too, which their type shows.
    ternary = config.architecture.startswith("bitnet") or any(e.type in TERNARY for e in entries)
    return Subject(
        provider.path, entries, network, per_token, config.context_length, ternary,
        quantized=None if ternary else _quantized(provider), experts=config.experts,
        state_bytes=_state_bytes(config, recurrent),
    )  # fmt: skip


def _of_speech(provider: WeightProvider) -> Subject:
    """A Whisper model: a token reads the decoder, and what it keeps of a window of audio."""
    config = speech_config(provider.metadata, provider.path)
    layer = 2 * 4 * config.width  # keys and values of a position
    window = config.decoder.layers * config.encoder.positions * layer
    return Subject(
        provider.path, _entries(provider), network_of(provider.config, provider.tensor_names()),
        config.decoder.layers * layer, config.decoder.positions, quantized=_quantized(provider),
        state_bytes=window, unread=("enc.", "dec.position_embd."), read_bytes=window,
    )  # fmt: skip


def _entries(provider: WeightProvider) -> list[ModelTensor]:
    tensors = [provider.tensor(name) for name in provider.tensor_names()]
    if not tensors:
        raise UnsupportedError(f"{provider.path}: the file has no tensors, so no size to tell")
    return [ModelTensor(t.name, t.shape, t.type) for t in tensors]


def _quantized(provider: WeightProvider) -> str | None:
    """The type of a file that is quantized already."""
    found = file_type(provider)
    return None if found in PLAIN else found


def _state_bytes(config: ModelConfig, recurrent: Sequence[bool]) -> int:
    """Of recurrent layers: a sequence has a state for each page that a step of a prompt is in."""
    ssm, values = config.ssm, config.hidden_size * max(config.short_conv_kernel - 1, 0)
    if ssm is not None:
        values += ssm.inner_size * ssm.state_size + ssm.channels * (ssm.conv_kernel - 1)
    return 4 * values * (sum(recurrent) or config.num_layers) * _PAGES_OF_A_STEP


def recommend(
    subject: Subject, *, ram: int, bandwidth: float, purpose: Purpose = "balanced",
    context: int | None = None,
) -> Recommendation:  # fmt: skip
    """Every type's size, the largest first, and the one to take.

    Units: ``ram`` bytes that the model may use, ``bandwidth`` bytes per second. The tokens/s are
    those of an empty context: EFFICIENCY * bandwidth / bytes that a token reads.
    Raises InputError for a context that the model does not have.
    """
    tokens = min(CONTEXT, subject.context_length) if context is None else context
    if not 1 <= tokens <= subject.context_length:
        raise InputError(
            f"--ctx is {tokens}; {subject.name} has a context of {subject.context_length} tokens"
        )
    cache = round(subject.kv_bytes_per_token * tokens) + subject.state_bytes
    rows = []
    for name in (*TERNARY, "F16") if subject.ternary else BY_QUALITY:
        sizes = _sizes(subject, name)
        weights = round(subject.factor * sum(nbytes for _, nbytes in sizes))
        memory = weights + cache + WORKING_BYTES
        bits = 8 * weights / subject.parameters
        speed = EFFICIENCY * bandwidth / _read_per_token(subject, sizes)
        rows.append(TypeEstimate(name, bits, weights, memory, memory <= ram, speed))
    rows.sort(key=lambda row: -row.file_bytes)
    take, reason = _choice(subject, rows, purpose, ram, cache)
    return Recommendation(
        subject.name, subject.parameters, subject.active_parameters, tokens, cache, ram,
        bandwidth, rows, take, reason,
    )  # fmt: skip


def _sizes(subject: Subject, mix: str) -> list[tuple[str, int]]:
    assigned = assign(subject.entries, MIXES[mix], subject.network, Overrides())
    return [(a.entry.name, tensor_nbytes(a.type, a.entry.shape[::-1]) or 0) for a in assigned]


def _read_per_token(subject: Subject, sizes: Sequence[tuple[str, int]]) -> float:
    """Bytes: all weights but the embedding's, of which one row is read, unless it is the output.

    Of experts those that a token takes.
    """
    skipped = subject.unread
    if any(name == "output.weight" for name, _ in sizes):
        skipped += ("token_embd.weight",)
    read = sum(
        nbytes * share(name, subject.experts)
        for name, nbytes in sizes
        if not name.startswith(skipped)
    )
    return subject.factor * read + subject.read_bytes


def _choice(
    subject: Subject, rows: Sequence[TypeEstimate], purpose: Purpose, ram: int, cache: int
) -> tuple[str | None, str]:
    fitting = {row.type for row in rows if row.fits}
    if subject.ternary:
        order: Sequence[str] = TERNARY
        why = "it keeps the ternary weights exactly, and the rest as it is"
    else:
        order, why = _CHOICES[purpose], _WHY[purpose]
        if purpose == "balanced" and subject.parameters < _SMALL:
            order, why = BY_QUALITY[2:], "a small model loses much to fewer bits, and is fast"
    for number, name in enumerate(order):
        if name in fitting:
            if number:
                why = f"{order[0]} does not fit, and this is the next best that does"
            row = next(row for row in rows if row.type == name)
            if subject.quantized and (
                name == subject.quantized or row.file_bytes == subject.nbytes
            ):
                why += "; this file is that already"
            elif subject.quantized:
                why += f"; this file is {subject.quantized}: make that from the original instead"
            return name, f"take {name}: {why}"
    least = min(rows, key=lambda row: row.memory_bytes)
    reason = (
        f"it does not fit: even {least.type} needs {size_text(least.memory_bytes)} with this "
        f"context, and the model may have {size_text(ram)}"
    )
    if least.memory_bytes - cache <= ram:
        left = ram - (least.memory_bytes - cache)
        shorter = int(left / subject.kv_bytes_per_token)
        return None, f"{reason}; with --ctx {max(shorter, 1)} {least.type} does"
    room = (ram - WORKING_BYTES) / (least.bits_per_weight / 8)
    if room < _LEAST_PARAMETERS:
        return None, f"{reason}; that is too little for any model"
    return (
        None,
        f"{reason}; models of up to {count_text(room)} parameters do, with a short context",
    )


def usable_memory(ram: int) -> int:
    """Bytes that a model may take of ``ram``: the system and other programs need the rest.

    That rest is a quarter, 2 GB at most.
    """
    return ram - min(ram // 4, 2 * 10**9)
