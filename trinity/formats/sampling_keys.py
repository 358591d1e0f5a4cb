"""Read recommended sampling options from metadata.

Source of the keys: gguf-py/gguf/constants.py, Keys.General; of their use: llama.cpp
common/common.cpp, common_init_sampler_from_model.
"""

from __future__ import annotations

from collections.abc import Mapping

from trinity.errors import ConfigError
from trinity.formats.config_reader import shown

_INTEGERS = {"top_k": "top_k", "penalty_last_n": "penalty_last_n"}
_NUMBERS = {
    "temp": "temperature",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}


def sampling_of(metadata: Mapping[str, object], source: str) -> dict[str, object]:
    """Return options with the names of ``GenerationOptions``. Raises ConfigError for bad values."""
    options: dict[str, object] = {}
    for names, kinds in ((_INTEGERS, (int,)), (_NUMBERS, (int, float))):
        for key, option in names.items():
            value = metadata.get(f"general.sampling.{key}")
            if value is None:
                continue
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise ConfigError(
                    f"{source}: general.sampling.{key} is {shown(value)}; expected a number: "
                    "convert the model again"
                )
            options[option] = value
    if isinstance(top_k := options.get("top_k"), int):
        options["top_k"] = max(top_k, 0)  # llama.cpp's -1 means all
    return options
