"""The modules of sentence-transformers: how hidden states become a vector.

Source: sentence_transformers 6.2, Pooling, Dense and Normalize; llama.cpp conversion/base.py,
_try_set_pooling_type.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trinity.errors import FormatError, UnsupportedError
from trinity.formats.huggingface.files import DENSE, LOGIT_SCORE, MODULES, POOLING, optional_object
from trinity.formats.huggingface.sentence_settings import transformer_settings
from trinity.formats.json_object import read_json_list, read_json_object
from trinity.formats.provider import Tensor
from trinity.formats.safetensors import SafeTensorsFile
from trinity.formats.text_rules import activation_key

# The words of pooling_mode, the flags that older files have for them, and the values of
# pooling_type.
_MODES = {"mean": 1, "cls": 2, "lasttoken": 3}
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
_TAKEN = ("messages", "tools", "bos_token", "eos_token", "restore_suffix")
_ORDER = ("Transformer", "Pooling", "Dense", "Normalize")  # of an embedder
_KNOWN = (*_ORDER, "Dropout", "LogitScore")  # Dropout is for training
# torch.nn's functions that may follow a dense layer, in the last word of their names.
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "Sigmoid", "GELU", "SiLU")
_DENSE_INPUT = (None, "sentence_embedding")


def module_kinds(files: Mapping[str, str]) -> list[str]:
    """Return the kinds of modules in order, or [] without modules.json.

    Raises UnsupportedError for modules that trinity does not know, or in another order.
    """
    return [kind for kind, _ in _modules(files)]


def pooling_keys(files: Mapping[str, str]) -> dict[str, object]:
    """Return the key pooling_type, without the architecture, if the files define pooling.

    Raises UnsupportedError for another kind of pooling.
    """
    if POOLING not in files:
        return {}
    values = read_json_object(files[POOLING])
    given = values.get("pooling_mode")
    if given is None:
        given = [mode for flag, mode in _FLAGS.items() if values.get(flag)]
        unknown = [k for k in values if k.startswith("pooling_mode_") and k not in _FLAGS]
        given = [*given, *(key for key in unknown if values[key])] or "mean"
    modes = given if isinstance(given, list) else [given]
    if len(modes) != 1 or modes[0] not in _MODES:
        raise UnsupportedError(
            f"{files[POOLING]}: pools by {' and '.join(map(str, modes))[:80]}; trinity reads one "
            f"of {', '.join(_MODES)}"
        )
    return {"pooling_type": _MODES[modes[0]]}


def includes_prompt(files: Mapping[str, str]) -> bool:
    """Whether the tokens of a prompt take part in pooling. Raises: as ``read_json_object``."""
    return optional_object(files, POOLING).get("include_prompt") is not False


def template_names(files: Mapping[str, str]) -> dict[str, object]:
    """Return the variables that a chat template gets in addition to a pair's messages.

    Source: sentence_transformers.base.modules.Transformer, processing_kwargs. Raises: as
    ``read_json_object``.
    """
    processing = transformer_settings(files).get("processing_kwargs")
    settings = processing.get("chat_template") if isinstance(processing, dict) else None
    return (
        {k: v for k, v in settings.items() if k not in _TAKEN} if isinstance(settings, dict) else {}
    )


def dense_tensors(files: Mapping[str, str]) -> dict[str, Tensor]:
    """Return the layers after pooling by GGUF's names, such as dense_2.weight and dense_2.bias.

    Raises UnsupportedError for more than a linear layer, FormatError if a tensor is missing.
    """
    tensors: dict[str, Tensor] = {}
    for name, folder in _dense(files):
        values = _dense_values(files, folder)
        weights = f"{folder}/model.safetensors"
        if weights not in files:
            raise _missing(files, folder, weights)
        parts = {"weight": 2, "bias": 1} if values.get("bias", True) else {"weight": 2}
        with SafeTensorsFile(files[weights]) as opened:
            for part, rank in parts.items():
                tensor = opened.tensor(f"linear.{part}")
                if tensor.dtype not in ("F32", "F16", "BF16") or len(tensor.shape) != rank:
                    raise UnsupportedError(
                        f"{files[weights]}: linear.{part} has {tensor.dtype} and {tensor.shape}; "
                        f"expected {rank} dimensions of F32, F16 or BF16"
                    )
                data, full = np.array(tensor.data), f"{name}.{part}"
                tensors[full] = Tensor(full, tensor.shape, tensor.dtype, data, files[weights])
    return tensors


def dense_keys(files: Mapping[str, str], tensors: Mapping[str, Tensor]) -> dict[str, object]:
    """Return the dense layers' keys without the architecture: widths as llama.cpp needs them.

    Source: llama.cpp conversion/gemma.py, EmbeddingGemma.
    """
    keys: dict[str, object] = {}
    for name, _ in _dense(files):
        rows, columns = tensors[f"{name}.weight"].shape
        keys |= {f"{name}_feat_in": columns, f"{name}_feat_out": rows}
    return keys


def activation_keys(files: Mapping[str, str]) -> dict[str, object]:
    """Return the activations after dense layers, if one is not the identity."""
    names = {
        activation_key(name): _activation(files, folder, _dense_values(files, folder))
        for name, folder in _dense(files)
    }
    return {key: name for key, name in names.items() if name != "Identity"}


def _dense(files: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return GGUF's name and the folder of each dense module."""
    folders = [path for kind, path in _modules(files) if kind == "Dense"]
    return [(f"dense_{number}", folder) for number, folder in enumerate(folders, 2)]


