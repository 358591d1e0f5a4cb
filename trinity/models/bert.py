"""bert (BERT, XLM-RoBERTa) and nomic-bert: encoders with norms behind each branch.

BERT adds a row for the position and has biases and an exact GELU; nomic's rotates queries and keys
and has a gate. Nothing follows the last layer's norm.
Source: llama.cpp src/models/bert.cpp; transformers' BertModel, XLMRobertaModel, NomicBertModel.
"""

from __future__ import annotations

from functools import partial

from trinity.config import ModelConfig
from trinity.models import blocks
from trinity.models.architecture import AddedRows, Architecture, Has
from trinity.models.operations import Norm, Operation


def _norm(config: ModelConfig, weight: str) -> Norm:
    return blocks.norm(config, "x", weight, "x", kind="layer")


def _layer(config: ModelConfig, index: int, has: Has, *, rotates: bool) -> list[Operation]:
    rotation = blocks.rotation_of(config) if rotates else None
    gated = has("ffn_gate")
    return [
        *blocks.projections(config, has, "x", head_norms=False),
        *blocks.attention(config, rotation, both_ways=True),
        blocks.attention_output(config),
        _norm(config, "attn_output_norm"),
        *blocks.feed_forward(
            config, "silu" if gated else "gelu_erf", "x", form="gate and up" if gated else "up"
        ),
        blocks.feed_forward_output(config),
        _norm(config, "layer_output_norm"),
    ]


def _prologue(config: ModelConfig) -> list[Operation]:
    return [_norm(config, "token_embd_norm")]


ARCHITECTURES = (
    Architecture(
        ("bert",), partial(_layer, rotates=False), rope_halves=True, prologue=_prologue,
        norm="none", encodes=True, added_rows=AddedRows("position_embd", "token_types"),
    ),
    Architecture(
        ("nomic-bert",), partial(_layer, rotates=True), rope_halves=True, prologue=_prologue,
        norm="none", encodes=True, added_rows=AddedRows(texts="token_types"),
    ),
)  # fmt: skip
