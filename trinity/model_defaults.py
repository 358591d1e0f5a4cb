"""Read the default options that a model's files contain."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from trinity.config import POOLING_RANK
from trinity.errors import ConfigError, InputError
from trinity.formats.defaults import Defaults
from trinity.formats.provider import WeightProvider
from trinity.options.load_options import LoadOptions
from trinity.runtime.options import Request
from trinity.runtime.pooling import Pooling

# Source: llama.cpp, enum llama_pooling_type. The value 4 (rank) scores texts by a separate head.
_POOLING: dict[object, Pooling] = {0: "mean", 1: "mean", 2: "cls", 3: "last"}


def with_defaults(options: LoadOptions, defaults: Defaults) -> LoadOptions:
    """Return the options; the model's defaults replace those that are None. Raises ConfigError."""
    missing = {k: v for k, v in defaults.loading.items() if getattr(options, k) is None}
    try:
        return replace(options, **missing)  # type: ignore[arg-type]
    except InputError as error:
        raise ConfigError(f"{defaults.source}: {error}") from error


def checked_defaults(provider: WeightProvider) -> Defaults:
    """The model's defaults. Raises ConfigError if an option is out of its range."""
    defaults = provider.defaults
    try:
        Request.of(**defaults.options)  # type: ignore[arg-type]
    except InputError as error:
        raise ConfigError(f"{defaults.source}: {error}") from error
    return defaults


def pooling_of(provider: WeightProvider) -> Pooling:
    """The pooling that the model's file names; "mean" if it names none or an unknown one."""
    pooling = _pooling_type(provider)
    return _POOLING.get(pooling, "mean") if isinstance(pooling, int) else "mean"


def made_for(provider: WeightProvider) -> Literal["embed", "rank"] | None:
    """The command for which the model was trained, by its file; None for generative models.

    Source: Ollama's server/images.go, Capabilities, reads the key in the same way.
    """
    pooling = _pooling_type(provider)
    if not isinstance(pooling, int) or pooling == 0:
        return None
    return "rank" if pooling == POOLING_RANK else "embed"


def _pooling_type(provider: WeightProvider) -> object:
    return provider.metadata.get(f"{provider.metadata.get('general.architecture')}.pooling_type")
