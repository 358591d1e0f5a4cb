"""Which tensors a GGUF file gets, in which order, and where each comes from in the checkpoint.

Every tensor of the checkpoint must have its place: one that is left over means that the
configuration does not describe the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trinity.errors import ConfigError, FormatError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.hf_config import HFConfig
from trinity.tools.convert.families import Family

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
SCALE_SUFFIX = "_scale"  # of a packed weight's companion
# Derived values that old versions of transformers saved beside the weights.
_DERIVED = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
_MATRIX, _LINEAR, _VECTOR = "matrix", "linear", "vector"


@dataclass(frozen=True, slots=True)
class Planned:
    """One tensor of the GGUF file, in file order.

    ``kind``: "linear" is a layer's weight, ternary in ternary models; "matrix" the embedding or
    the output; "vector" a norm or a bias. ``source`` is the checkpoint's name of it. ``heads``
    is the number of heads whose rows are to be permuted, or 0. ``has_bias``: a bias goes with it.
    """

    name: str
    source: str
    shape: tuple[int, ...]
    kind: str
    heads: int = 0
    has_bias: bool = False


def planned_tensors(config: HFConfig, family: Family, checkpoint: Checkpoint) -> list[Planned]:
    """All tensors in file order.

    Raises FormatError for a tensor that is missing or left over, ConfigError where the output's
    weight contradicts tie_word_embeddings.
    """
    names = frozenset(checkpoint.names())
    plan = list(_plan(config, family, names))
    used = {planned.source for planned in plan}
    packed = config.quantization is not None and config.quantization.packed
    if packed:
        used |= {f"{p.source}{SCALE_SUFFIX}" for p in plan if p.kind == _LINEAR}
    missing = sorted(used - names)
    if missing:
        raise FormatError(
            f"{checkpoint.directory}: {len(missing)} tensors that config.json asks for are missing,"
            f" the first is {missing[0]!r}; the checkpoint is incomplete or config.json belongs to "
            "another one"
        )
    if HEAD in names and HEAD not in used:
        _check_tied(config, checkpoint)
        used.add(HEAD)
    left = sorted(name for name in names - used if not _DERIVED.fullmatch(name))
    if left:
        hint = ""
        if any(name.endswith(f".weight{SCALE_SUFFIX}") for name in left):
            hint = " (weight_scale tensors need a quantization_config of method bitnet)"
        raise FormatError(
            f"{checkpoint.directory}: {len(left)} tensors have no place in {config.class_name} as "
            f"config.json describes it, the first is {left[0]!r}{hint}; config.json belongs to "
            "another checkpoint, or the model is one that trinity cannot convert"
        )
    return plan


def _plan(config: HFConfig, family: Family, names: frozenset[str]) -> Iterator[Planned]:
    """In the order of Microsoft's BitNet b1.58 2B-4T file."""
    hidden, ffn = config.hidden_size, config.intermediate_size
    q_rows = config.num_heads * config.head_dim
    kv_rows = config.num_kv_heads * config.head_dim
    yield Planned("token_embd.weight", EMBEDDING, (config.vocab_size, hidden), _MATRIX)
    for layer in range(config.num_layers):
        to, source = f"blk.{layer}.", f"model.layers.{layer}."

        def norm(
            name: str, candidates: tuple[str, ...], size: int, to: str = to, source: str = source
        ) -> Planned:
            full = [f"{source}{candidate}.weight" for candidate in candidates]
            found = next((name for name in full if name in names), full[0])
            return Planned(f"{to}{name}.weight", found, (size,), _VECTOR)

        def linear(
            name: str,
            module: str,
            rows: int,
            columns: int,
            heads: int = 0,
            to: str = to,
            source: str = source,
        ) -> Iterator[Planned]:
            heads = heads if family.permuted else 0
            has_bias = config.mlp_bias if module.startswith("mlp") else config.attention_bias
            yield Planned(
                f"{to}{name}.weight",
                f"{source}{module}.weight",
                (rows, columns),
                _LINEAR,
                heads,
                has_bias,
            )
            if has_bias:
                yield Planned(f"{to}{name}.bias", f"{source}{module}.bias", (rows,), _VECTOR, heads)

        yield norm("attn_norm", ("input_layernorm",), hidden)
        yield from linear("attn_q", "self_attn.q_proj", q_rows, hidden, config.num_heads)
        yield from linear("attn_k", "self_attn.k_proj", kv_rows, hidden, config.num_kv_heads)
        yield from linear("attn_v", "self_attn.v_proj", kv_rows, hidden)
        if "attn_sub_norm" in family.sub_norms:
            yield norm("attn_sub_norm", family.sub_norms["attn_sub_norm"], q_rows)
        yield from linear("attn_output", "self_attn.o_proj", hidden, q_rows)
        yield norm("ffn_norm", ("post_attention_layernorm",), hidden)
        yield from linear("ffn_gate", "mlp.gate_proj", ffn, hidden)
        yield from linear("ffn_up", "mlp.up_proj", ffn, hidden)
        if "ffn_sub_norm" in family.sub_norms:
            yield norm("ffn_sub_norm", family.sub_norms["ffn_sub_norm"], ffn)
        yield from linear("ffn_down", "mlp.down_proj", hidden, ffn)
    yield Planned("output_norm.weight", "model.norm.weight", (hidden,), _VECTOR)
    # Where the configuration does not say, the tensor itself tells.
    if config.tied is False or (config.tied is None and HEAD in names):
        yield Planned("output.weight", HEAD, (config.vocab_size, hidden), _MATRIX)


def _check_tied(config: HFConfig, checkpoint: Checkpoint) -> None:
    """An output weight beside tied embeddings must be a copy of them."""
    head, embedding = checkpoint.tensor(HEAD), checkpoint.tensor(EMBEDDING)
    same_form = head.shape == embedding.shape and head.dtype == embedding.dtype
    # Views compare without a temporary of their size.
    if not same_form or head.data.data != embedding.data.data:
        raise ConfigError(
            f"{config.source}: tie_word_embeddings is true, but {HEAD} differs from {EMBEDDING}; "
            "set it to false if the model has an output matrix of its own"
        )