def _dense_values(files: Mapping[str, str], folder: str) -> dict[str, object]:
    """Return a dense module's settings. Raises UnsupportedError for more than a layer."""
    config = f"{folder}/config.json"
    if config not in files:
        raise _missing(files, folder, config)
    values = read_json_object(files[config])
    names = (values.get("module_input_name"), values.get("module_output_name"))
    if values.get("use_residual") or any(name not in _DENSE_INPUT for name in names):
        raise UnsupportedError(
            f"{files[config]}: use_residual is {values.get('use_residual')!r:.20}, its input and "
            f"output are {names!r:.80}; trinity reads dense modules from one vector to the next"
        )
    _activation(files, folder, values)
    return values


def _activation(files: Mapping[str, str], folder: str, values: Mapping[str, object]) -> str:
    """Return the last word of the function's name. Raises UnsupportedError for another one."""
    given = values.get("activation_function", "torch.nn.modules.activation.Tanh")
    if given is None:
        return "Identity"
    name = str(given).rpartition(".")[2]
    if name not in ACTIVATIONS or not str(given).startswith("torch.nn."):
        raise UnsupportedError(
            f"{files[f'{folder}/config.json']}: activation_function is {given!r:.80}; trinity "
            f"reads torch.nn's {', '.join(ACTIVATIONS)}"
        )
    return name


def _missing(files: Mapping[str, str], folder: str, file: str) -> FormatError:
    return FormatError(
        f"{files[MODULES]}: names the module {folder}, but there is no {file}; download the rest "
        "of the model"
    )


def _modules(files: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the kind and the folder of each module. Raises UnsupportedError for other kinds."""
    modules: list[tuple[str, str]] = []
    for module in read_json_list(files[MODULES]) if MODULES in files else ():
        values = module if isinstance(module, dict) else {}
        name, path = str(values.get("type")), str(values.get("path"))
        kind = name.rpartition(".")[2]
        dense = sum(earlier == "Dense" for earlier, _ in modules)
        places = {"Transformer": "", "Pooling": POOLING.partition("/")[0]}
        if dense < len(DENSE):
            places["Dense"] = DENSE[dense]
        known = kind in _KNOWN and path == places.get(kind, path)
        if not known or (kind == "Dense" and dense == len(DENSE)):
            raise UnsupportedError(
                f"{files[MODULES]}: a module of type {name[:60]!r} in {path[:40]!r}; trinity "
                f"reads {', '.join(_KNOWN)}, dense ones in {' and '.join(DENSE)}: take the "
                "model's GGUF file"
            )
        if kind == "LogitScore":
            _check_logit_score(values, files)
        if kind != "Dropout":
            modules.append((kind, path))
    order = [_ORDER.index(kind) for kind, _ in modules if kind in _ORDER]
    if order != sorted(order):
        raise UnsupportedError(
            f"{files[MODULES]}: the modules are {', '.join(kind for kind, _ in modules)}; trinity "
            f"reads them in the order {', '.join(_ORDER)}"
        )
    return modules


def _check_logit_score(module: Mapping[str, object], files: Mapping[str, str]) -> None:
    """Raise FormatError if the module's file is not where it is read."""
    if f"{module.get('path')}/config.json" != LOGIT_SCORE or LOGIT_SCORE not in files:
        raise FormatError(
            f"{files[MODULES]}: it has LogitScore in {str(module.get('path'))[:40]!r}, but "
            f"{LOGIT_SCORE}, which has its settings, must exist; download the whole model again"
        )
