"""What sentence-transformers keeps beside a model: how hidden states become a vector.

Source: sentence_transformers.models.Pooling; llama.cpp conversion/base.py, _try_set_pooling_type.
"""

from __future__ import annotations

from collections.abc import Mapping

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.files import MODULES, POOLING
from trinity.formats.json_object import read_json_list, read_json_object

# The flags of 1_Pooling/config.json, and the values of pooling_type.
_MODES = {
    "pooling_mode_mean_tokens": 1, "pooling_mode_cls_token": 2, "pooling_mode_lasttoken": 3,
}  # fmt: skip
_KNOWN = ("Transformer", "Pooling", "Normalize")


def pooling_keys(files: Mapping[str, str]) -> dict[str, object]:
    """The key pooling_type, without the architecture, where the files say how to pool.

    Raises UnsupportedError for another way, and for modules that change the vector.
    """
    if MODULES in files:
        for module in read_json_list(files[MODULES]):
            kind = str(module.get("type") if isinstance(module, dict) else module)
            if kind.rpartition(".")[2] not in _KNOWN:
                raise UnsupportedError(
                    f"{files[MODULES]}: a module of type {kind[:60]!r}; trinity reads "
                    f"{', '.join(_KNOWN)} of directories: take the model's GGUF file"
                )
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
