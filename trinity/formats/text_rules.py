"""Metadata keys for how an embedder or a reranker prepares a text.

GGUF defines none, so the names follow sentence-transformers. `convert` writes them, and any GGUF
file may have them; other programs ignore them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trinity.errors import ConfigError

PREFIX = "sentence_transformers."
MAX_TOKENS = f"{PREFIX}max_seq_length"
TRUNCATION_SIDE = f"{PREFIX}truncation_side"
PROMPT = f"{PREFIX}prompts."  # followed by the prompt's name
DEFAULT_PROMPT = f"{PREFIX}default_prompt_name"
INCLUDE_PROMPT = f"{PREFIX}include_prompt"
NORMALIZE = f"{PREFIX}normalize"
TRUNCATE_DIM = f"{PREFIX}truncate_dim"


def activation_key(dense: str) -> str:
    """The key for the function that follows the dense layer ``dense``, such as "dense_2"."""
    return f"{PREFIX}{dense}.activation"


@dataclass(frozen=True, slots=True)
class TextRules:
    """The rules by which a text becomes a vector, except the pooling."""

    # The maximum length of a text in tokens, including special tokens; longer texts are truncated.
    # None: only the context limits them.
    max_tokens: int | None = None
    cuts_left: bool = False  # whether the beginning is removed rather than the end
    # texts that can be put before a text, by name
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None  # name of the prompt that is used by default
    pools_prompt: bool = True  # whether the mean includes the prompt's tokens
    normalizes: bool = True  # whether vectors have length 1 by default
    dimensions: int | None = None  # number of leading values of the vector that are kept


NO_RULES = TextRules()


def text_rules(metadata: Mapping[str, object], source: str) -> TextRules:
    """Return the rules in a file's metadata. Raises ConfigError for a value of another type."""

    def size(key: str) -> int | None:
        value = metadata.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
            return value
        raise _error(source, key, value, "a positive integer")

    def flag(key: str) -> bool:
        value = metadata.get(key, True)
        if isinstance(value, bool):
            return value
        raise _error(source, key, value, "true or false")

    def text(key: str) -> str | None:
        value = metadata.get(key)
        if value is None or isinstance(value, str):
            return value
        raise _error(source, key, value, "a text")

    prompts = {
        key.removeprefix(PROMPT): text(key) or "" for key in metadata if key.startswith(PROMPT)
    }
    default = text(DEFAULT_PROMPT)
    if default is not None and default not in prompts:
        raise _error(source, DEFAULT_PROMPT, default, f"one of {sorted(prompts)}")
    return TextRules(
        max_tokens=size(MAX_TOKENS),
        cuts_left=text(TRUNCATION_SIDE) == "left",
        prompts=prompts,
        default_prompt=default,
        pools_prompt=flag(INCLUDE_PROMPT),
        normalizes=flag(NORMALIZE),
        dimensions=size(TRUNCATE_DIM),
    )


def _error(source: str, key: str, value: object, expected: str) -> ConfigError:
    return ConfigError(f"{source}: {key} is {value!r:.60}; expected {expected}")
