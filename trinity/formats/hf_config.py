"""config.json of a Hugging Face directory: what the model is, checked value by value.

Source: transformers' LlamaConfig, MistralConfig, BitNetConfig, BitNetQuantConfig; the names of
older configurations (rope_theta, rope_scaling) and of newer ones (rope_parameters) both count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import (
    LARGEST_INTEGERS,
    MAX_CACHED_HEADS,
    MAX_QUERY_WIDTH,
    REAL_RANGES,
)

_NO_SCALING = (None, "default")


@dataclass(frozen=True, slots=True)
class Ternary:
    """How a checkpoint stores ternary weights.

    ``packed``: four codes to a byte and a ``weight_scale`` beside; otherwise float master weights
    that transformers rounds to ternary at each step. ``divides``: weight_scale divides the
    product (linear_class "bitlinear") rather than multiplies it ("autobitlinear").
    """

    packed: bool
    divides: bool = False


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """RoPE frequencies stretched as Llama 3.1 has it; original_context_length in tokens."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context_length: int

    def divisors(self, theta: float, head_dim: int) -> NDArray[np.float32]:
        """rope_freqs.weight: what each of head_dim / 2 frequencies is divided by.

        Source: transformers modeling_rope_utils.py, _compute_llama3_parameters: long wave lengths
        are stretched by the factor, short ones not at all, those between in proportion.
        """
        frequencies = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
        turns = self.original_context_length * frequencies / (2 * np.pi)
        smooth = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        smooth = np.clip(smooth, 0, 1)
        return (1 / ((1 - smooth) / self.factor + smooth)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class HFConfig:
    """A checked configuration; sizes as in ModelConfig.

    ``tied`` is None where the file does not say. ``quantization`` is None without a
    quantization_config. ``linear_rope_factor`` is 1 without linear scaling.
    """

    source: str
    class_name: str
    hidden_act: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    context_length: int
    rms_norm_eps: float
    rope_theta: float
    linear_rope_factor: float
    llama3_scaling: Llama3Scaling | None
    sliding_window: int
    attention_bias: bool
    mlp_bias: bool
    tied: bool | None
    quantization: Ternary | None


def hf_config(values: Mapping[str, object], source: str) -> HFConfig:
    """The configuration that the object ``values`` of the file ``source`` describes.

    Raises ConfigError for values that are missing, impossible or at odds; UnsupportedError for
    what trinity cannot read.
    """
    read = _Reader(values, source)
    names = values.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise ConfigError(
            f"{source}: architectures is {_shown(names)}; expected a list with the name of one "
            "class, such as LlamaForCausalLM"
        )
    class_name = names[0]
    is_bitnet = class_name.lower() == "bitnetforcausallm"
    hidden_size = read.size("hidden_size", "hidden_size")
    num_heads = read.size("num_attention_heads", "num_heads")
    num_kv_heads = read.size("num_key_value_heads", "num_kv_heads", num_heads)
    if num_heads % num_kv_heads:
        raise read.error("num_key_value_heads", f"does not divide num_attention_heads {num_heads}")
    if values.get("head_dim") is None and hidden_size % num_heads:
        raise read.error("hidden_size", f"is no multiple of num_attention_heads {num_heads}")
    head_dim = read.size("head_dim", "head_dim", hidden_size // num_heads)
    if head_dim % 2:
        raise read.error("head_dim", f"gives heads of {head_dim} dimensions; rotation needs pairs")
    num_layers = read.size("num_hidden_layers", "num_layers")
    if num_heads * head_dim > MAX_QUERY_WIDTH:
        raise read.error(
            "num_attention_heads", f"makes {num_heads * head_dim} with heads of {head_dim} "
            f"dimensions; at most {MAX_QUERY_WIDTH} are read"
        )  # fmt: skip
    if num_layers * num_kv_heads > MAX_CACHED_HEADS:
        raise read.error(
            "num_hidden_layers", f"makes {num_layers * num_kv_heads} heads in all with "
            f"num_key_value_heads {num_kv_heads}; at most {MAX_CACHED_HEADS} are read"
        )  # fmt: skip
    default_act = "relu2" if class_name == "BitNetForCausalLM" else "silu"
    rope = _rope(read, 500_000.0 if class_name == "BitNetForCausalLM" else 10_000.0)
    return HFConfig(
        source=source,
        class_name=class_name,
        hidden_act=read.text("hidden_act", default_act),
        hidden_size=hidden_size,
        intermediate_size=read.size("intermediate_size", "intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        vocab_size=read.size("vocab_size", "vocab_size"),
        context_length=read.size("max_position_embeddings", "context_length"),
        rms_norm_eps=read.real("rms_norm_eps", "rms_norm_eps", 1e-5 if is_bitnet else 1e-6),
        rope_theta=rope[0],
        linear_rope_factor=rope[1],
        llama3_scaling=rope[2],
        sliding_window=_sliding_window(read),
        attention_bias=read.flag("attention_bias"),
        mlp_bias=read.flag("mlp_bias"),
        tied=None
        if values.get("tie_word_embeddings") is None
        else read.flag("tie_word_embeddings"),
        quantization=_quantization(values.get("quantization_config"), source),
    )


class _Reader:
    """Values of one JSON object; null counts as missing, as in transformers."""

    def __init__(self, values: Mapping[str, object], source: str) -> None:
        self.values = values
        self.source = source

    def error(self, key: str, what: str) -> ConfigError:
        return ConfigError(f"{self.source}: {key} is {_shown(self.values.get(key))}; it {what}")

    def size(self, key: str, field: str, default: int | None = None) -> int:
        """A whole number from 1, within the range of ModelConfig's ``field``."""
        value, largest = self._value(key, default), LARGEST_INTEGERS[field]
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
            raise self.error(key, f"must be a whole number from 1 to {largest}")
        return value

    def real(self, key: str, field: str, default: float | None = None) -> float:
        """A number within the range of the configuration's ``field``."""
        value = self._value(key, default)
        smallest, largest = REAL_RANGES[field]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"must be a number from {smallest:g} to {largest:g}")
        if not smallest <= value <= largest:  # also NaN
            raise self.error(key, f"must be a number from {smallest:g} to {largest:g}")
        return float(value)

    def flag(self, key: str) -> bool:
        value = self._value(key, False)
        if not isinstance(value, bool):
            raise self.error(key, "must be true or false")
        return value

    def text(self, key: str, default: str) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self.error(key, "must be a string")
        return value

    def mapping(self, key: str) -> dict[str, object]:
        value = self._value(key, {})
        if not isinstance(value, dict):
            raise self.error(key, "must be an object")
        return value

    def _value(self, key: str, default: object) -> object:
        value = self.values.get(key)
        if value is None and default is None:
            raise ConfigError(f"{self.source}: {key} is missing; download the file again")
        return default if value is None else value


def _rope(read: _Reader, default_theta: float) -> tuple[float, float, Llama3Scaling | None]:
    """Base, factor of linear scaling, Llama 3's scaling."""
    scaling = read.mapping("rope_parameters") or read.mapping("rope_scaling")
    inner = _Reader(scaling, f"{read.source}: RoPE parameters")
    outer = read.real("rope_theta", "rope_theta", default_theta)
    theta = inner.real("rope_theta", "rope_theta", outer)
    for reader in (read, inner):
        if reader.real("partial_rotary_factor", "rope_factor", 1.0) != 1.0:
            raise UnsupportedError(
                f"{reader.source}: partial_rotary_factor is not 1; trinity reads models whose "
                "heads rotate as a whole"
            )
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind in _NO_SCALING:
        return theta, 1.0, None
    if kind == "linear":
        return theta, inner.real("factor", "rope_factor"), None
    if kind != "llama3":
        raise UnsupportedError(
            f"{read.source}: RoPE scaling of type {_shown(kind)}; trinity reads default, "
            "linear and llama3"
        )
    low = inner.real("low_freq_factor", "rope_factor")
    high = inner.real("high_freq_factor", "rope_factor")
    if high <= low:
        raise inner.error("high_freq_factor", f"must exceed low_freq_factor {low}")
    original = inner.size("original_max_position_embeddings", "rope_original_context")
    return theta, 1.0, Llama3Scaling(inner.real("factor", "rope_factor"), low, high, original)


def _sliding_window(read: _Reader) -> int:
    """0 where the window is absent, switched off, or not shorter than the context."""
    if read.values.get("use_sliding_window") is False or read.values.get("sliding_window") is None:
        return 0
    window = read.size("sliding_window", "sliding_window")
    return window if window < read.size("max_position_embeddings", "context_length") else 0


def _quantization(value: object, source: str) -> Ternary | None:
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("quant_method") != "bitnet":
        method = value.get("quant_method") if isinstance(value, dict) else value
        raise UnsupportedError(
            f"{source}: quantization_config has the method {_shown(method)}; trinity reads "
            "bitnet and models that are not quantized"
        )
    where = f"{source}: quantization_config"
    read = _Reader(value, where)
    linear_class = read.text("linear_class", "bitlinear")
    mode = read.text("quantization_mode", "offline")
    if linear_class not in ("bitlinear", "autobitlinear") or mode not in ("offline", "online"):
        raise UnsupportedError(
            f"{where} has linear_class {linear_class!r} and quantization_mode {mode!r}; known are "
            "bitlinear and autobitlinear, offline and online"
        )
    if read.flag("use_rms_norm"):
        raise UnsupportedError(
            f"{where}: use_rms_norm adds a norm before each linear layer, which no GGUF "
            "architecture that trinity runs has"
        )
    kept = value.get("modules_to_not_convert") or []
    if not isinstance(kept, list) or not set(map(str, kept)) <= {"lm_head", "embed_tokens"}:
        raise UnsupportedError(
            f"{where}: modules_to_not_convert is {_shown(kept)}; trinity reads models all of "
            "whose layers are ternary"
        )
    # Only AutoBitLinear has an online mode; BitLinear is always packed.
    online = linear_class == "autobitlinear" and mode == "online"
    return Ternary(packed=not online, divides=linear_class == "bitlinear")


def _shown(value: object) -> str:
    return f"{value!r:.80}"
