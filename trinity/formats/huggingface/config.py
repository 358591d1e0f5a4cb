"""config.json of a Hugging Face directory: what the model is, checked value by value.

Source: transformers' configuration classes; the names of older configurations (rope_theta,
rope_scaling) and of newer ones (rope_parameters) both count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from trinity.config import ExpertConfig, ModelConfig
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import MAX_CACHED_HEADS, MAX_QUERY_WIDTH
from trinity.formats.huggingface.values import Values, shown

if TYPE_CHECKING:
    from trinity.formats.huggingface.rope import RopeParameters

_KINDS = ("full_attention", "sliding_attention")
ROPE_TYPES = ("linear", "llama3", "yarn", "dynamic")
_ROTATED = "prism_hadamard_qwen35"  # of Ternary-Bonsai 2
# The meaning of null for keys that may be null in a class of transformers and have another default.
# Other keys count as missing if they are null: transformers fills them in, or refuses null.
_NULL: Mapping[str, object] = {
    "attn_logit_softcapping": None, "final_logit_softcapping": None, "mamba_d_ssm": None,
    "n_shared_experts": None, "num_key_value_heads": None, "q_lora_rank": None,
    "sliding_window": None, "partial_rotary_factor": 1.0, "mamba_conv_bias": False,
    "mamba_norm_before_gate": False, "mamba_proj_bias": False, "mamba_rms_norm": False,
    "norm_topk_prob": False, "projectors_bias": False, "rope_interleave": False,
    "head_dim": None, "attention_chunk_size": None, "attention_value_scale": 1.0,
    "use_qk_norm": False, "multi_query": False, "parallel_attn": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExpertTerms:
    """A class's keys of its experts. Of several keys for a value, the first that exists counts."""

    count: tuple[str, ...]
    used: str = "num_experts_per_tok"
    width: str = "moe_intermediate_size"
    switch: str | None = None  # a key that says whether there are experts
    optional: bool = False  # without a count, or with 0, there are no experts
    kinds: tuple[str, ...] = ()
    """Names of layers with experts. If layers are listed without such a name, there are none."""
    by_layer: bool = False  # numbers may be lists with a value for each layer


@dataclass(frozen=True, slots=True)
class WindowTerms:
    """The sliding windows of a class, and what GGUF's files of it say about them."""

    period: int = 0
    """If layers are not listed, the last one of each period has no window; 0: all have one."""
    max_window_layers: Literal["", "after", "before"] = ""
    """If layers are not listed, only those after, or before, this number have a window."""
    gguf: Literal["", "size", "layers", "unusual layers"] = ""
    """What GGUF stores of windows. "": nothing, so the context must not exceed the window. "size":
    the window's size. "layers": also the layers that have it. "unusual layers": also those layers,
    unless they follow from the period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A class's names and defaults of the values that every configuration has."""

    defaults: Mapping[str, object] = field(default_factory=dict)
    """Values of missing keys, as in transformers' configuration class."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Further fields of ModelConfig, and their names in config.json."""
    activation: str = "hidden_act"
    epsilon: str = "rms_norm_eps"
    context: tuple[str, ...] = ("max_position_embeddings",)
    experts: ExpertTerms | None = None
    feed_forward_times: int = 0
    """A missing intermediate_size is this many times hidden_size; 0: it must not be missing."""
    rope_types: tuple[str, ...] = ROPE_TYPES
    """The kinds of scaling that GGUF can express for the architecture."""
    partial_rope: bool = False  # a part of a head may rotate
    rope_size: str = ""  # the key of the number of a head's values that rotate; "": all
    quantization: tuple[str, ...] = ()  # supported methods
    windows: WindowTerms | None = None
    """None: the class ignores sliding_window."""
    by_layer: tuple[str, ...] = ()
    """Keys that may have lists of equal numbers, one for each layer."""
    kinds: tuple[str, ...] = ()
    """Keys of lists with one entry per layer; their length replaces a missing num_hidden_layers."""
    older: Mapping[str, str] = field(default_factory=dict)
    """Names of keys in older configurations."""
    of_type: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Other ``defaults`` for some values of model_type."""


def class_name_of(values: Values) -> str:
    """Return the name of the model's class. Raises ConfigError unless there is exactly one.

    Raises UnsupportedError for MLX's form of rotated weights.
    """
    if values.values.get("model_type") == _ROTATED:
        raise UnsupportedError(
            f"{values.source}: model_type is {_ROTATED!r}, MLX's form of rotated weights, which is "
            "not supported; use a GGUF file of this model in PQ2_0 or PTQ1_0"
        )
    names = values.values.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise ConfigError(
            f"{values.source}: architectures is {shown(names)}; expected a list with the name of "
            "one class, such as LlamaForCausalLM"
        )
    return names[0].rpartition(".")[2]  # Sarvam names the module before the class


def with_defaults(given: Mapping[str, object], source: str, terms: Terms) -> Values:
    """Return the values of the object ``given`` of ``source``, with the class's defaults."""
    older = {key: given[name] for key, name in terms.older.items() if name in given}
    absent = {key for key in terms.older if given.get(key) is None}
    said = {key: value for key, value in given.items() if key not in absent}
    defaults = terms.of_type.get(str(given.get("model_type")), terms.defaults)
    return Values({**defaults, **_without_nulls({**older, **said})}, source)


