"""Additions to logits, in the forms of OpenAI's and llama.cpp's clients."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trinity.server.errors import ApiError

if TYPE_CHECKING:
    from trinity.model import Model

Bias = list[int | float | str | bool]  # a token's id or a text, and a number or false
MOST_BIASES = 10_000
MOST_DIGITS = 18  # of a token's id
_ID = re.compile(r"-?[0-9]+")


def bias_of(model: Model, given: list[Bias] | Mapping[str, float | bool]) -> dict[int, float]:
    """Additions to logits by token id; false forbids a token.

    ``given`` is a list of pairs, or an object whose names are token ids if they are numbers.
    Raises: ApiError.
    """
    biases: dict[int, float] = {}
    pairs: Sequence[Sequence[int | float | str | bool]]
    if isinstance(given, Mapping):
        pairs = [(_id_or_text(key), value) for key, value in given.items()]
    else:
        pairs = given
    for place, pair in enumerate(pairs):
        if len(pair) != 2 or isinstance(pair[1], str) or isinstance(pair[0], bool | float):
            raise ApiError(400, "expected [token, bias]", f"logit_bias[{place}]")
        token, value = pair
        try:
            bias = float("-inf") if value is False else float(value)
        except OverflowError:
            raise ApiError(400, "the bias is too large", f"logit_bias[{place}]") from None
        if isinstance(token, str):
            for token_id in model.tokenize(token, add_bos=False):
                biases[token_id] = bias
        else:
            biases[int(token)] = bias
    if len(biases) > MOST_BIASES:
        raise ApiError(
            400,
            f"logit_bias has {len(biases)} tokens; at most {MOST_BIASES} are allowed",
            "logit_bias",
        )
    return biases


def _id_or_text(key: str) -> int | str:
    """A token's id if the key of an object is a number, else the text. Raises: ApiError."""
    if not _ID.fullmatch(key):
        return key
    if len(key) > MOST_DIGITS:
        raise ApiError(400, f"logit_bias has a token id of {len(key)} digits", "logit_bias")
    return int(key)
