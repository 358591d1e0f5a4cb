"""Texts, tokens and chat templates in the forms of llama.cpp and vLLM: /tokenize and others."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from trinity.conversation.prompt import ChatPrompt
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.messages import (
    Message,
    continued,
    messages_of,
)
from trinity.server.endpoints.tools import toolbox
from trinity.server.errors import LLAMA, ApiError
from trinity.server.ignored import Ignored
from trinity.server.job import ChatJob
from trinity.server.prepared import chat_prompt
from trinity.server.schemas import Body, encoded_list, encoded_text


class TokenizeRequest(Body):
    """A text: llama.cpp's ``content`` or vLLM's ``prompt``.

    ``add_special`` and ``add_special_tokens`` add BOS and EOS if the model's file asks for them;
    ``content`` is tokenized without them by default, ``prompt`` with them. ``with_pieces`` gives
    the text of each token, ``return_token_strs`` its entry in the vocabulary.
    """

    content: str | None = None
    prompt: str | None = None
    model: str | None = None
    add_special: bool = False
    add_special_tokens: bool = True
    parse_special: bool = True
    with_pieces: bool = False
    return_token_strs: bool = False

    def text(self) -> tuple[str, bool]:
        """The text, and whether to add BOS and EOS. Raises: ApiError."""
        if self.prompt is not None and self.content is None:
            return self.prompt, self.add_special_tokens
        if self.content is None:
            raise ApiError(400, "content is missing", "content")
        return self.content, self.add_special


class TokenPiece(msgspec.Struct):
    """A token and its text, or its bytes if they are not text."""

    id: int
    piece: str | list[int]


class Tokens(msgspec.Struct, omit_defaults=True):
    """The tokens of a text. The other fields are vLLM's; they answer a ``prompt``."""

    tokens: list[int | TokenPiece]
    count: int | None = None
    max_model_len: int | None = None
    token_strs: list[str] | None = None


class DetokenizeRequest(Body):
    """The body of a request that converts tokens to text."""

    tokens: list[int]
    model: str | None = None


class Content(msgspec.Struct):
    """The text of tokens, under the names that llama.cpp (``content``) and vLLM give it."""

    content: str
    prompt: str


class TemplateRequest(Body):
    """The body of a request that renders a conversation with the chat template."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    def job(self, ignored: Ignored) -> ChatJob:
        """The conversation. Raises: ApiError."""
        continues = continued(
            self.messages, self.add_generation_prompt, self.continue_final_message
        )
        return ChatJob(
            messages_of(ignored, self.messages, continues=continues),
            tools=toolbox(ignored, self.tools, None).functions,
            variables=self.chat_template_kwargs or {},
            add_generation_prompt=self.add_generation_prompt is not False or continues,
            continues=continues,
        )


class PromptText(msgspec.Struct):
    """A conversation as the model reads it."""

    prompt: str


class TokenCount(msgspec.Struct):
    """The number of tokens of a conversation."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


async def tokenize(call: Call[TokenizeRequest]) -> ASGI:
    """The tokens of a text."""
    body = call.body
    text, special = body.text()
    with await call.lease(body.model) as model:

        def tokens() -> Tokens:
            ids = model.tokenize(text, add_bos=special, parse_special=body.parse_special)
            if body.content is None:
                answer = Tokens(encoded_list(ids), len(ids), model.context_length)
                if body.return_token_strs:
                    answer.token_strs = encoded_list(map(model.tokenizer.token_text, ids))
                return answer
            if not body.with_pieces:
                return Tokens(encoded_list(ids))
            stream = model.tokenizer.stream(skip_special=False)
            return Tokens(
                encoded_list(
                    TokenPiece(token_id, _piece(stream.bytes_of(token_id))) for token_id in ids
                )
            )

        return await call.run(lambda: Json(tokens()))


async def detokenize(call: Call[DetokenizeRequest]) -> ASGI:
    """Return the text of tokens."""
    with await call.lease(call.body.model) as model:

        def text() -> Any:
            return encoded_text(model.detokenize(call.body.tokens, remove_special=False))

        def content() -> Content:
            shown = text()
            return Content(shown, shown)

        return await call.run(lambda: Json(content()))


async def apply_template(call: Call[TemplateRequest]) -> ASGI:
    """A conversation as the model reads it."""
    prompt = await prompt_of(call)
    return await call.run(lambda: Json(PromptText(encoded_text(prompt.text))))


async def input_tokens(call: Call[TemplateRequest]) -> ASGI:
    """Count the tokens of a conversation."""
    return Json(TokenCount(len((await prompt_of(call)).ids)))


async def prompt_of(call: Call[TemplateRequest]) -> ChatPrompt:
    """A conversation as the model reads it. Raises: ApiError."""
    settings = call.service.prompts
    with await call.lease(call.body.model) as model:
        job = await call.run(call.body.job, call.ignored)
        return await call.run(chat_prompt, call.ignored, model, job, settings)


def _piece(data: bytes) -> str | list[int]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)


ENDPOINTS = (
    Endpoint(
        "POST", "/tokenize", tokenize, "The tokens of a text.", body=TokenizeRequest, answer=Tokens,
        family=LLAMA,
    ),
    Endpoint(
        "POST", "/detokenize", detokenize, "The text of tokens.", body=DetokenizeRequest,
        answer=Content, family=LLAMA,
    ),
    Endpoint(
        "POST", "/apply-template", apply_template, "A conversation as the model reads it.",
        body=TemplateRequest, answer=PromptText, family=LLAMA,
    ),
    *(
        Endpoint(
            "POST", path, input_tokens, "How many tokens a conversation has.",
            body=TemplateRequest, answer=TokenCount,
        )
        for path in ("/v1/chat/completions/input_tokens", "/chat/completions/input_tokens")
    ),
)  # fmt: skip
