"""Looks a configuration's numbers up in metadata, and checks each one by itself.

Keys are tried in the order: architecture-prefixed GGUF key, the same unprefixed, Hugging Face's
name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import LARGEST_INTEGERS, REAL_RANGES


class Field(NamedTuple):
    """GGUF keys without the architecture, and Hugging Face's names."""

    gguf: tuple[str, ...]
    hf: tuple[str, ...] = ()


FIELDS: dict[str, Field] = {
    "hidden_size": Field(("embedding_length",), ("hidden_size", "n_embd", "dim")),
    "intermediate_size": Field(("feed_forward_length",), ("intermediate_size",)),
    "num_layers": Field(
        ("block_count",), ("num_hidden_layers", "num_layers", "n_layers", "n_layer")
    ),
    "num_heads": Field(("attention.head_count",), ("num_attention_heads", "num_heads", "n_heads")),
    "num_kv_heads": Field(
        ("attention.head_count_kv",), ("num_key_value_heads", "num_kv_heads", "n_kv_heads")
    ),
    "head_dim": Field(("attention.key_length",), ("head_dim",)),
    "value_dim": Field(("attention.value_length",)),
    "head_dim_swa": Field(("attention.key_length_swa",)),
    "value_dim_swa": Field(("attention.value_length_swa",)),
    "vocab_size": Field(("vocab_size",), ("n_vocab",)),
    "context_length": Field(("context_length",), ("max_position_embeddings", "max_seq_len")),
    "sliding_window": Field(("attention.sliding_window",), ("sliding_window",)),
    "sliding_window_pattern": Field(("attention.sliding_window_pattern",)),
    "rms_norm_eps": Field(
        ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"),
        ("rms_norm_eps", "norm_eps"),
    ),
    "attention_scale": Field(("attention.scale",)),
    "attn_logit_softcap": Field(("attn_logit_softcapping",)),
    "final_logit_softcap": Field(("final_logit_softcapping",)),
    "embedding_scale": Field(("embedding_scale",)),
    "residual_scale": Field(("residual_scale",)),
    "logit_scale": Field(("logit_scale",)),
    "temperature_scale": Field(("attention.temperature_scale",)),
    "shared_kv_layers": Field(("attention.shared_kv_layers",)),
    "per_layer_input_size": Field(("embedding_length_per_layer_input",)),
    "rope_theta": Field(("rope.freq_base",), ("rope_theta",)),
    "rope_theta_swa": Field(("rope.freq_base_swa",)),
    "rope_dim": Field(("rope.dimension_count",), ("rope_dim",)),
    "rope_dim_swa": Field(("rope.dimension_count_swa",)),
    "rope_type": Field(("rope.scaling.type",)),
    "rope_factor": Field(("rope.scaling.factor", "rope.scale_linear")),
    "rope_original_context": Field(
        ("rope.scaling.original_context_length",), ("original_max_position_embeddings",)
    ),
    "rope_attn_factor": Field(("rope.scaling.attn_factor",)),
    "rope_finetuned": Field(("rope.scaling.finetuned",)),
    "yarn_ext_factor": Field(("rope.scaling.yarn_ext_factor",)),
    "yarn_beta_fast": Field(("rope.scaling.yarn_beta_fast",)),
    "yarn_beta_slow": Field(("rope.scaling.yarn_beta_slow",)),
    "yarn_log_multiplier": Field(("rope.scaling.yarn_log_multiplier",)),
    "num_experts": Field(("expert_count",)),
    "num_experts_per_tok": Field(("expert_used_count",)),
    "expert_intermediate_size": Field(("expert_feed_forward_length",)),
    "shared_intermediate_size": Field(("expert_shared_feed_forward_length",)),
    "num_shared_experts": Field(("expert_shared_count",)),
    "first_dense_layers": Field(("leading_dense_block_count",)),
    "expert_gating": Field(("expert_gating_func",)),
    "expert_normalize": Field(("expert_weights_norm",)),
    "expert_scale": Field(("expert_weights_scale",)),
    "num_expert_groups": Field(("expert_group_count",)),
    "expert_groups_used": Field(("expert_group_used_count",)),
    "q_lora_rank": Field(("attention.q_lora_rank",)),
    "kv_lora_rank": Field(("attention.kv_lora_rank",)),
    "latent_key_dim": Field(("attention.key_length_mla",)),
    "latent_value_dim": Field(("attention.value_length_mla",)),
    "ssm_conv_kernel": Field(("ssm.conv_kernel",)),
    "ssm_inner_size": Field(("ssm.inner_size",)),
    "ssm_state_size": Field(("ssm.state_size",)),
    "ssm_num_groups": Field(("ssm.group_count",)),
    "ssm_num_heads": Field(("ssm.time_step_rank",)),
    "short_conv_kernel": Field(("shortconv.l_cache",)),
    "recurrent_layers": Field(("attention.recurrent_layers",)),
    "nextn_layers": Field(("nextn_predict_layers",)),
    "full_attention_interval": Field(("full_attention_interval",)),
}


