"""SmolLM 3: Llama without positions in every fourth layer. GGUF has Q's and K's rows permuted."""

from __future__ import annotations

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.families.llama import LAYER
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.values import shown

_INTERVAL = 4  # of GGUF's smollm3, which has no key for it


def _keys(config: HFConfig) -> Keys:
    listed = config.values.values.get("no_rope_layers")
    interval = config.values.values.get("no_rope_layer_interval", _INTERVAL)
    usual = [int((layer + 1) % _INTERVAL != 0) for layer in range(config.num_layers)]
    if listed != usual if listed is not None else interval != _INTERVAL:
        raise UnsupportedError(
            f"{config.source}: no_rope_layers is {shown(listed)}, no_rope_layer_interval "
            f"{shown(interval)}; in GGUF every fourth layer of this class has no RoPE, and no other"
        )
    return {}


FAMILIES = (
    Family(
        class_names=("SmolLM3ForCausalLM",),
        architectures={"silu": "smollm3"},
        layer=LAYER,
        keys=_keys,
        terms=Terms(
            windows=True,
            defaults={
                "num_key_value_heads": 4,
                "rope_theta": 2_000_000.0,
                "use_sliding_window": False,
                "tie_word_embeddings": True,
            },
        ),
    ),
)
