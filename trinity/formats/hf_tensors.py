"""The model's tensors in a checkpoint: canonical names, and what each is called and shaped there.

Every tensor of the checkpoint must have its place: one that is left over means that the
configuration does not describe the model.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from trinity.errors import ConfigError, FormatError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.hf_config import HFConfig
from trinity.formats.hf_names import (
    EMBEDDING,
    HEAD,
    LAYER,
    OUTPUT_NORM,
    Family,
    Module,
    Width,
)

SCALE_SUFFIX = "_scale"  # of a packed weight's companion
_EMBEDDING, _HEAD = f"{EMBEDDING}.weight", f"{HEAD}.weight"
# Derived values that old versions of transformers saved beside the weights.
_DERIVED = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")


@dataclass(frozen=True, slots=True)
class HFTensor:
    """One tensor of the model.

    ``name`` is the canonical one, ``source`` the checkpoint's; ``shape`` is what config.json
    implies for the values, whatever form they are stored in. ``kind``: "linear" is a layer's
    weight, ternary in ternary models; "matrix" the embedding or the output; "vector" a norm or a
    bias. ``permuted_heads``: the number of heads whose rows GGUF has permuted, or 0. ``has_bias``:
    a bias goes with it.
    """

    name: str
    source: str
    shape: tuple[int, ...]
    kind: Literal["linear", "matrix", "vector"]
    permuted_heads: int = 0
    has_bias: bool = False


def hf_tensors(config: HFConfig, family: Family, checkpoint: Checkpoint) -> list[HFTensor]:
    """All tensors, in the order of Microsoft's BitNet b1.58 2B-4T file.

    Raises FormatError for a tensor that is missing or left over, ConfigError where the output's
    weight contradicts tie_word_embeddings.
    """
    names = frozenset(checkpoint.names())
    tensors = list(_tensors(config, family, names))
    used = {tensor.source for tensor in tensors}
    if config.quantization is not None and config.quantization.packed:
        used |= {f"{t.source}{SCALE_SUFFIX}" for t in tensors if t.kind == "linear"}
    missing = sorted(used - names)
    if missing:
        raise FormatError(
            f"{checkpoint.directory}: {len(missing)} tensors that config.json asks for are missing,"
            f" the first is {missing[0]!r}; the checkpoint is incomplete or config.json belongs to "
            "another one"
        )
    if _HEAD in names and _HEAD not in used:
        _check_tied(config, checkpoint)
        used.add(_HEAD)
    left = sorted(name for name in names - used if not _DERIVED.fullmatch(name))
    if left:
        hint = ""
        if any(name.endswith(f".weight{SCALE_SUFFIX}") for name in left):
            hint = " (weight_scale tensors need a quantization_config of method bitnet)"
        raise FormatError(
            f"{checkpoint.directory}: {len(left)} tensors have no place in {config.class_name} as "
            f"config.json describes it, the first is {left[0]!r}{hint}; config.json belongs to "
            "another checkpoint, or the model is one that trinity does not know"
        )
    return tensors


def _tensors(config: HFConfig, family: Family, names: Collection[str]) -> Iterator[HFTensor]:
    hidden, vocab = config.hidden_size, config.vocab_size
    yield HFTensor("token_embd.weight", _EMBEDDING, (vocab, hidden), "matrix")
    for layer in range(config.num_layers):
        for module in family.modules:
            yield from _of_module(module, layer, config, family, names)
    yield HFTensor("output_norm.weight", f"{OUTPUT_NORM}.weight", (hidden,), "vector")
    # Where the configuration does not say, the tensor itself tells.
    if config.tied is False or (config.tied is None and _HEAD in names):
        yield HFTensor("output.weight", _HEAD, (vocab, hidden), "matrix")


def _of_module(
    module: Module, layer: int, config: HFConfig, family: Family, names: Collection[str]
) -> Iterator[HFTensor]:
    """A module's weight and bias in one layer."""
    name = f"blk.{layer}.{module.name}"
    candidates = [f"{LAYER}{layer}.{source}" for source in module.sources]
    source = next((c for c in candidates if f"{c}.weight" in names), candidates[0])
    rows = _width(config, module.rows)
    if module.columns is None:
        yield HFTensor(f"{name}.weight", f"{source}.weight", (rows,), "vector")
        return
    heads = rows // config.head_dim if module.rotated and family.permuted else 0
    has_bias = (config.attention_bias and module.bias == "attention") or (
        config.mlp_bias and module.bias == "mlp"
    )
    shape = (rows, _width(config, module.columns))
    yield HFTensor(f"{name}.weight", f"{source}.weight", shape, "linear", heads, has_bias)
    if has_bias:
        yield HFTensor(f"{name}.bias", f"{source}.bias", (rows,), "vector", heads)


def _width(config: HFConfig, width: Width) -> int:
    if width == "hidden":
        return config.hidden_size
    if width == "ffn":
        return config.intermediate_size
    return (config.num_heads if width == "query" else config.num_kv_heads) * config.head_dim


def _check_tied(config: HFConfig, checkpoint: Checkpoint) -> None:
    """An output weight beside tied embeddings must be a copy of them."""
    head, embedding = checkpoint.tensor(_HEAD), checkpoint.tensor(_EMBEDDING)
    same_form = head.shape == embedding.shape and head.dtype == embedding.dtype
    # Views compare without a temporary of their size.
    if not same_form or head.data.data != embedding.data.data:
        raise ConfigError(
            f"{config.source}: tie_word_embeddings is true, but {_HEAD} differs from {_EMBEDDING}; "
            "set it to false if the model has an output matrix of its own"
        )
