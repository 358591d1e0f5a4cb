"""bitnet and bitnet-b1.58 (also called bitnet-25): sub-norms before attn_output and ffn_down.

The two differ in the feed-forward's activation alone: SiLU in the 1bitLLM reproductions
(``bitnet``), squared ReLU in BitNet b1.58 2B-4T.
Source: llama.cpp src/models/bitnet.cpp; ik_llama.cpp build_bitnet_158; transformers' BitNet.
"""

from __future__ import annotations

from collections.abc import Callable

from trinity.models.graph import Architecture, Gated, Linear, Norm, Operation, attention_input


def _layer(has: Callable[[str], bool], activation: str) -> list[Operation]:
    return [
        *attention_input(has),
        Norm("a", "attn_sub_norm", "a"),
        Linear("a", (("attn_output", "x"),), add=True),
        Norm("x", "ffn_norm", "h"),
        Linear("h", (("ffn_gate", "gate"), ("ffn_up", "up"))),
        Gated(activation),
        Norm("gate", "ffn_sub_norm", "gate"),
        Linear("gate", (("ffn_down", "x"),), add=True),
    ]


ARCHITECTURES = (
    Architecture(("bitnet",), lambda has: _layer(has, "silu"), rope_halves=True),
    Architecture(("bitnet-b1.58", "bitnet-25"), lambda has: _layer(has, "relu2"), rope_halves=True),
)
