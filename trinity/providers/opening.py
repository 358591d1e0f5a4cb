"""A model by its name: the first kind of place that claims the name opens it."""

from __future__ import annotations

import os

from trinity.errors import InputError, about
from trinity.formats.mapping import path_text
from trinity.formats.provider import WeightProvider
from trinity.options.load_options import LoadOptions
from trinity.providers.directory import DIRECTORY, SAFETENSORS_FILE
from trinity.providers.gguf_file import GGUF_FILE
from trinity.providers.hub import HUB
from trinity.providers.kind import Described, Kind, Notice
from trinity.providers.ollama import OLLAMA, OLLAMA_BARE

# Prefixes first, then what lies under a path, then names without a path.
KINDS: tuple[Kind, ...] = (OLLAMA, HUB, DIRECTORY, SAFETENSORS_FILE, GGUF_FILE, OLLAMA_BARE)


def open_weights(
    name: str | os.PathLike[str],
    *,
    i2s_layout: str = "x86",
    tl_config: str | os.PathLike[str] | None = None,
    weight_scale: str | None = None,
    notice: Notice = lambda line: None,
) -> WeightProvider:
    """Open the model that ``name`` names, a path or what a kind of KINDS claims.

    No weights are decoded, so a GGUF file without a usable configuration opens too. ``~`` is not
    expanded. ``notice`` takes lines that the user should see. ``i2s_layout`` and ``tl_config``: see
    GGUFProvider; ``weight_scale``: see HuggingFaceProvider. Raises InputError where there is no
    such model, listing what was tried and close names; FormatError where it is none or malformed,
    UnsupportedError for what trinity does not read.
    """
    text = path_text(name)
    options = LoadOptions(i2s_layout=i2s_layout, tl_config=tl_config, weight_scale=weight_scale)
    kind = _kind_of(text)
    with about(text, os.path.realpath(text)):
        return kind.open(text, options, notice)


def open_description(
    name: str | os.PathLike[str], *, notice: Notice = lambda line: None
) -> Described:
    """What is known of the model that ``name`` names without its weights, which may be missing.

    Arguments and errors as those of ``open_weights``.
    """
    text = path_text(name)
    kind = _kind_of(text)
    with about(text, os.path.realpath(text)):
        if kind.describe is None:
            return kind.open(text, LoadOptions(), notice)
        return kind.describe(text, notice)


def _kind_of(name: str) -> Kind:
    for kind in KINDS:
        if kind.claims(name):
            return kind
    raise InputError(_refusal(name))


def _refusal(name: str) -> str:
    tried = ", ".join(kind.what for kind in KINDS)
    close = [found for kind in KINDS for found in kind.close_names(name)]
    hint = f"did you mean {' or '.join(close)}?" if close else "check the path or name"
    return f"{name}: there is no such file or model; tried: {tried}; {hint}"
