"""gpt-oss: biases everywhere, a sink for each head, every second layer windowed, experts.

The file's ``post_attention_norm`` is the norm before the experts, after the residual sum. The
limits of the activation are constants. The checkpoints' YaRN ramp has fractional ends, which GGUF
cannot express; readers round them.

Checkpoints store experts as matrices of (inputs, outputs), or as MXFP4 blocks by rows. The rows of
gate and up alternate in both; GGUF and mlx-lm separate them.
Source: llama.cpp src/models/openai-moe.cpp; transformers' GptOss.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface import table
from trinity.formats.huggingface.config import ExpertTerms, WindowTerms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.stored import Stored, View, as_it_is, transposed
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation

_PERIOD = 2  # the last layer of each period sees all positions


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    attention = blocks.attention(
        config,
        blocks.rotation_of(config),
        window=config.window_of(index, _PERIOD),
        sinks="attn_sinks",
    )
    return [
        *blocks.attention_branch(config, has, attention, ffn_norm="post_attention_norm"),
        *expert_blocks.routed(config, has, "swiglu_oai", gating="softmax_chosen", normalize=False),
    ]


ARCHITECTURES = (
    Architecture(("gpt-oss",), _layer, rope_halves=True, needs=("experts", "sliding_window")),
)

# -- In transformers' checkpoints --

_LIMITS = {"swiglu_limit": 7.0, "swiglu_alpha": 1.702}
# The class's default, if the configuration has neither rope_parameters nor rope_scaling.
_YARN = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096,
}  # fmt: skip


def _every_second(start: int) -> View:
    def view(array: NDArray[Any]) -> NDArray[Any]:
        return array[:, start::2]

    return view


def _every_second_column(start: int) -> View:
    def view(array: NDArray[Any]) -> NDArray[Any]:
        return transposed(array)[:, start::2]

    return view


def _experts() -> table.Table:
    rows: dict[str, table.TableRow] = {}
    for name, together, start in (
        ("gate", "gate_up_proj", 0), ("up", "gate_up_proj", 1), ("down", "down_proj", None),
    ):  # fmt: skip
        plain = transposed if start is None else _every_second_column(start)
        packed = as_it_is if start is None else _every_second(start)
        source, apart = f"mlp.experts.{together}", f"mlp.experts.{name}_proj"  # mlx-lm's are apart
        forms = (
            Stored((f"{source}_blocks", f"{source}_scales"), packed, blocks=True),
            Stored((source,), plain, turned=True),
            Stored((f"{apart}.weight",)),
        )
        biases = Stored((f"{source}_bias",), packed), Stored((f"{apart}.bias",))
        rows |= {
            f"ffn_{name}_exps": table.TableRow(forms),
            f"ffn_{name}_exps.bias": table.TableRow(biases),
        }
    return rows


_LAYER = table.pre_norm_layer(
    {
        **table.attention(bias="attention_bias", output_bias="attention_bias"),
        "attn_sinks": table.tensor("self_attn.sinks"),
    },
    {"ffn_gate_inp": table.at("mlp.router", bias=True), **_experts()},
    ffn_norm="post_attention_norm",
)


def _check(config: ModelConfig, values: Values) -> None:
    for key, expected in _LIMITS.items():
        if values.values.get(key, expected) != expected:
            raise UnsupportedError(
                f"{values.source}: {key} is {values.values[key]!r:.40}, which is not supported: "
                f"GGUF files of this model class always imply {expected}"
            )


FAMILY = Family(
    classes={"GptOssForCausalLM": "gpt-oss"},
    layer=_LAYER,
    check=_check,
    windows=WindowTerms(_PERIOD, gguf="unusual layers"),
    defaults={
        "head_dim": 64,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "rope_theta": 150_000.0,
        "rope_parameters": _YARN,
        "sliding_window": 128,
        "attention_bias": True,
        "num_experts_per_tok": 4,
    },
    experts=ExpertTerms(("num_local_experts", "num_experts"), width="intermediate_size"),
    quantization=("mxfp4",),
)
