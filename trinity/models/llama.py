"""llama: Llama 1 to 3, Mistral, TinyLlama, and ternary models stored under this architecture.

Source: llama.cpp src/models/llama.cpp; its converters permute Q and K rows so that neighbouring
dimensions rotate together.
"""

from __future__ import annotations

from collections.abc import Callable

from trinity.models.graph import Architecture, Gated, Linear, Norm, Operation, attention_input


def _layer(has: Callable[[str], bool]) -> list[Operation]:
    return [
        *attention_input(has),
        Linear("a", (("attn_output", "x"),), add=True),
        Norm("x", "ffn_norm", "h"),
        Linear("h", (("ffn_gate", "gate"), ("ffn_up", "up"))),
        Gated("silu"),
        Linear("gate", (("ffn_down", "x"),), add=True),
    ]


ARCHITECTURES = (Architecture(("llama",), _layer, rope_halves=False),)