class ConfigReader:
    """The numbers of one file's metadata, by the names of the table's fields."""

    def __init__(self, metadata: Mapping[str, object], architecture: str, source: str) -> None:
        self.metadata = metadata
        self._architecture = architecture
        self.source = source

    def key(self, name: str) -> str:
        """The key that gives field ``name``: the first that exists, else the preferred one."""
        field = FIELDS[name]
        prefix = f"{self._architecture}."
        keys = [prefix + key for key in field.gguf] + [*field.gguf, *field.hf]
        keys += [prefix + key for key in field.hf]
        return next((key for key in keys if key in self.metadata), keys[0])

    def error(self, name: str, what: str) -> ConfigError:
        """A ConfigError about field ``name``."""
        return ConfigError(f"{self.source}: {self.key(name)} ({name}) {what}")

    def clash(
        self, name: str, value: object, other: str, other_value: object, relation: str
    ) -> ConfigError:
        """A ConfigError about two fields that exclude each other."""
        return self.error(
            name,
            f"is {value}, but {relation} {self.key(other)} ({other}), which is {other_value}; "
            "the file's metadata is wrong: convert the model again",
        )

    def text(self, key: str) -> str:
        """A string under exactly ``key``, or an empty one."""
        value = self.metadata.get(key, "")
        return value if isinstance(value, str) else ""

    def integer(self, name: str, *, default: int | None = None, smallest: int = 1) -> int:
        """A whole number from ``smallest`` to the field's largest."""
        return self._checked(name, self.value(name, default), smallest)

    def by_layer(
        self, name: str, num_layers: int, default: int | None = None
    ) -> tuple[int, tuple[int, ...]]:
        """A whole number, or an array of one for each layer.

        Returns: the largest, and those of all layers where they differ, else nothing. A layer's 0
        says that the layer is of another kind.
        """
        values = self.value(name, default)
        if not isinstance(values, np.ndarray):
            return self._checked(name, values, 1), ()
        if len(values) != num_layers:
            raise self.error(
                name, f"has {len(values)} values, but {self.key('num_layers')} is {num_layers}"
            )
        numbers = tuple(self._checked(name, value, 0) for value in values.tolist())
        return max(numbers), numbers if len(set(numbers)) > 1 else ()

    def of_all_layers(self, name: str, num_layers: int) -> int:
        """A whole number, or an array of one for each layer, all equal."""
        value, different = self.by_layer(name, num_layers)
        self._checked(name, value, 1)
        if different:
            raise UnsupportedError(
                f"{self.source}: {self.key(name)} ({name}) varies by layer (an array of "
                f"{num_layers}); trinity runs models in which it is the same for all"
            )
        return value

    def real(self, name: str, *, default: float | None = None) -> float:
        """A number within the field's range."""
        value = self.value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, f"is {shown(value)}; a number is expected")
        smallest, largest = REAL_RANGES[name]
        if not smallest <= value <= largest:  # also NaN
            raise self.error(name, f"is {shown(value)}; it must be {smallest:g} to {largest:g}")
        return float(value)

    def real_or_none(self, name: str) -> float:
        """A number within the field's range; 0 where the file has none, or 0 itself."""
        value = self.value(name, 0.0)
        if not isinstance(value, bool) and isinstance(value, int | float) and value == 0:
            return 0.0
        return self.real(name)

    def boolean(self, name: str) -> bool | None:
        """True or False; None where the file has neither."""
        if not self.is_set(name):
            return None
        value = self.value(name)
        if not isinstance(value, bool):
            raise self.error(name, f"is {shown(value)}; true or false is expected")
        return value

    def is_set(self, name: str) -> bool:
        """True where any of the field's keys exists."""
        return self.key(name) in self.metadata

    def value(self, name: str, default: float | None = None) -> object:
        """What the file has for field ``name``, unchecked, or ``default``."""
        key = self.key(name)
        if key in self.metadata:
            return self.metadata[key]
        if default is None:
            field = FIELDS[name]
            others = ", ".join([*field.gguf, *field.hf])
            raise self.error(name, f"is missing, and so is each of {others}; convert again")
        return default

    def _checked(self, name: str, value: object, smallest: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"is {shown(value)}; a whole number is expected")
        largest = LARGEST_INTEGERS[name]
        if not smallest <= value <= largest:
            raise self.error(name, f"is {shown(value)}; it must be {smallest} to {largest}")
        return value


def shown(value: object) -> str:
    """A value for a message, shortened."""
    if isinstance(value, np.ndarray | list):
        return f"an array of {len(value)}"
    return f"{value[:60]!r}" if isinstance(value, str) else f"{value!r:.60}"
