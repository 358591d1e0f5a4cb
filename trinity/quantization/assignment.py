"""The type of each tensor, by the rules of llama.cpp's quantizer.

Source: llama.cpp src/llama-quant.cpp, llama_tensor_get_type and tensor_type_fallback.
tests/goldens/quantize_goldens.py lets llama.cpp itself decide; the tests compare.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from trinity.config import ModelConfig
from trinity.errors import InputError, UnsupportedError
from trinity.formats.gguf_types import tensor_nbytes
from trinity.formats.other_models import SPEECH
from trinity.quantization.mixes import QuantizationMix
from trinity_kernels.ggml import TYPES_BY_NAME

_LAYER = re.compile(r"blk\.(\d+)\.")
# The fallback if a row is not a whole number of blocks; F16 if that does not fit either.
_FALLBACKS = {
    "IQ4_XS": "IQ4_NL",
    "Q2_0": "Q4_0",
    "Q2_K": "Q4_0",
    "Q3_K": "Q4_0",
    "TQ1_0": "Q4_0",
    "TQ2_0": "Q4_0",
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}
_NOT_QUANTIZED = (
    "_norm.weight", "ffn_gate_inp.weight", "position_embd.weight", "token_types.weight",
    "ssm_conv1d", "shortconv.conv.weight", "enc.conv1d.", "altup_", "laurel_",
    "per_layer_model_proj.weight", "time_mix_lerp_fused.weight", "time_mix_first.weight",
    "time_mix_decay_w1.weight", "time_mix_decay_w2.weight",
    *(f"time_mix_{name}.weight" for name in ("w1", "w2", "a1", "a2", "v1", "v2", "g1", "g2")),
)  # fmt: skip
# With 8 large experts, as in Mixtral, attention is a small part of the file.
_FEW_EXPERTS = 8
_BETTER_BESIDE_FEW = frozenset({"Q2_K", "Q3_K_S", "Q3_K_M", "IQ4_NL", "IQ4_XS", "Q4_K_S", "Q4_K_M"})


@dataclass(frozen=True, slots=True)
class Network:
    """The properties of a model that the rules depend on."""

    architecture: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    num_experts: int = 0

    @property
    def group_size(self) -> int:
        """Query heads per key-value head; 0 without attention."""
        return self.num_heads // self.num_kv_heads if self.num_kv_heads else 0

    @property
    def is_70b(self) -> bool:
        """Whether it is like Llama 2 70B, whose small attn_v gets a better type."""
        return self.architecture == "llama" and self.num_layers == 80 and self.group_size > 1


def network_of(config: ModelConfig, names: Collection[str]) -> Network:
    """Return the properties of a model with tensors of these ``names``."""
    layers = config.num_layers
    if config.architecture == SPEECH:  # count those of encoder and decoder
        layers = sum(name.endswith("ffn_down.weight") for name in names)
    experts = config.experts.num_experts if config.experts else 0
    return Network(config.architecture, layers, config.num_heads, config.num_kv_heads, experts)


@dataclass(frozen=True, slots=True)
class Overrides:
    """The user's choices: types of single tensors, or one type for all.

    The first of ``patterns`` that matches anywhere in a tensor's name wins.
    """

    output: str | None = None
    embedding: str | None = None
    patterns: tuple[tuple[re.Pattern[str], str], ...] = ()
    pure: bool = False


@dataclass(frozen=True, slots=True)
class ModelTensor:
    """A tensor of the model; ``shape`` is NumPy's order, (M outputs, K inputs), experts first."""

    name: str
    shape: tuple[int, ...]
    type: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """A tensor and its new type; ``misfit`` is the intended type if its rows do not fit it."""

    entry: ModelTensor
    type: str
    misfit: str | None = None


def is_quantized(entry: ModelTensor) -> bool:
    """Whether the tensor is quantized: matrices of weights are, norms are not."""
    is_matrix = len(entry.shape) > 1 and prod(entry.shape[:-1]) > 1
    return (
        is_matrix
        and entry.name.endswith("weight")
        and not any(part in entry.name for part in _NOT_QUANTIZED)
    )


