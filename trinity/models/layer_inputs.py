"""Embeddings of a token for each layer, which Gemma 3n and Gemma 4 have.

A layer's input is the token's own embedding for this layer, plus a projection of its ordinary one.
"""

from __future__ import annotations

import math

from trinity.config import ModelConfig
from trinity.models.architecture import TokenTable
from trinity.models.operations import Gated, Linear, Norm, Operation, Product


def tables(config: ModelConfig) -> tuple[TokenTable, ...]:
    """The embeddings of all layers."""
    size = config.per_layer_input_size
    if not size:
        return ()
    width = size * config.num_layers
    # The sum of two terms is divided by sqrt(2): of this table here, of the other in its norm.
    scale, rows = math.sqrt(size / 2), config.per_layer_vocab_size
    return (TokenTable("per_layer_token_embd", "layer_inputs", width, scale, rows),)


def prologue(config: ModelConfig) -> list[Operation]:
    """Add the projections of the ordinary embedding."""
    size, hidden, layers = config.per_layer_input_size, config.hidden_size, config.num_layers
    if not size:
        return []
    product = Product("per_layer_model_proj", "projected", size * layers)
    return [
        Linear("x", hidden, (product,), scale=1 / math.sqrt(hidden)),
        Norm("projected", "per_layer_proj_norm", "layer_inputs", size, layers, add=True,
             factor=math.sqrt(0.5)),
    ]  # fmt: skip


def projected(config: ModelConfig, index: int, x: str) -> list[Operation]:
    """The layer's input, gated by x and projected to h."""
    size, hidden = config.per_layer_input_size, config.hidden_size
    return [
        Linear(x, hidden, (Product("inp_gate", "layer_gate", size),)),
        Gated("gelu", size, gate="layer_gate", up="layer_inputs", first=index * size),
        Linear("layer_gate", size, (Product("proj", "h", hidden),)),
    ]
