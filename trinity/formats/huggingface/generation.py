"""generation_config.json: what ends an answer, and the sampling that a model's makers recommend.

Source: transformers generation/configuration_utils.py, GenerationConfig.
"""

from __future__ import annotations

from collections.abc import Mapping

from trinity.errors import ConfigError
from trinity.formats.defaults import Defaults
from trinity.formats.huggingface.files import CONFIG, GENERATION_CONFIG, optional_object
from trinity.formats.huggingface.values import shown

# Their names to those of GenerationOptions; the first group counts where tokens are drawn.
_SAMPLING = {"temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
_ALWAYS = {"repetition_penalty": "repetition_penalty", "stop_strings": "stop"}


def generation_defaults(files: Mapping[str, str]) -> Defaults:
    """Return the defaults of a model from the files at these paths, by name.

    End tokens of generation_config.json override those of config.json. If ``do_sample`` is false
    there, the other values are ignored. Raises ConfigError for ends that are not token ids; options
    are not checked here.
    """
    source = files.get(GENERATION_CONFIG, files.get(CONFIG, ""))
    values = optional_object(files, GENERATION_CONFIG)
    names = _ALWAYS if values.get("do_sample") is False else {**_SAMPLING, **_ALWAYS}
    options = {option: values[key] for key, option in names.items() if values.get(key) is not None}
    return Defaults(options=options, end_ids=end_ids(files), source=source)


def end_ids(files: Mapping[str, str]) -> tuple[int, ...]:
    """Return the end-of-generation tokens. Raises ConfigError if one is not a token id."""
    for name in (GENERATION_CONFIG, CONFIG):
        value = optional_object(files, name).get("eos_token_id")
        if value is None:
            continue
        ids = value if isinstance(value, list) else [value]
        for token_id in ids:
            if not isinstance(token_id, int) or isinstance(token_id, bool) or token_id < 0:
                raise ConfigError(
                    f"{files[name]}: eos_token_id is {shown(value)}; expected one token id or a "
                    "list of them"
                )
        return tuple(ids)
    return ()
