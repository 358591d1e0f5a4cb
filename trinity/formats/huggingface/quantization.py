"""quantization_config: how a checkpoint stores weights that are no plain floats."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.packed.methods import METHODS as PACKED
from trinity.formats.huggingface.packed.methods import method_of
from trinity.formats.huggingface.values import Values, shown

_INSTEAD = "use the unquantized model, or a GGUF file of it"


@dataclass(frozen=True, slots=True)
class TernaryPacking:
    """How a checkpoint stores ternary weights."""

    packed: bool
    """Four codes per byte and a ``weight_scale``; otherwise floats that transformers rounds."""
    divides: bool = False
    """weight_scale divides the product ("bitlinear"), or multiplies it ("autobitlinear")."""


def read_quantization(values: Values, methods: Collection[str]) -> TernaryPacking | None:
    """Return how ternary weights are stored, or None.

    A class knows the ``methods`` in addition to those of packed weights; others raise
    UnsupportedError. Weights in MXFP4 are recognized by their tensors' names.
    """
    if method_of(values) is not None:
        return None
    value = values.values.get("quantization_config")
    if value is None or _is_mlx(values.values.get("quantization")) or _is_mlx(value):
        return None
    method = value.get("quant_method") if isinstance(value, dict) else value
    if not isinstance(value, dict) or not isinstance(method, str) or method not in methods:
        known = ", ".join([*methods, *PACKED, "models that are not quantized"])
        raise UnsupportedError(
            f"{values.source}: quantization_config has the method {shown(method)}; of this class "
            f"trinity reads {known}; {_INSTEAD}"
        )
    return METHODS[method](values.inner("quantization_config"))


def _is_mlx(value: object) -> bool:
    """Whether an object is MLX's, whose weights are recognized by their tensors."""
    return isinstance(value, dict) and "bits" in value and "quant_method" not in value


def _bitnet(read: Values) -> TernaryPacking:
    """Read BitNet's settings. Source: transformers BitNetQuantConfig."""
    linear_class = read.text("linear_class", "bitlinear")
    mode = read.text("quantization_mode", "offline")
    if linear_class not in ("bitlinear", "autobitlinear") or mode not in ("offline", "online"):
        raise UnsupportedError(
            f"{read.source} has linear_class {linear_class!r} and quantization_mode {mode!r}; "
            "known are bitlinear and autobitlinear, offline and online"
        )
    if read.flag("use_rms_norm"):
        raise UnsupportedError(
            f"{read.source}: use_rms_norm adds a norm before each linear layer, which no GGUF "
            "architecture that trinity runs has"
        )
    kept = read.values.get("modules_to_not_convert") or []
    if not isinstance(kept, list) or not set(map(str, kept)) <= {"lm_head", "embed_tokens"}:
        raise UnsupportedError(
            f"{read.source}: modules_to_not_convert is {shown(kept)}; trinity reads models all of "
            "whose layers are ternary"
        )
    # Only AutoBitLinear has an online mode; BitLinear is always packed.
    online = linear_class == "autobitlinear" and mode == "online"
    return TernaryPacking(packed=not online, divides=linear_class == "bitlinear")


# The values of quant_method that are known, and what reads the rest of the object.
METHODS: Mapping[str, Callable[[Values], TernaryPacking | None]] = {
    "bitnet": _bitnet,
    "mxfp4": lambda read: None,
}
