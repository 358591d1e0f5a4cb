"""Log-probabilities of tokens in OpenAI's two forms. All of them are finite, so JSON has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from trinity.server.schemas import encoded

if TYPE_CHECKING:
    from trinity.model import Model
    from trinity.runtime.sampling.logprobs import TokenLogprob

# The value for minus infinity, as in OpenAI's API.
LEAST = -9999.0


class TopLogprob(msgspec.Struct):
    """A token's text, its bytes, and the natural logarithm of its probability."""

    token: str
    logprob: float
    bytes: list[int]
    id: int | UnsetType = UNSET  # llama.cpp's, in chat completions


class ChatLogprob(msgspec.Struct):
    """A token of the answer, and the most probable ones in its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]
    id: int | UnsetType = UNSET


class ChatLogprobs(msgspec.Struct):
    """The log-probabilities of all tokens of a response or chunk."""

    content: list[ChatLogprob]
    refusal: None = None


def finite(logprob: float) -> float:
    """A log-probability that JSON can hold."""
    return logprob if logprob > LEAST else LEAST


def chat_logprobs(
    model: Model, tokens: Iterable[TokenLogprob], *, ids: bool = False
) -> list[ChatLogprob]:
    """Log-probabilities as chat completions have them, each one encoded already.

    With ``ids`` they have the tokens' ids, as in llama.cpp.
    """

    def shown(token: TokenLogprob) -> tuple[str, float, list[int]]:
        return token.text, finite(token.logprob), token_bytes(model, token.token_id)

    def id_of(token: TokenLogprob) -> int | UnsetType:
        return token.token_id if ids else UNSET

    return [
        encoded(
            ChatLogprob(
                *shown(token),
                [TopLogprob(*shown(top), id_of(top)) for top in token.top],
                id_of(token),
            )
        )
        for token in tokens
    ]


def token_bytes(model: Model, token: int) -> list[int]:
    """The bytes of a token, which need be no text by themselves."""
    return list(model.tokenizer.bytes_of(token))
