"""GGUF adapters: tensors "NAME.lora_a" and "NAME.lora_b" for the model's tensor NAME.

Shapes in NumPy's order are those of Pair. Source: llama.cpp llama-adapter.cpp and
convert_lora_to_gguf.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError, UnsupportedError
from trinity.formats.adapters.adapter import Base, Elements, LoraAdapter
from trinity.formats.adapters.joined import PairPart, joined
from trinity.formats.adapters.modules import permuted_heads
from trinity.formats.adapters.places import part_of_fused
from trinity.formats.configuration import is_text
from trinity.formats.gguf import GGUFProvider
from trinity.formats.huggingface.values import shown
from trinity.formats.provider import Tensor

_ELEMENTS: Mapping[str, Any] = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_ENDS = (".lora_a", ".lora_b")


def read_gguf_adapter(path: str, base: Base) -> LoraAdapter:
    """Read the adapter in the GGUF file at ``path``.

    Raises UnsupportedError for another kind of file or adapter, FormatError if it is damaged or
    does not fit the base.
    """
    with GGUFProvider(path) as file:
        _check(file, base)
        alpha = _alpha(file)
        halves: dict[str, dict[str, Tensor]] = {}
        for whole in file.tensor_names():
            name, end = whole[:-7], whole[-7:]
            if end not in _ENDS:
                if whole.endswith("_norm.weight"):
                    continue  # written by mergekit; llama.cpp ignores it too
                raise FormatError(
                    f"{path}: tensor {whole!r} is not part of a pair: its name does not end in "
                    ".lora_a or .lora_b; convert the adapter again"
                )
            halves.setdefault(name, {})[end] = file.tensor(whole)
        heads = {} if base.permuted else permuted_heads(base)
        pieces = [
            _piece(base, path, *half, alpha, heads.get(half[0], 0)) for half in halves.items()
        ]
        return LoraAdapter(path, joined(base, pieces))


def _check(file: GGUFProvider, base: Base) -> None:
    metadata = file.metadata
    kind = metadata.get("general.type")
    if not is_text(kind, "adapter"):
        raise UnsupportedError(
            f"{file.path}: general.type is {shown(kind)}, not 'adapter': the file is not an "
            "adapter; give models as --model"
        )
    if not is_text(metadata.get("adapter.type"), "lora"):
        raise UnsupportedError(
            f"{file.path}: adapter.type is {shown(metadata.get('adapter.type'))}, which is not "
            "supported; trinity applies adapters of type 'lora'"
        )
    if "adapter.alora.invocation_tokens" in metadata:
        raise UnsupportedError(
            f"{file.path}: adapter.alora.invocation_tokens is set: activated LoRA, which starts "
            "at certain tokens, is not supported"
        )
    architecture = metadata.get("general.architecture")
    if not is_text(architecture, base.config.architecture):
        raise FormatError(
            f"{file.path}: general.architecture is {shown(architecture)}, but {base.path} is "
            f"{base.config.architecture!r}: the adapter belongs to another model"
        )


def _alpha(file: GGUFProvider) -> float:
    value = file.metadata.get("adapter.lora.alpha", 0.0)
    if not isinstance(value, int | float) or not abs(value) <= 1e9:
        raise FormatError(f"{file.path}: adapter.lora.alpha is {shown(value)}; expected a number")
    return float(value)


def _piece(
    base: Base, path: str, name: str, tensors: Mapping[str, Tensor], alpha: float, heads: int
) -> PairPart:
    if tensors.keys() != set(_ENDS):
        here, lacking = _ENDS if _ENDS[0] in tensors else _ENDS[::-1]
        raise FormatError(
            f"{path}: tensor '{name}{here}' has no partner '{name}{lacking}'; the file is damaged "
            "or incomplete"
        )
    part = part_of_fused(base, name)
    if name not in base.shapes and part is None:
        raise FormatError(
            f"{path}: tensor '{name}.lora_a': the model {base.path} has no tensor {name!r} that "
            "an adapter can change; the adapter belongs to another model"
        )
    a, b = (_elements(tensors[end]) for end in _ENDS)
    if heads and b.ndim == 2 and b.shape[0] % (2 * heads) == 0:
        b = _in_order_of_heads(b, heads)
    # If alpha is missing or 0, the pair is not scaled.
    scale = alpha / b.shape[-1] if alpha and b.ndim and b.shape[-1] else 1.0
    if part is None:
        return PairPart(name, None, a, b, scale, path)
    whole, first, count = part
    if b.shape[-2:-1] != (count,):
        raise FormatError(
            f"{path}: tensor '{name}.lora_b' has the shape {b.shape}, but the model's {whole!r} "
            f"has {count} rows for it: the adapter belongs to another model"
        )
    return PairPart(whole, first, a, b, scale, path)


def _in_order_of_heads(b: Elements, heads: int) -> Elements:
    """Undo the permutation of GGUF's converters, for a model whose file is not permuted."""
    pairs = b.shape[0] // heads // 2
    return b.reshape(heads, pairs, 2, b.shape[1]).swapaxes(1, 2).reshape(b.shape)


def _elements(tensor: Tensor) -> Elements:
    if tensor.type in _ELEMENTS:
        values: NDArray[Any] = tensor.data.view(_ELEMENTS[tensor.type]).reshape(tensor.shape)
        return values
    if tensor.type != "Q8_0":
        raise UnsupportedError(
            f"{tensor.source}: tensor {tensor.name!r} has type {tensor.type}, which is not "
            "supported; adapters must be F32, F16, BF16 or Q8_0"
        )
    return np.asarray(tensor.dequantize())
