"""Choose a model's type: file sizes, memory with the KV cache, and speed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, prod
from typing import Literal

from trinity.config import ExpertConfig, ModelConfig
from trinity.errors import InputError, UnsupportedError
from trinity.formats.gguf_types import tensor_nbytes
from trinity.formats.other_models import is_speech
from trinity.formats.provider import WeightProvider
from trinity.formats.speech_config import speech_config
from trinity.models import find_architecture
from trinity.quantization.assignment import ModelTensor, Network, Overrides, assign, network_of
from trinity.quantization.mixes import MIXES, PLAIN
from trinity.tools.active import active_parameters, share
from trinity.tools.amounts import UNITS, count_text, size_text
from trinity.tools.file_type import file_type
from trinity.tools.shapes import SHAPES

Purpose = Literal["quality", "balanced", "speed"]

# Beside weights and cache: interpreter, compiled code, activations (docs/benchmarks.md).
_PAGES_OF_A_STEP = 5  # of 128 positions, of 512 rows
WORKING_BYTES = 300 << 20
# The part of the read bandwidth that decoding reaches (docs/benchmarks.md: 0.75 to 0.95).
EFFICIENCY = 0.8
# The default context; less if the model has less.
CONTEXT = 4096
# From the least error to the largest, by perplexities in llama.cpp's quantize documentation.
BY_QUALITY = (
    "F16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S", "IQ4_NL", "IQ4_XS", "Q4_0",
    "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K",
)  # fmt: skip
TERNARY = ("I2_S", "TQ2_0", "TQ1_0")
# Preferred types; the first that fits is chosen. Small models lose more with few bits.
_CHOICES: dict[Purpose, tuple[str, ...]] = {
    "quality": BY_QUALITY[1:],
    "balanced": ("Q4_K_M", "Q4_K_S", "IQ4_XS", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K"),
    "speed": ("Q4_K_S", "IQ4_XS", "Q3_K_M", "Q3_K_S", "Q2_K"),
}
_SMALL = 4e9
_LEAST_PARAMETERS = 1e5
_WHY = {
    "quality": "the closest type to the original that fits, with almost the same output",
    "balanced": "a third of the original's size with little loss: the usual choice",
    "speed": "smaller files are faster, but types smaller than this lose too much quality",
}


@dataclass(frozen=True, slots=True)
class TypeEstimate:
    """One type: bytes of the file, bits per weight, memory in use, expected tokens/s."""

    type: str
    bits_per_weight: float
    file_bytes: int
    memory_bytes: int
    fits: bool
    tokens_per_second: float


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The result: a table of types and the choice."""

    model: str
    parameters: int
    active_parameters: int
    context: int
    kv_cache_bytes: int
    usable_bytes: int  # memory that the model may use
    bandwidth: float  # bytes per second
    rows: list[TypeEstimate]
    take: str | None  # name of a type, or None if nothing fits
    reason: str  # one sentence


@dataclass(frozen=True, slots=True)
class Subject:
    """The model in question."""

    name: str
    entries: list[ModelTensor]
    network: Network
    kv_bytes_per_token: float
    context_length: int
    ternary: bool = False
    factor: float = 1.0  # its parameters relative to those of ``entries``
    quantized: str | None = None  # type that it has already; a better one cannot be made from it
    experts: ExpertConfig | None = None
    state_bytes: int = 0
    unread: tuple[str, ...] = ()  # prefixes of tensors of which a token reads nothing, or one row
    read_bytes: int = 0  # bytes that a token reads in addition to weights

    @property
    def active_parameters(self) -> int:
        """The number of weights that one token uses."""
        shapes = ((e.name, e.shape) for e in self.entries if not e.name.startswith(self.unread))
        return round(self.factor * active_parameters(shapes, self.experts))

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return round(self.factor * sum(prod(entry.shape) for entry in self.entries))

    @property
    def nbytes(self) -> int:
        """The bytes of its tensors as they are."""
        sizes = (tensor_nbytes(entry.type, entry.shape[::-1]) for entry in self.entries)
        return round(self.factor * sum(size or 0 for size in sizes))