def common_config(values: Values, terms: Terms) -> tuple[ModelConfig, RopeParameters]:
    """Return the values that every configuration has, without the architecture.

    ``sliding_window_pattern`` lists the layers with a window; without any, ``sliding_window`` is 0.
    Raises ConfigError for missing, impossible or contradictory values; UnsupportedError for values
    that trinity does not support.
    """
    values = alike(values, *terms.by_layer) if terms.by_layer else values
    hidden_size = values.size("hidden_size", "hidden_size")
    num_heads = values.size("num_attention_heads", "num_heads")
    num_kv_heads = values.size("num_key_value_heads", "num_kv_heads", num_heads)
    if num_heads % num_kv_heads:
        raise values.error(
            "num_key_value_heads", f"does not divide num_attention_heads {num_heads}"
        )
    if not values.has("head_dim") and hidden_size % num_heads:
        raise values.error("hidden_size", f"is not a multiple of num_attention_heads {num_heads}")
    head_dim = values.size("head_dim", "head_dim", max(1, hidden_size // num_heads))
    if head_dim % 2:
        raise values.error(
            "head_dim", f"gives heads of {head_dim} dimensions; an even number is expected"
        )
    kinds = values.values.get(values.first_of(terms.kinds)) if terms.kinds else None
    counted = len(kinds) if isinstance(kinds, list | str) else None
    num_layers = values.size("num_hidden_layers", "num_layers", counted)
    check_heads(values, num_layers, num_heads, num_kv_heads, head_dim)
    context_length = values.size(values.first_of(terms.context), "context_length")
    window, windowed = _windows(values, terms.windows, num_layers)
    rotated = values.size(terms.rope_size, "rope_dim") if terms.rope_size else head_dim
    rope = _rope(values, terms, context_length, rotated)
    config = ModelConfig(
        architecture="",
        hidden_size=hidden_size,
        intermediate_size=values.size(
            "intermediate_size", "intermediate_size", terms.feed_forward_times * hidden_size or None
        ),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        vocab_size=values.size("vocab_size", "vocab_size"),
        context_length=context_length,
        rms_norm_eps=values.real(terms.epsilon, "rms_norm_eps", 1e-6),
        rope_theta=rope.theta,
        rope_dim=int(head_dim * rope.share),
        sliding_window=window,
        sliding_window_pattern=windowed,
        experts=_experts(values, terms.experts, kinds),
    )
    return config, rope


def _without_nulls(given: Mapping[str, object]) -> dict[str, object]:
    """Return the values with each null replaced by the value that it stands for."""
    return {
        key: _NULL[key] if value is None else value
        for key, value in given.items()
        if value is not None or key in _NULL
    }


def check_heads(
    values: Values, num_layers: int, num_heads: int, num_kv_heads: int, head_dim: int
) -> None:
    """Raise ConfigError for more heads than trinity supports."""
    if num_heads * head_dim > MAX_QUERY_WIDTH:
        raise values.error(
            "num_attention_heads",
            f"makes {num_heads * head_dim} with heads of {head_dim} "
            f"dimensions; at most {MAX_QUERY_WIDTH} are read",
        )
    if num_layers * num_kv_heads > MAX_CACHED_HEADS:
        raise values.error(
            "num_hidden_layers",
            f"makes {num_layers * num_kv_heads} heads in all with "
            f"num_key_value_heads {num_kv_heads}; at most {MAX_CACHED_HEADS} are read",
        )


def _rope(values: Values, terms: Terms, context_length: int, head_dim: int) -> RopeParameters:
    from trinity.formats.huggingface.rope import read_rope

    rope = read_rope(values, terms.rope_types, context_length, head_dim)
    if rope.share != 1.0 and not terms.partial_rope:
        raise UnsupportedError(
            f"{values.source}: partial_rotary_factor is {rope.share}, which is not supported: in "
            "GGUF files of this model class all dimensions of a head rotate"
        )
    rotated = int(head_dim * rope.share)
    if rotated % 2 or not rotated:
        raise ConfigError(
            f"{values.source}: partial_rotary_factor {rope.share} makes {rotated} of the "
            f"{head_dim} dimensions of a head rotate; rotation needs pairs"
        )
    return rope


def _windows(
    values: Values, terms: WindowTerms | None, num_layers: int
) -> tuple[int, tuple[bool, ...]]:
    """Return the window, and which layers have it."""
    none = (False,) * num_layers
    is_off = values.values.get("use_sliding_window") is False or not values.has("sliding_window")
    if terms is None or is_off or values.values["sliding_window"] == 0:
        return 0, none
    window = values.size("sliding_window", "sliding_window")
    windowed = _windowed(values, terms, num_layers)
    return (window, windowed) if any(windowed) else (0, none)


def _windowed(values: Values, terms: WindowTerms, num_layers: int) -> tuple[bool, ...]:
    kinds = values.values.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != num_layers:
            state = f"has {len(kinds)} values" if isinstance(kinds, list) else f"is {shown(kinds)}"
            raise ConfigError(
                f"{values.source}: layer_types {state}; expected one for each of the {num_layers} "
                "layers of num_hidden_layers"
            )
        for kind in kinds:
            if kind not in _KINDS:
                raise UnsupportedError(
                    f"{values.source}: layer_types has {shown(kind)}; of this class trinity reads "
                    f"{' and '.join(_KINDS)}"
                )
        return tuple(kind == "sliding_attention" for kind in kinds)
    pattern = values.values.get("sliding_window_pattern")
    if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
        return tuple(pattern[layer % len(pattern)] == "L" for layer in range(num_layers))
    period = values.size(
        "sliding_window_pattern", "sliding_window_pattern", terms.period, smallest=0
    )
    windowed = every_layer_but_each_last_of(period, num_layers)
    if not terms.max_window_layers:
        return windowed
    after = terms.max_window_layers == "after"
    number = values.size("max_window_layers", "num_layers", 28, smallest=0)
    return tuple(window and (layer >= number) == after for layer, window in enumerate(windowed))


def alike(values: Values, *keys: str) -> Values:
    """Return the values, with lists of equal numbers under ``keys`` replaced by the number.

    Raises ConfigError for other lists.
    """
    found = dict(values.values)
    for key in keys:
        listed = found.get(key)
        if isinstance(listed, list):
            if not listed or any(number != listed[0] for number in listed):
                raise values.error(key, "must be the same in each layer")
            found[key] = listed[0]
    return Values(found, values.source)


def every_layer_but_each_last_of(period: int, num_layers: int) -> tuple[bool, ...]:
    """Return which layers have a window; with ``period`` 0 all of them."""
    return tuple(period == 0 or (layer + 1) % period != 0 for layer in range(num_layers))


def _experts(values: Values, terms: ExpertTerms | None, kinds: object) -> ExpertConfig | None:
    if terms is None or (terms.switch is not None and not values.flag(terms.switch)):
        return None
    if terms.kinds and isinstance(kinds, list | str) and not any(k in kinds for k in terms.kinds):
        return None
    count_key = values.first_of(terms.count)
    if terms.by_layer:
        values = alike(values, count_key, terms.used, terms.width)
    if terms.optional and not values.values.get(count_key):
        return None
    count = values.size(count_key, "num_experts")
    used = values.size(terms.used, "num_experts_per_tok")
    if used > count:
        raise values.error(terms.used, f"exceeds {count_key} {count}")
    return ExpertConfig(count, used, values.size(terms.width, "expert_intermediate_size"))
