"""exaone (EXAONE 3 and 3.5): llama's layer, with halves of heads rotated against each other.

Source: llama.cpp src/models/exaone.cpp and conversion/exaone.py; the published class.
"""

from __future__ import annotations

from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import Table
from trinity.formats.huggingface.values import Values
from trinity.models import llama
from trinity.models.architecture import Architecture

ARCHITECTURES = (Architecture(("exaone",), llama.layer, rope_halves=True),)

# -- In published checkpoints --

_LAYER: Table = {
    "attn_norm": "ln_1",
    **{f"attn_{name}": f"attn.attention.{name}_proj" for name in "qkv"},
    "attn_output": "attn.attention.out_proj",
    "ffn_norm": "ln_2",
    "ffn_gate": "mlp.c_fc_0",
    "ffn_up": "mlp.c_fc_1",
    "ffn_down": "mlp.c_proj",
}


def _prepared(values: Values) -> Values:
    given = {**values.values}
    if "num_layers" in given:
        given.setdefault("num_hidden_layers", given.pop("num_layers"))
    return Values(given, values.source)


FAMILY = Family(
    classes={"ExaoneForCausalLM": "exaone"},
    activation="activation_function",
    layer=_LAYER,
    ends={"token_embd": "transformer.wte", "output_norm": "transformer.ln_f"},
    prepare=_prepared,
    renames=(("transformer.h.", "model.layers."),),
    rope_types=("llama3",),
    older={"rms_norm_eps": "layer_norm_epsilon"},
    defaults={
        "activation_function": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 2048,
        "num_attention_heads": 32,
        "tie_word_embeddings": True,
    },
)