def parse_count(text: str) -> int:
    """Parse a number of parameters: "7B", "350M" or "7e9". Raises InputError."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][+]?[0-9]+)?)\s*([KMBT]?)\s*", text.upper())
    value = float(match[1]) * UNITS.get(match[2], 1) if match else 0.0
    if not _LEAST_PARAMETERS <= value <= 1e14:
        raise InputError(
            f"--params is {text!r:.40}; expected a number of parameters such as 7B, 350M or 7e9"
        )
    return round(value)


def of_size(parameters: int) -> Subject:
    """Return a llama of about this many parameters, scaled from the known shape nearest in size.

    Names are rounded: "7B" has 6.7 billion parameters, "1B" has 1.24. A number that a known model
    is named by means that model.
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
    """Return the model of an open file.

    Raises ConfigError if the file lacks information, UnsupportedError for an architecture that
    trinity does not support.
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
        kv_heads = [0 if is_recurrent else config.num_kv_heads for is_recurrent in recurrent]
    per_token = 4.0 * sum(kv_heads) * config.head_dim
    # Llama models may be trained with ternary weights too, which their type shows.
    ternary = config.architecture.startswith("bitnet") or any(e.type in TERNARY for e in entries)
    return Subject(
        provider.path, entries, network, per_token, config.context_length, ternary,
        quantized=None if ternary else _quantized(provider), experts=config.experts,
        state_bytes=_state_bytes(config, recurrent),
    )  # fmt: skip


def _of_speech(provider: WeightProvider) -> Subject:
    """A Whisper model: a token reads the decoder, and its keys and values of a window of audio."""
    config = speech_config(provider.metadata, provider.path)
    layer = 2 * 4 * config.width  # bytes of the keys and values of a position
    window = config.decoder.layers * config.encoder.positions * layer
    return Subject(
        provider.path, _entries(provider), network_of(provider.config, provider.tensor_names()),
        config.decoder.layers * layer, config.decoder.positions, quantized=_quantized(provider),
        state_bytes=window, unread=("enc.", "dec.position_embd."), read_bytes=window,
    )  # fmt: skip


def _entries(provider: WeightProvider) -> list[ModelTensor]:
    tensors = [provider.tensor(name) for name in provider.tensor_names()]
    if not tensors:
        raise UnsupportedError(f"{provider.path}: the file has no tensors, so its size is unknown")
    return [ModelTensor(t.name, t.shape, t.type) for t in tensors]


def _quantized(provider: WeightProvider) -> str | None:
    """Return the type of a file that is quantized already."""
    type_name = file_type(provider)
    return None if type_name in PLAIN else type_name


def _state_bytes(config: ModelConfig, recurrent: Sequence[bool]) -> int:
    """Return the bytes of recurrent states: one for each page that a prompt's step covers."""
    ssm, values = config.ssm, config.hidden_size * max(config.short_conv_kernel - 1, 0)
    if ssm is not None:
        values += ssm.inner_size * ssm.state_size + ssm.channels * (ssm.conv_kernel - 1)
    return 4 * values * (sum(recurrent) or config.num_layers) * _PAGES_OF_A_STEP


def recommend(
    subject: Subject, *, ram: int, bandwidth: float, purpose: Purpose = "balanced",
    context: int | None = None,
) -> Recommendation:  # fmt: skip
    """Return every type's size, the largest first, and the recommended one.

    ``ram`` is the memory in bytes that the model may use, ``bandwidth`` is in bytes per second. The
    tokens/s are those of an empty context: EFFICIENCY * bandwidth / bytes that a token reads.
    Raises InputError for a context longer than the model's.
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
    """Return bytes: all weights except the embedding, unless it is also the output.

    Only selected experts count.
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
        why = "it keeps the ternary weights exactly, and the rest unchanged"
    else:
        order, why = _CHOICES[purpose], _WHY[purpose]
        if purpose == "balanced" and subject.parameters < _SMALL:
            order, why = (
                BY_QUALITY[2:],
                "a small model loses much quality with fewer bits, and is fast anyway",
            )
    for number, name in enumerate(order):
        if name in fitting:
            if number:
                why = f"{order[0]} does not fit, and this is the next type that does"
            row = next(row for row in rows if row.type == name)
            if subject.quantized and (
                name == subject.quantized or row.file_bytes == subject.nbytes
            ):
                why += "; this file has that type already"
            elif subject.quantized:
                why += f"; this file is {subject.quantized}: quantize the original instead"
            return name, f"take {name}: {why}"
    least = min(rows, key=lambda row: row.memory_bytes)
    reason = (
        f"it does not fit: even {least.type} needs {size_text(least.memory_bytes)} with this "
        f"context, but the limit is {size_text(ram)}"
    )
    if least.memory_bytes - cache <= ram:
        left = ram - (least.memory_bytes - cache)
        shorter = int(left / subject.kv_bytes_per_token)
        return None, f"{reason}; with --ctx {max(shorter, 1)} {least.type} fits"
    room = (ram - WORKING_BYTES) / (least.bits_per_weight / 8)
    if room < _LEAST_PARAMETERS:
        return None, f"{reason}, too little for any model"
    return (
        None,
        f"{reason}; models of up to {count_text(room)} parameters fit, with a short context",
    )


def usable_memory(ram: int) -> int:
    """Return the bytes of ``ram`` that a model may use; the rest is for the system.

    The rest is a quarter, at most 2 GB.
    """
    return ram - min(ram // 4, 2 * 10**9)
