"""gpt-oss. Experts are plain matrices of (inputs, outputs), or blocks of MXFP4 by rows.

Rows of gate and up alternate in both; GGUF and mlx-lm have them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.blocks import attention, experts_of, norm, router, vector
from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import window_keys
from trinity.formats.huggingface.stored import Module, Stored, View, as_it_is, transposed

_LIMITS = {"swiglu_limit": 7.0, "swiglu_alpha": 1.702}
# Of the class, where the configuration has neither rope_parameters nor rope_scaling.
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


def _experts(config: HFConfig) -> Iterator[Module]:
    count, width = experts_of(config)
    hidden = config.hidden_size
    both, down = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"
    for name, source, outputs, stored, inputs, start in (
        ("ffn_gate_exps", both, width, 2 * width, hidden, 0),
        ("ffn_up_exps", both, width, 2 * width, hidden, 1),
        ("ffn_down_exps", down, hidden, hidden, width, None),
    ):
        plain = transposed if start is None else _every_second_column(start)
        packed = as_it_is if start is None else _every_second(start)
        shape = (count, outputs, inputs)
        apart = f"mlp.experts.{name.split('_')[1]}_proj"  # mlx-lm's
        forms = (
            Stored((f"{source}_blocks", f"{source}_scales"), (count, stored, inputs), packed, True),
            Stored((source,), (count, inputs, stored), plain),
            Stored((f"{apart}.weight",), shape),
        )
        yield Module(f"{name}.weight", shape, forms, "linear", has_bias=True)
        biases = (
            Stored((f"{source}_bias",), (count, stored), packed),
            Stored((f"{apart}.bias",), shape[:2]),
        )
        yield Module(f"{name}.bias", shape[:2], biases, "precise")


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    bias, hidden = config.values.flag("attention_bias"), config.hidden_size
    yield from norm("attn_norm", "input_layernorm", hidden)
    yield from attention(config, bias=bias, output_bias=bias)
    yield vector("attn_sinks.weight", "self_attn.sinks", (config.num_heads,))
    yield from norm("post_attention_norm", "post_attention_layernorm", hidden)
    yield router(config, "mlp.router")
    yield vector("ffn_gate_inp.bias", "mlp.router.bias", experts_of(config)[:1])
    yield from _experts(config)


def _keys(config: HFConfig) -> Keys:
    for key, expected in _LIMITS.items():
        if config.values.values.get(key, expected) != expected:
            raise UnsupportedError(
                f"{config.source}: {key} is {config.values.values[key]!r:.40}; in GGUF it is "
                f"always {expected}"
            )
    return window_keys(config, 2)


FAMILIES = (
    Family(
        class_names=("GptOssForCausalLM",),
        architectures={"silu": "gpt-oss"},
        layer=_layer,
        keys=_keys,
        terms=Terms(
            windows=True,
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
            window_period=2,
            quantization=("mxfp4",),
        ),
        window_in_keys=True,
    ),
)
