"""OpenAI's Responses API: POST /v1/responses, in the background or not, and earlier responses."""

from __future__ import annotations

from trinity.server.endpoint import Endpoint
from trinity.server.endpoints.responses import background, stored
from trinity.server.endpoints.responses.answer import InputTokens, Response, StreamEvent
from trinity.server.endpoints.responses.create import input_tokens, responses
from trinity.server.endpoints.responses.request import ResponsesRequest

ENDPOINTS = (
    *(
        Endpoint(
            "POST", path, responses, "Answer a conversation.",
            body=ResponsesRequest, answer=Response, event=StreamEvent, generates=True,
        )
        for path in ("/v1/responses", "/responses")
    ),
    *(
        Endpoint(
            "POST", path, input_tokens, "How many tokens the conversation of a response has.",
            body=ResponsesRequest, answer=InputTokens,
        )
        for path in ("/v1/responses/input_tokens", "/responses/input_tokens")
    ),
    *stored.ENDPOINTS,
    *background.ENDPOINTS,
)  # fmt: skip