def in_order(entries: Sequence[ModelTensor]) -> list[ModelTensor]:
    """Sort as llama.cpp does: tensors outside of layers, then each layer's, by name."""

    def place(entry: ModelTensor) -> tuple[int, str]:
        layer = _LAYER.match(entry.name)
        return int(layer[1]) if layer else -1, entry.name

    return sorted(entries, key=place)


def assign(
    entries: Sequence[ModelTensor],
    mix: QuantizationMix,
    network: Network,
    overrides: Overrides,
    *,
    has_imatrix: bool = False,
) -> list[Assigned]:
    """Return the type of every tensor, in llama.cpp's order.

    Raises InputError for a pattern that matches no tensor, UnsupportedError if I2_S does not
    support a shape.
    """
    rules = _Rules(entries, mix, network, overrides, has_imatrix)
    assigned = []
    for entry in in_order(entries):
        if not is_quantized(entry):
            assigned.append(Assigned(entry, entry.type))
            continue
        wanted = rules.wanted(entry)
        fitting = entry.type if wanted == entry.type else _fitting(entry, wanted)
        assigned.append(Assigned(entry, fitting, wanted if fitting != wanted else None))
    rules.check_patterns()
    return assigned


def _fitting(entry: ModelTensor, wanted: str) -> str:
    columns = entry.shape[-1]
    if wanted == "I2_S":
        if tensor_nbytes("I2_S", entry.shape[::-1]) is None or prod(entry.shape) % 128:
            raise UnsupportedError(
                f"I2_S needs a multiple of 128 weights in a matrix, but {entry.name!r} has the "
                f"shape {entry.shape}; TQ1_0 and TQ2_0 fall back to other types"
            )
        return wanted
    for candidate in (wanted, _FALLBACKS.get(wanted, wanted)):
        if columns % TYPES_BY_NAME[candidate].block_size == 0:
            return candidate
    return "F16"


