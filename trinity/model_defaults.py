"""What a model itself says of options, taken as such."""

from __future__ import annotations

from dataclasses import replace

from trinity.errors import ConfigError, InputError
from trinity.formats.defaults import Defaults
from trinity.formats.provider import WeightProvider
from trinity.load_options import LoadOptions
from trinity.runtime.options import Request


def with_defaults(options: LoadOptions, defaults: Defaults) -> LoadOptions:
    """The options, with the model's own for those that are None. Raises ConfigError."""
    missing = {k: v for k, v in defaults.loading.items() if getattr(options, k) is None}
    try:
        return replace(options, **missing)  # type: ignore[arg-type]
    except InputError as error:
        raise ConfigError(f"{defaults.source}: {error}") from error


def checked_defaults(provider: WeightProvider) -> Defaults:
    """The model's defaults. Raises ConfigError where an option is out of its range."""
    defaults = provider.defaults
    try:
        Request.of(**defaults.options)  # type: ignore[arg-type]
    except InputError as error:
        raise ConfigError(f"{defaults.source}: {error}") from error
    return defaults
