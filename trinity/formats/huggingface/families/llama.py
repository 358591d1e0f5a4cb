"""Llama, and Mistral up to 0.3. GGUF has the rows of Q and K permuted in both."""

from __future__ import annotations

from trinity.formats.huggingface.config import Terms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import Table, attention, gated

LAYER: Table = {
    "attn_norm": "input_layernorm",
    **attention(bias="attention_bias", output_bias="attention_bias", permuted=True),
    "ffn_norm": "post_attention_layernorm",
    **gated(bias="mlp_bias"),
}

FAMILIES = (
    Family(
        class_names=("LlamaForCausalLM",),
        architectures={"silu": "llama"},
        layer=LAYER,
        terms=Terms(quantization=("bitnet",)),
    ),
    Family(
        class_names=("MistralForCausalLM",),
        architectures={"silu": "llama"},
        layer=LAYER,
        terms=Terms(windows=True, defaults={"sliding_window": 4096}, quantization=("bitnet",)),
    ),
)
