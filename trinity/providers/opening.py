"""Open a model by its name, with the first kind of source that claims the name."""

from __future__ import annotations

import os
import re

from trinity.errors import InputError, about
from trinity.formats.mapping import path_text
from trinity.formats.provider import WeightProvider
from trinity.options.load_options import LoadOptions
from trinity.providers.directory import DIRECTORY, SAFETENSORS_FILE
from trinity.providers.gguf_file import GGUF_FILE
from trinity.providers.hub import HUB
from trinity.providers.kind import Described, Kind, Notice
from trinity.providers.ollama import OLLAMA, OLLAMA_BARE

# Prefixes first, then paths, then names that are not paths.
KINDS: tuple[Kind, ...] = (OLLAMA, HUB, DIRECTORY, SAFETENSORS_FILE, GGUF_FILE, OLLAMA_BARE)


def open_weights(
    name: str | os.PathLike[str],
    *,
    i2s_layout: str = "x86",
    tl_config: str | os.PathLike[str] | None = None,
    weight_scale: str | None = None,
    notice: Notice = lambda line: None,
) -> WeightProvider:
    """Open the model ``name``: a path, or a name that a kind of KINDS claims.

    No weights are decoded, so a GGUF file without a usable configuration can be opened. ``~`` is
    not expanded. ``notice`` is called with lines for the user. ``i2s_layout`` and ``tl_config``:
    see GGUFProvider; ``weight_scale``: see HuggingFaceProvider. Raises InputError if there is no
    such model, with what was tried and similar names; FormatError if it is malformed,
    UnsupportedError if it is not supported.
    """
    text = path_text(name)
    options = LoadOptions(i2s_layout=i2s_layout, tl_config=tl_config, weight_scale=weight_scale)
    kind = _kind_of(text)
    with about(text, os.path.realpath(text)):
        return kind.open(text, options, notice)


def open_description(
    name: str | os.PathLike[str], *, notice: Notice = lambda line: None
) -> Described:
    """Describe the model ``name`` without its weights, which may be missing.

    Arguments and errors are those of ``open_weights``.
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
    close = [close_name for kind in KINDS for close_name in kind.close_names(name)]
    hint = "check the path; a model of the hub is named hf:USER/REPO[:QUANTIZATION]"
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    elif re.match("https?://", name, re.IGNORECASE):
        return f"{name}: a model is not loaded from a URL; download the file and give its path"
    return f"{name}: there is no such file or model; tried: {tried}; {hint}"
