"""quant_method modelopt: NVIDIA's Model Optimizer, quant_algo NVFP4 and FP8.

NVFP4: ``X.weight`` is U8, ``X.weight_scale`` F8_E4M3, and ``X.weight_scale_2`` multiplies. FP8:
``X.weight`` is F8_E4M3, ``X.weight_scale`` one number. Older checkpoints say so in
hf_quant_config.json alone. Source: modelopt, torch/export/quant_utils.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from trinity.errors import FormatError, UnsupportedError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.files import QUANT_CONFIG, optional_object
from trinity.formats.huggingface.packed.fp8 import CODES, scaled_codes
from trinity.formats.huggingface.packed.ignored import ignored
from trinity.formats.huggingface.packed.nvfp4 import nvfp4_weight
from trinity.formats.huggingface.packed.weight import Packed, PackedWeights
from trinity.formats.huggingface.values import Values, shown

_ALGORITHMS = ("NVFP4", "FP8")
_SCALE, _SECOND = ".weight_scale", ".weight_scale_2"


def with_own_file(values: dict[str, object], files: Mapping[str, str]) -> dict[str, object]:
    """Add values of hf_quant_config.json that config.json does not have.

    Raises ConfigError if that file is malformed.
    """
    if values.get("quantization_config") is not None or QUANT_CONFIG not in files:
        return values
    given = Values(optional_object(files, QUANT_CONFIG), files[QUANT_CONFIG])
    method = {"quant_method": "modelopt", **given.inner("quantization").values}
    return {**values, "quantization_config": method}


def find(checkpoint: Checkpoint, config: Values) -> PackedWeights:
    """Find the weights that have a scale.

    Raises FormatError for tensors that are missing or do not fit together, UnsupportedError for
    other algorithms.
    """
    algorithm = config.values.get("quant_algo")
    if algorithm not in _ALGORITHMS:
        raise UnsupportedError(
            f"{config.source}: quant_algo is {shown(algorithm)}; trinity reads "
            f"{' and '.join(_ALGORITHMS)}: use the unquantized model"
        )
    names = set(checkpoint.names())
    used, notes = ignored(checkpoint)
    weights: dict[str, Packed] = {}
    for name in checkpoint.names():
        if not name.endswith(_SCALE):
            continue
        module = name.removesuffix(_SCALE)
        weight, scales = f"{module}.weight", checkpoint.tensor(name)
        if weight not in names:
            raise FormatError(
                f"{scales.source}: there is a tensor {name!r}, but no {weight!r}; the checkpoint "
                "is incomplete"
            )
        codes = checkpoint.tensor(weight)
        used |= {weight, name}
        if codes.dtype == CODES:
            weights[weight] = scaled_codes(weight, codes, scales, None)
            continue
        if module + _SECOND not in names:
            raise FormatError(
                f"{codes.source}: tensor {weight!r} is {codes.dtype}, and there is no "
                f"{module + _SECOND!r}; expected both scales of NVFP4, or codes of {CODES}"
            )
        used.add(module + _SECOND)
        whole = checkpoint.tensor(module + _SECOND)
        weights[weight] = nvfp4_weight(weight, codes, scales, whole, divides=False)
    return PackedWeights(weights, frozenset(used), notes)
