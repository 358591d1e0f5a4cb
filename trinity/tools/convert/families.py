"""Which Hugging Face classes can be converted, and how each becomes a GGUF architecture."""

from __future__ import annotations

from dataclasses import dataclass

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.hf_config import HFConfig


@dataclass(frozen=True, slots=True)
class Family:
    """One group of classes.

    ``architectures``: hidden_act to the value of general.architecture. ``permuted``: Q and K rows
    are reordered so that neighbouring dimensions rotate together, as the architecture's GGUF
    files have it. ``sub_norms``: GGUF's names of the norms before attn_output and ffn_down, with
    the names that checkpoints have for them. ``ternary``: the class itself means ternary layers.
    """

    class_names: tuple[str, ...]
    architectures: dict[str, str]
    permuted: bool
    sub_norms: dict[str, tuple[str, ...]]
    ternary: bool

    def architecture(self, config: HFConfig) -> str:
        """The value of general.architecture. Raises UnsupportedError, ConfigError."""
        if config.hidden_act not in self.architectures:
            known = ", ".join(self.architectures)
            raise UnsupportedError(
                f"{config.source}: hidden_act is {config.hidden_act[:40]!r}; trinity converts "
                f"{config.class_name} with {known}"
            )
        if self.sub_norms and config.num_heads * config.head_dim != config.hidden_size:
            raise ConfigError(
                f"{config.source}: num_attention_heads {config.num_heads} x head_dim "
                f"{config.head_dim} is not hidden_size {config.hidden_size}, as it must be in "
                f"{config.class_name}"
            )
        return self.architectures[config.hidden_act]


FAMILIES = (
    Family(
        class_names=("LlamaForCausalLM", "MistralForCausalLM"),
        architectures={"silu": "llama"},
        permuted=True,
        sub_norms={},
        ternary=False,
    ),
    # BitNet b1.58 2B-4T in transformers' names, the 1bitLLM reproductions in their own.
    Family(
        class_names=("BitNetForCausalLM", "BitnetForCausalLM"),
        architectures={"relu2": "bitnet-b1.58", "silu": "bitnet"},
        permuted=False,
        sub_norms={
            "attn_sub_norm": ("self_attn.attn_sub_norm", "self_attn.inner_attn_ln"),
            "ffn_sub_norm": ("mlp.ffn_sub_norm", "mlp.ffn_layernorm"),
        },
        ternary=True,
    ),
)


def family_of(config: HFConfig) -> Family:
    """The family of a configuration's class. Raises UnsupportedError, listing those there are."""
    for family in FAMILIES:
        if config.class_name in family.class_names:
            return family
    known = ", ".join(name for family in FAMILIES for name in family.class_names)
    raise UnsupportedError(
        f"{config.source}: architectures names {config.class_name[:60]!r}; trinity converts {known}"
    )
