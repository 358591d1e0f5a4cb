"""EXAONE 4: norms behind attention and feed-forward only, and of each head of Q and K."""

from __future__ import annotations

from collections.abc import Iterator

from trinity.formats.huggingface.blocks import attention, gated, head_norms, norm
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.keys import window_keys
from trinity.formats.huggingface.stored import Module


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    yield from attention(config)
    yield from head_norms(config)
    yield from norm("post_attention_norm", "post_attention_layernorm", config.hidden_size)
    yield from gated(config.hidden_size, config.intermediate_size)
    yield from norm("post_ffw_norm", "post_feedforward_layernorm", config.hidden_size)


FAMILIES = (
    Family(
        class_names=("Exaone4ForCausalLM",),
        architectures={"silu": "exaone4"},
        layer=_layer,
        keys=window_keys,
        terms=Terms(
            windows=True,
            defaults={"rms_norm_eps": 1e-5, "sliding_window": 4096},
            window_period=4,
        ),
        window_in_keys=True,
    ),
)
