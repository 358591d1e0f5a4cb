"""Model names and durations as Ollama's clients write them."""

from __future__ import annotations

import math
import re

from trinity.server.errors import ApiError
from trinity.server.ignored import Ignored
from trinity.server.models import Models

LATEST = ":latest"
# The registry and namespace that Ollama assumes.
_REGISTRY = re.compile(r"^(?:(?:https?://)?registry\.ollama\.ai/)?(?:library/)?")
KeepAlive = float | str
# Unit to seconds; both the micro sign and the letter mu are in use.
_UNITS = {
    "ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0,
    "h": 3600.0,
}  # fmt: skip
LONGEST = 100  # characters of a duration
_PART = rf"(\d+\.?\d*|\.\d+)({'|'.join(_UNITS)})"


def served_name(
    ignored: Ignored, models: Models, model: str | None, name: str | None = None
) -> str:
    """Return the server's name of a model; ``name`` is the older parameter for ``model``.

    The tag ":latest", Ollama's registry and upper or lower case do not matter. Raises: ApiError 400
    without a name, 404 with Ollama's message for an unknown one.
    """
    asked = model or name
    if not asked:
        raise ApiError(400, "model is required", "model")
    plain = _REGISTRY.sub("", asked)
    known = {known_name.casefold(): known_name for known_name in models.names}
    for wanted in (asked, plain, plain.removesuffix(LATEST)):
        if wanted in models.names:
            return wanted
        if wanted.casefold() in known:
            return known[wanted.casefold()]
    try:
        return models.find(ignored, asked).name
    except ApiError:
        raise not_found(asked) from None


def not_found(name: str) -> ApiError:
    """Return the error whose message Ollama's clients recognize."""
    return ApiError(404, f"model '{name:.200}' not found", code="model_not_found")


def seconds_of(keep_alive: KeepAlive | None) -> float | None:
    """Convert keep_alive to seconds, from a number or a duration in Go's syntax such as 1h30m.

    A negative value means forever. Raises: ApiError 400.
    """
    if keep_alive is None:
        return None
    text = str(keep_alive)
    try:
        seconds = float(text)
    except ValueError:
        if len(text) > LONGEST or re.fullmatch(rf"[-+]?({_PART})+", text) is None:
            raise ApiError(
                400,
                f"keep_alive: {keep_alive!r:.40} is not a length of time such as 5m",
                "keep_alive",
            ) from None
        parts = re.findall(_PART, text)
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
        seconds = -seconds if text.startswith("-") else seconds
    return seconds if seconds >= 0 else math.inf  # also for "nan"
