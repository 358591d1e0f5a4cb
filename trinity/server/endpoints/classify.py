"""Classification of texts in vLLM's form: POST /classify."""

from __future__ import annotations

import logging
import secrets
import time
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from trinity.runtime.texts import Texts
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.sampling import Priority
from trinity.server.endpoints.vectors import AT_ONCE, MOST_TEXTS
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable
from trinity.server.schemas import Body

log = logging.getLogger("trinity.server")

Token = Annotated[int, Meta(ge=0)]
MOST_NUMBERS = 1 << 18  # of the probabilities in a response


class ClassifyRequest(Body):
    """A text or several, or the token ids of one or of several.

    ``use_activation`` false: logits instead of probabilities; ``activation`` is its older name.
    """

    input: (
        str
        | Annotated[
            list[str | Token | Annotated[list[Token], Meta(min_length=1)]],
            Meta(min_length=1, max_length=1 << 20),
        ]
    )
    model: str | None = None
    use_activation: bool | None = None
    activation: bool | None = None
    priority: Ignorable[Priority | None] = None
    user: Ignorable[str | None] = None

    def texts(self) -> list[str | list[int]]:
        """Each text or its token ids. Raises: ApiError."""
        if isinstance(self.input, str):
            return [self.input]
        ids = [part for part in self.input if isinstance(part, int)]
        if len(ids) == len(self.input):
            return [ids]
        texts = [part for part in self.input if not isinstance(part, int)]
        if ids:
            raise ApiError(400, "input: token ids and texts are mixed", "input")
        if len(texts) > MOST_TEXTS:
            raise ApiError(
                400, f"input has {len(texts)} texts; 1 to {MOST_TEXTS} are allowed", "input"
            )
        return texts


class Classification(msgspec.Struct):
    """The most probable label of a text, and the probabilities of all labels in their order."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class ClassifyUsage(msgspec.Struct):
    """Tokens of all texts."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: None = None


class Classifications(msgspec.Struct):
    """The classifications of all texts, in vLLM's form."""

    id: str
    created: int
    model: str
    data: list[Classification]
    usage: ClassifyUsage
    object: Literal["list"] = "list"


async def classify(call: Call[ClassifyRequest]) -> ASGI:
    """Classify texts."""
    body, service = call.body, call.service
    texts = body.texts()
    raw = False in (body.use_activation, body.activation)
    lease = await call.lease(body.model)
    with lease as model:
        embedder = model.embedder

        def read() -> Texts:
            return embedder.read_classified(texts)

        if len(texts) * len(embedder.labels) > MOST_NUMBERS:
            raise ApiError(
                400, f"input has {len(texts)} texts; with {len(embedder.labels)} labels "
                f"{MOST_NUMBERS // len(embedder.labels)} are allowed", "input",
            )  # fmt: skip
        count, most = min(len(texts), AT_ONCE), service.settings.max_queue
        with lease.entering(call.caller.client, count, most):
            whole = await call.run(read)
        if whole.cut:
            log.warning("%s: %s", lease.name, embedder.cut_notice(whole.cut, len(texts)))
        lora, parts = lease.lora_of(call.caller.owner), []
        for start in range(0, len(texts), AT_ONCE):
            part = whole._replace(rows=whole.rows[start : start + AT_ONCE])
            parts.append(
                await embedder.aclassify_texts(part, raw=raw, lora=lora, client=call.caller.client)
            )
            service.metrics.evaluated(lease.name, sum(map(len, part.rows)))
        labels = embedder.labels
    tokens = sum(map(len, whole.rows))

    def written() -> Json:
        data = [
            Classification(i, labels[int(row.argmax())], row.tolist(), len(labels))
            for i, row in enumerate(np.concatenate(parts))
        ]
        return Json(
            Classifications(
                f"classify-{secrets.token_hex(16)}", int(time.time()), lease.name, data,
                ClassifyUsage(tokens, tokens),
            )
        )  # fmt: skip

    return await call.run(written)


ENDPOINTS = tuple(
    Endpoint(
        "POST", path, classify, "Labels of texts by a classifier, in vLLM's form.",
        body=ClassifyRequest, answer=Classifications,
    )
    for path in ("/classify", "/v1/classify")
)  # fmt: skip
