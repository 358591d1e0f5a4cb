"""What sentence-transformers keeps beside a model: how hidden states become a vector.

Source: sentence_transformers.models.Pooling, Dense; llama.cpp conversion/base.py,
_try_set_pooling_type.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trinity.errors import FormatError, UnsupportedError
from trinity.formats.huggingface.files import (
    DENSE,
    LOGIT_SCORE,
    MODULES,
    POOLING,
    TRANSFORMER,
    optional_object,
)
from trinity.formats.json_object import read_json_list, read_json_object
from trinity.formats.provider import Tensor
from trinity.formats.safetensors import SafeTensorsFile

# The flags of 1_Pooling/config.json, and the values of pooling_type.
_MODES = {
    "pooling_mode_mean_tokens": 1, "pooling_mode_cls_token": 2, "pooling_mode_lasttoken": 3,
}  # fmt: skip
_TAKEN = ("messages", "tools", "bos_token", "eos_token", "restore_suffix")
_KNOWN = ("Transformer", "Pooling", "Dense", "Normalize", "LogitScore")


def pooling_keys(files: Mapping[str, str]) -> dict[str, object]:
    """The key pooling_type, without the architecture, where the files say how to pool.

    Raises UnsupportedError for another way, and for modules that change the vector.
    """
    _modules(files)
    if POOLING not in files:
        return {}
    values = read_json_object(files[POOLING])
    chosen = [key for key, value in values.items() if key.startswith("pooling_mode_") and value]
    if len(chosen) == 1 and chosen[0] in _MODES:
        return {"pooling_type": _MODES[chosen[0]]}
    raise UnsupportedError(
        f"{files[POOLING]}: pools by {' and '.join(chosen) or 'nothing'}; trinity reads one of "
        f"{', '.join(_MODES)}"
    )


def template_names(files: Mapping[str, str]) -> dict[str, object]:
    """The names that a chat template gets beside a pair's messages.

    Source: sentence_transformers.base.modules.Transformer, processing_kwargs. Raises: as
    ``read_json_object``.
    """
    processing = optional_object(files, TRANSFORMER).get("processing_kwargs")
    found = processing.get("chat_template") if isinstance(processing, dict) else None
    return {k: v for k, v in found.items() if k not in _TAKEN} if isinstance(found, dict) else {}


def dense_tensors(files: Mapping[str, str]) -> dict[str, Tensor]:
    """The matrices behind pooling by GGUF's names, dense_2.weight and dense_3.weight.

    Raises UnsupportedError for what is more than a matrix, FormatError where one is missing.
    """
    found = {}
    for number, folder in enumerate(_modules(files), 2):
        name = f"dense_{number}.weight"
        config, weights = (f"{folder}/{file}" for file in ("config.json", "model.safetensors"))
        for file in (config, weights):
            if file not in files:
                raise FormatError(
                    f"{files[MODULES]}: names the module {folder}, but there is no {file}; "
                    "download the rest of the model"
                )
        values = read_json_object(files[config])
        activation = str(values.get("activation_function", ""))
        if values.get("bias") is not False or not activation.endswith(".Identity"):
            raise UnsupportedError(
                f"{files[config]}: bias {values.get('bias')!r:.20} and the activation "
                f"{activation[:60]!r}; trinity reads dense modules that are a matrix alone"
            )
        opened = SafeTensorsFile(files[weights])
        try:
            tensor = opened.tensor("linear.weight")
            if tensor.dtype not in ("F32", "F16", "BF16") or len(tensor.shape) != 2:
                raise UnsupportedError(
                    f"{files[weights]}: linear.weight has {tensor.dtype} and {tensor.shape}; "
                    "expected a matrix of F32, F16 or BF16"
                )
            data = np.array(tensor.data)
        finally:
            opened.close()
        found[name] = Tensor(name, tensor.shape, tensor.dtype, data, files[weights])
    return found


def _modules(files: Mapping[str, str]) -> list[str]:
    """The folders of dense modules in order. Raises UnsupportedError for other modules."""
    dense: list[str] = []
    for module in read_json_list(files[MODULES]) if MODULES in files else ():
        values = module if isinstance(module, dict) else {}
        kind = str(values.get("type"))
        known = kind.rpartition(".")[2] in _KNOWN
        if known and kind.endswith(".Dense"):
            known = len(dense) < len(DENSE) and values.get("path") == DENSE[len(dense)]
            dense.append(str(values.get("path")))
        if known and kind.endswith(".LogitScore"):
            _check_logit_score(values, files)
        if not known:
            raise UnsupportedError(
                f"{files[MODULES]}: a module of type {kind[:60]!r} in "
                f"{str(values.get('path'))[:40]!r}; trinity reads {', '.join(_KNOWN)}, dense ones "
                f"in {' and '.join(DENSE)}: take the model's GGUF file"
            )
    return dense


def _check_logit_score(module: Mapping[str, object], files: Mapping[str, str]) -> None:
    """Raise FormatError where the module's file is not where it is read."""
    if f"{module.get('path')}/config.json" != LOGIT_SCORE or LOGIT_SCORE not in files:
        raise FormatError(
            f"{files[MODULES]}: names the module LogitScore in {str(module.get('path'))[:40]!r}, "
            f"but {LOGIT_SCORE} is read and must be there; download the rest of the model"
        )
