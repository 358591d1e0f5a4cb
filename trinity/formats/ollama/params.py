"""Translate a model's parameters from Ollama's names to trinity's.

Unknown keys are ignored with a notice, wrong types are errors; fractions are removed where an
integer is expected. Source: Ollama, api/types.go, Options and FromMap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trinity.errors import ConfigError

_INTEGERS = {
    "num_ctx": "context_length",
    "num_thread": "threads",
    "num_predict": "max_tokens",
    "seed": "seed",
    "top_k": "top_k",
    "repeat_last_n": "penalty_last_n",
    "mirostat": "mirostat",
}
_NUMBERS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "min_p": "min_p",
    "repeat_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "typical_p": "typical_p",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}
_LOADING = frozenset({"context_length", "threads"})
# Settings of Ollama's runner: placement in memory, batch sizes.
_OF_THE_RUNNER = frozenset(
    {"num_keep", "num_batch", "num_gpu", "main_gpu", "use_mmap", "draft_num_predict"}
)
_MOST = 1 << 63  # the range of Ollama's integers
# Values below these let the engine decide.
_LEAST = {"context_length": 1, "threads": 1, "max_tokens": 1, "seed": 0}


@dataclass(slots=True)
class Params:
    """Options of a request, options of loading, and notices about the rest."""

    options: dict[str, object] = field(default_factory=dict)
    loading: dict[str, object] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)


def read_params(params: Mapping[str, object], error: Callable[[str], ConfigError]) -> Params:
    """Translate the object of a params layer; ``error`` creates an exception from a message.

    Raises that exception for a value of a type that Ollama does not accept.
    """
    result = Params()
    for key, value in params.items():
        if value is None or key in _OF_THE_RUNNER:
            continue
        if key in _INTEGERS:
            _put(result, _INTEGERS[key], int(_number(key, value, error)))
        elif key in _NUMBERS:
            result.options[_NUMBERS[key]] = _number(key, value, error)
        elif key == "stop":
            result.options["stop"] = _stop(value, error)
        else:
            result.notices.append(f"its parameter {key[:40]!r} is unknown")
    return result


def _put(result: Params, option: str, value: int) -> None:
    if value < _LEAST.get(option, value):
        return
    if option in ("top_k", "penalty_last_n"):
        value = max(value, {"top_k": 0, "penalty_last_n": -1}[option])
    (result.loading if option in _LOADING else result.options)[option] = value


def _number(key: str, value: object, error: Callable[[str], ConfigError]) -> float | int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_MOST < value < _MOST:
        raise error(f"{key} is {value!r:.40}; expected a number")
    return value


def _stop(value: object, error: Callable[[str], ConfigError]) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise error(f"stop is {value!r:.40}; expected a list of texts")
    return [text for text in value if text]
