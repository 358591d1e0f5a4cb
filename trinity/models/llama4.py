"""llama4 (the text of Llama 4 Scout and Maverick): attention in chunks, weighted inputs of experts.

Three layers of four rotate, normalize the heads of q and k without a weight, and attend within
chunks of ``sliding_window`` positions. Each fourth layer does not rotate, attends to all positions,
and scales queries by position. An expert's weight multiplies its input. Models with 128 experts
(Maverick) do not normalize heads.
The rotation keeps a head's norm, so the norm comes first here.
Source: llama.cpp src/models/llama4.cpp, which always has chunks of 8192; transformers' Llama4.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.config import ExpertTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.stored import Stored, part, transposed
from trinity.formats.huggingface.table import TableRow, attention, gated, pre_norm_layer
from trinity.formats.huggingface.values import Values, shown
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Attention, Norm, Operation, Rope, Temperature

_PERIOD = 4
_CHUNK = 8192
_TEMPERATURE = Temperature(0.1, _CHUNK, offset=1)
_WITHOUT_HEAD_NORMS = 128  # experts of Maverick


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    chunk = config.window_of(index, _PERIOD)
    return [
        *blocks.attention_branch(config, has, _attention(config, chunk), head_norms=False),
        *_feed_forward(config, index, has),
    ]


def _attention(config: ModelConfig, chunk: int) -> list[Operation]:
    heads, kv_heads, size = config.num_heads, config.num_kv_heads, config.head_dim
    rotates = bool(chunk) or not config.sliding_window
    norms: list[Operation] = []
    if rotates and expert_blocks.experts_of(config).num_experts != _WITHOUT_HEAD_NORMS:
        norms = [Norm("q", "", "q", size, heads), Norm("k", "", "k", size, kv_heads)]
    rotation = blocks.rotation_of(config) if rotates else None
    return [
        *norms,
        Rope(heads, kv_heads, size, rotation, temperature=None if rotates else _TEMPERATURE),
        Attention(
            heads, kv_heads, size, config.attention_scale or size**-0.5, chunk, chunked=bool(chunk)
        ),
    ]


def _feed_forward(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    experts = expert_blocks.experts_of(config)
    if (index + 1) % experts.layer_step != 0:
        return blocks.feed_forward(config, "silu")
    return [
        expert_blocks.router(config),
        expert_blocks.route(config, has, "sigmoid", normalize=False),
        *expert_blocks.mixture(config, has, "silu", weighs_inputs=True),
        *expert_blocks.shared_expert(config, "silu", size=experts.intermediate_size),
    ]


ARCHITECTURES = (
    Architecture(("llama4",), _layer, rope_halves=False, window=_CHUNK, needs=("experts",)),
)

# -- In transformers' checkpoints --


def _part_of_turned(number: int) -> Stored:
    """Return gate or up, stored together as (inputs, outputs)."""
    half = part(number, 2)

    def view(array: NDArray[Any]) -> NDArray[Any]:
        return half(transposed(array))

    return Stored(("feed_forward.experts.gate_up_proj",), view, turned=True)


def _apart(name: str) -> Stored:
    """Return experts as mlx-lm stores them."""
    return Stored((f"feed_forward.experts.{name}_proj.weight",))


_DOWN = Stored(("feed_forward.experts.down_proj",), transposed, turned=True)
_LAYER = pre_norm_layer(
    attention(),
    {
        **gated("feed_forward"),
        "ffn_gate_inp": "feed_forward.router",
        "ffn_gate_exps": TableRow((_part_of_turned(0), _apart("gate"))),
        "ffn_up_exps": TableRow((_part_of_turned(1), _apart("up"))),
        "ffn_down_exps": TableRow((_DOWN, _apart("down"))),
        **gated("feed_forward.shared_expert", suffix="_shexp"),
    },
)


def _keys(config: ModelConfig, values: Values) -> Keys:
    refuse_other(
        values, {"attention_bias": (None, False), "floor_scale": (_CHUNK,), "attn_scale": (0.1,)}
    )
    rotates = [(layer + 1) % _PERIOD != 0 for layer in range(config.num_layers)]
    chunk = _chunk(values, rotates)
    step = values.size("interleave_moe_layer_step", "expert_layer_step", 1)
    _check_layers(values, "moe_layers", [*range(step - 1, config.num_layers, step)])
    count = config.experts.num_experts if config.experts else 0
    if values.flag("use_qk_norm", True) == (count == _WITHOUT_HEAD_NORMS):
        raise UnsupportedError(
            f"{values.source}: use_qk_norm is {shown(values.values.get('use_qk_norm'))} with "
            f"{count} experts; in GGUF heads are normalized unless there are {_WITHOUT_HEAD_NORMS}"
        )
    if chunk and not values.values.get("attn_temperature_tuning"):
        raise UnsupportedError(
            f"{values.source}: attn_temperature_tuning is off; in GGUF layers that do not rotate "
            "always scale queries by position"
        )
    return {
        "intermediate_size": values.size("intermediate_size_mlp", "intermediate_size"),
        "expert_layer_step": step,
        "sliding_window": chunk,
    }


def _chunk(values: Values, rotates: list[bool]) -> int:
    """Return the size of chunks; 0 if all layers rotate and attend to all positions.

    Raises UnsupportedError for other layers than GGUF's.
    """
    interval = values.size("no_rope_layer_interval", "num_layers", _PERIOD)
    given = _listed(values, "no_rope_layers") or [
        (layer + 1) % interval != 0 for layer in range(len(rotates))
    ]
    chunk = 0
    if values.has("attention_chunk_size"):
        chunk = values.size("attention_chunk_size", "sliding_window")
    kinds: list[object] = [
        "chunked_attention" if chunk and turns else "full_attention" for turns in given
    ]
    kinds = _listed(values, "layer_types") or kinds
    if given == [True] * len(rotates) and kinds == ["full_attention"] * len(rotates):
        return 0
    usual = ["chunked_attention" if turns else "full_attention" for turns in rotates]
    if given != rotates or kinds != usual or not chunk:
        raise UnsupportedError(
            f"{values.source}: its layers rotate as {shown(given)} and attend as {shown(kinds)}; "
            f"in GGUF each {_PERIOD}th layer does not rotate and attends to all positions, and the "
            "others attend within chunks"
        )
    return chunk


def _listed(values: Values, key: str) -> list[object]:
    """Return a list, [] if it is missing. Raises ConfigError for anything else."""
    found = values.values.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        raise values.error(key, "must be a list")
    return found


def _check_layers(values: Values, key: str, expected: list[int]) -> None:
    if values.has(key) and values.values[key] != expected:
        raise UnsupportedError(
            f"{values.source}: {key} is {shown(values.values[key])}; it must agree with "
            f"interleave_moe_layer_step, which gives {shown(expected)}"
        )


FAMILY = Family(
    classes={"Llama4ForCausalLM": "llama4"},
    wrappers={"Llama4ForConditionalGeneration": "llama4"},
    layer=_LAYER,
    keys=_keys,
    rope_types=("linear", "llama3"),
    defaults={
        "head_dim": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "max_position_embeddings": 131_072,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16_384,
        "num_key_value_heads": 8,
        "num_experts_per_tok": 1,
        "num_local_experts": 16,
        "attention_chunk_size": _CHUNK,
        "floor_scale": _CHUNK,
        "attn_scale": 0.1,
        "attn_temperature_tuning": True,
        "attention_bias": False,
        "tie_word_embeddings": False,
    },
    experts=ExpertTerms(("num_local_experts", "num_experts"), width="intermediate_size"),
)
