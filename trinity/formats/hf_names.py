"""The names that Hugging Face's classes give to what GGUF names otherwise: classes and modules.

A family lists the modules of its layer once: the canonical name, the names that checkpoints have
for it, its shape in widths of the configuration, and whether GGUF has its rows in another order.
Source: transformers' modeling files; llama.cpp gguf-py/gguf/tensor_mapping.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.hf_config import HFConfig, Ternary

EMBEDDING = "model.embed_tokens"
OUTPUT_NORM = "model.norm"
HEAD = "lm_head"
LAYER = "model.layers."

Width = Literal["hidden", "ffn", "query", "key_value"]


@dataclass(frozen=True, slots=True)
class Module:
    """A module of a layer: ``name`` is the canonical one, ``sources`` are the checkpoint's.

    The weight has ``rows`` outputs and ``columns`` inputs; without ``columns`` it is a norm's.
    ``bias``: the part of the model in whose modules the configuration may put biases.
    ``rotated``: its rows are the heads that RoPE rotates, which the GGUF files of some
    architectures have permuted.
    """

    name: str
    sources: tuple[str, ...]
    rows: Width
    columns: Width | None = None
    bias: Literal["attention", "mlp"] | None = None
    rotated: bool = False


ATTN_NORM = Module("attn_norm", ("input_layernorm",), "hidden")
ATTN_Q = Module("attn_q", ("self_attn.q_proj",), "query", "hidden", "attention", rotated=True)
ATTN_K = Module("attn_k", ("self_attn.k_proj",), "key_value", "hidden", "attention", rotated=True)
ATTN_V = Module("attn_v", ("self_attn.v_proj",), "key_value", "hidden", "attention")
ATTN_OUTPUT = Module("attn_output", ("self_attn.o_proj",), "hidden", "query", "attention")
FFN_NORM = Module("ffn_norm", ("post_attention_layernorm",), "hidden")
FFN_GATE = Module("ffn_gate", ("mlp.gate_proj",), "ffn", "hidden", "mlp")
FFN_UP = Module("ffn_up", ("mlp.up_proj",), "ffn", "hidden", "mlp")
FFN_DOWN = Module("ffn_down", ("mlp.down_proj",), "hidden", "ffn", "mlp")
# BitNet b1.58 2B-4T in transformers' names, the 1bitLLM reproductions in their own.
ATTN_SUB_NORM = Module(
    "attn_sub_norm", ("self_attn.attn_sub_norm", "self_attn.inner_attn_ln"), "query"
)
FFN_SUB_NORM = Module("ffn_sub_norm", ("mlp.ffn_sub_norm", "mlp.ffn_layernorm"), "ffn")


@dataclass(frozen=True, slots=True)
class Family:
    """Classes whose checkpoints are alike.

    ``architectures``: hidden_act to the value of general.architecture. ``modules``: those of a
    layer, in the order of GGUF files. ``permuted``: GGUF files of the architecture have the rows
    of rotated modules reordered so that neighbouring dimensions rotate together. ``ternary``: the
    class itself means ternary layers.
    """

    class_names: tuple[str, ...]
    architectures: dict[str, str]
    modules: tuple[Module, ...]
    permuted: bool = False
    ternary: bool = False

    def architecture(self, config: HFConfig) -> str:
        """The value of general.architecture. Raises UnsupportedError, ConfigError."""
        if config.hidden_act not in self.architectures:
            known = ", ".join(self.architectures)
            raise UnsupportedError(
                f"{config.source}: hidden_act is {config.hidden_act[:40]!r}; trinity reads "
                f"{config.class_name} with {known}"
            )
        query = config.num_heads * config.head_dim
        if ATTN_SUB_NORM in self.modules and query != config.hidden_size:
            raise ConfigError(
                f"{config.source}: num_attention_heads {config.num_heads} x head_dim "
                f"{config.head_dim} is not hidden_size {config.hidden_size}, as it must be in "
                f"{config.class_name}"
            )
        return self.architectures[config.hidden_act]

    def ternary_form(self, config: HFConfig) -> Ternary | None:
        """How the layers' weights are stored where they are ternary, else None."""
        if config.quantization is None and self.ternary:
            return Ternary(packed=False)
        return config.quantization


FAMILIES = (
    Family(
        class_names=("LlamaForCausalLM", "MistralForCausalLM"),
        architectures={"silu": "llama"},
        modules=(
            ATTN_NORM, ATTN_Q, ATTN_K, ATTN_V, ATTN_OUTPUT,
            FFN_NORM, FFN_GATE, FFN_UP, FFN_DOWN,
        ),
        permuted=True,
    ),
    Family(
        class_names=("BitNetForCausalLM", "BitnetForCausalLM"),
        architectures={"relu2": "bitnet-b1.58", "silu": "bitnet"},
        modules=(
            ATTN_NORM, ATTN_Q, ATTN_K, ATTN_V, ATTN_SUB_NORM, ATTN_OUTPUT,
            FFN_NORM, FFN_GATE, FFN_UP, FFN_SUB_NORM, FFN_DOWN,
        ),
        ternary=True,
    ),
)  # fmt: skip


def family_of(config: HFConfig) -> Family:
    """The family of a configuration's class. Raises UnsupportedError, listing those there are."""
    for family in FAMILIES:
        if config.class_name in family.class_names:
            return family
    known = ", ".join(name for family in FAMILIES for name in family.class_names)
    raise UnsupportedError(
        f"{config.source}: architectures names {config.class_name[:60]!r}; trinity reads {known}"
    )