class _Rules:
    """Decides the types in order; two counters count the layers, as in llama.cpp.

    They do not count tensors whose type the user gives.
    """

    def __init__(
        self,
        entries: Sequence[ModelTensor],
        mix: QuantizationMix,
        network: Network,
        overrides: Overrides,
        has_imatrix: bool,
    ) -> None:
        self.mix = mix
        self.network = network
        self.overrides = overrides
        self.has_imatrix = has_imatrix
        self.is_tied = all(entry.name != "output.weight" for entry in entries)
        self.num_attn_v = sum(_is_attn_v(entry.name) for entry in entries)
        self.attn_v = 0
        self.ffn_down = 0
        self.used: set[str] = set()

    def wanted(self, entry: ModelTensor) -> str:
        """Return the type before the row length is checked."""
        given = self._given(entry.name)
        if given is not None:
            return given
        base = self.mix.base
        if self.overrides.pure or base in ("F32", "F16", "BF16"):
            return base
        return self._mixed(entry)

    def check_patterns(self) -> None:
        """Raise InputError for patterns that match no quantized tensor."""
        for pattern, type_name in self.overrides.patterns:
            if pattern.pattern not in self.used:
                raise InputError(
                    f"--tensor-type {pattern.pattern}={type_name}: no quantized tensor has a "
                    "matching name; names are like blk.0.attn_v.weight, blk.0.ffn_down.weight, "
                    "token_embd.weight"
                )

    def _given(self, name: str) -> str | None:
        matching = [pair for pair in self.overrides.patterns if pair[0].search(name)]
        self.used.update(pattern.pattern for pattern, _ in matching)
        if name == "token_embd.weight" and self.overrides.embedding:
            return self.overrides.embedding
        if name == "output.weight" and self.overrides.output:
            return self.overrides.output
        if matching:
            return matching[0][1]
        return self.overrides.output if self._is_output(name) else None

    def _is_output(self, name: str) -> bool:
        return name == "output.weight" or (name == "token_embd.weight" and self.is_tied)

    def _mixed(self, entry: ModelTensor) -> str:
        """Return the type that the mix has for the tensor's role."""
        name = entry.name
        if self._is_output(name):
            return self._output(entry)
        if name == "token_embd.weight":
            return self._embedding(entry)
        experts = self.network.num_experts
        if self.mix.base == "MXFP4" and experts:
            return "MXFP4" if len(entry.shape) > 2 else "Q8_0"
        if _is_attn_v(name) or "attn_k.weight" in name:
            if experts == _FEW_EXPERTS:
                return "Q8_0"
            if "attn_k.weight" in name:
                return self.mix.base
            self.attn_v += 1
            return self._attn_v(self.attn_v - 1, self.num_attn_v)
        if "ffn_down" in name:
            self.ffn_down += 1
            layer = _LAYER.match(name)
            # A layer may have several: one per expert, or that of the shared expert.
            place = int(layer[1]) if experts > 1 and layer else self.ffn_down - 1
            return self._ffn_down(place, self.network.num_layers)
        if "attn_output.weight" in name:
            if experts == _FEW_EXPERTS:
                return "Q5_K" if self.mix.name in _BETTER_BESIDE_FEW else self.mix.base
            better = {"Q2_K": "Q3_K", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K"}
            return better.get(self.mix.name, self.mix.base)
        return self.mix.base

    def _output(self, entry: ModelTensor) -> str:
        base = self.mix.base
        if base == "I2_S":
            return _half(entry)
        if base in ("Q8_0", "MXFP4") or entry.shape[-1] % TYPES_BY_NAME[base].block_size:
            return "Q8_0"
        return "Q6_K"

    def _embedding(self, entry: ModelTensor) -> str:
        match self.mix.base:
            case "TQ1_0" | "TQ2_0" | "Q2_0":
                return "Q4_K"
            case "MXFP4":
                return "Q8_0"
            case "I2_S":
                return _half(entry)
        return self.mix.base

    def _attn_v(self, i: int, n: int) -> str:
        chosen = self.mix.base
        shared = self.network.group_size >= 4
        match self.mix.name:
            case "Q2_K":
                chosen = "Q4_K" if shared else "Q3_K"
            case "Q3_K_M":
                chosen = "Q5_K" if i < 2 else "Q4_K"
            case "Q3_K_L":
                chosen = "Q5_K"
            case "IQ4_NL" | "IQ4_XS" if shared:
                chosen = "Q5_K"
            case "Q4_K_M" | "Q5_K_M" if _is_sensitive(i, n):
                chosen = "Q6_K"
            case "Q4_K_S" if i < 4:
                chosen = "Q5_K"
        return "Q5_K" if self.network.is_70b and chosen in ("Q3_K", "Q4_K") else chosen

    def _ffn_down(self, i: int, n: int) -> str:
        match self.mix.name:
            case "Q2_K":
                return "Q3_K"
            case "Q3_K_M":
                return "Q5_K" if i < n // 16 else "Q4_K"
            case "Q3_K_L":
                return "Q5_K"
            case "Q4_K_M" | "Q5_K_M" if _is_sensitive(i, n):
                return "Q6_K"
            case "Q4_K_S" if i < n // 8:
                return "Q5_K"
            case "IQ4_NL" | "IQ4_XS" if i < n // 8 and not self.has_imatrix:
                return "Q5_K"
            case "Q4_0" | "Q5_0" if i < n // 8 and self.has_imatrix:
                return "Q4_1" if self.mix.name == "Q4_0" else "Q5_1"
        return self.mix.base


def _is_attn_v(name: str) -> bool:
    return any(part in name for part in ("attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight"))


def _is_sensitive(i: int, n: int) -> bool:
    """Whether the layer is in the first or last eighth, or every third between."""
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


def _half(entry: ModelTensor) -> str:
    """F16, as in bitnet.cpp's converter; types that are not wider stay."""
    return "F16" if entry.type == "F32" else entry.type
