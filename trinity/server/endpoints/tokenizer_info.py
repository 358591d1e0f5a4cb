"""GET /tokenizer_info: what vLLM's clients must know to tokenize by the server.

lm-evaluation-harness uses it with /tokenize if no tokenizer is given (its ``RemoteTokenizer``).
"""

from __future__ import annotations

from typing import Any

import msgspec

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.schemas import ModelQuery
from trinity.tokenizers.tokenizer import Tokenizer


class TokenizerInfo(msgspec.Struct):
    """The entries of Hugging Face's tokenizer_config.json that a GGUF file has too."""

    bos_token: str | None
    eos_token: str | None
    chat_template: str | None
    model_max_length: int


async def tokenizer_info(call: Call[Any]) -> ASGI:
    """The special tokens, chat template and context length of a model, by default the first."""
    with await call.lease(call.query.model) as model:
        templates = model.chat_templates
        return Json(
            TokenizerInfo(
                _text(model.tokenizer, model.tokenizer.bos_id),
                _text(model.tokenizer, model.tokenizer.eos_id),
                templates[0].text if templates else None,
                model.context_length,
            )
        )


def _text(tokenizer: Tokenizer, token: int | None) -> str | None:
    return None if token is None else tokenizer.token_text(token)


ENDPOINTS = (
    Endpoint(
        "GET", "/tokenizer_info", tokenizer_info,
        "Special tokens and chat template of a model, in vLLM's form.",
        answer=TokenizerInfo, query=ModelQuery,
    ),
)  # fmt: skip
