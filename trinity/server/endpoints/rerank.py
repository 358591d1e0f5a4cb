"""Reranking: POST /v1/rerank, in the form of Jina, Cohere and llama.cpp.

Scores are those of ``Model.rank``, as llama.cpp gives them.
"""

from __future__ import annotations

import logging
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trinity.runtime.texts import Pairs
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.vectors import AT_ONCE, MOST_TEXTS
from trinity.server.errors import ApiError
from trinity.server.schemas import Body

log = logging.getLogger("trinity.server")

PATHS = ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking")


class DocumentObject(Body):
    """A text in an object."""

    text: str


Document = str | DocumentObject


class RerankRequest(Body):
    """A query, and texts under either name; ``top_n`` of them at most are in the answer.

    ``return_documents`` puts the texts into it.
    """

    query: str
    documents: Annotated[list[Document], Meta(min_length=1, max_length=MOST_TEXTS)] | None = None
    texts: Annotated[list[Document], Meta(min_length=1, max_length=MOST_TEXTS)] | None = None
    model: str | None = None
    top_n: Annotated[int, Meta(ge=1)] | None = None
    return_documents: bool = False

    def given(self) -> list[str]:
        """The texts. Raises: ApiError for none, and for two lists."""
        if (self.documents is None) == (self.texts is None):
            raise ApiError(400, "give the texts as documents (or as texts)", "documents")
        documents = self.documents if self.documents is not None else self.texts
        return [x if isinstance(x, str) else x.text for x in documents or ()]


class RerankedText(msgspec.Struct):
    """A text of the answer."""

    text: str


class RerankResult(msgspec.Struct):
    """The score of the text at ``index`` of the request."""

    index: int
    relevance_score: float
    document: RerankedText | msgspec.UnsetType = msgspec.UNSET


class RerankUsage(msgspec.Struct):
    """Tokens of the query with each text."""

    prompt_tokens: int
    total_tokens: int


class Reranked(msgspec.Struct):
    """The texts, best first."""

    model: str
    results: list[RerankResult]
    usage: RerankUsage
    object: Literal["list"] = "list"


async def rerank(call: Call[RerankRequest]) -> ASGI:
    """Rank the texts by their scores."""
    body, service = call.body, call.service
    texts = body.given()
    lease = await call.lease(body.model)
    with lease as model:
        count, most = min(len(texts), AT_ONCE), service.settings.max_queue
        with lease.entering(call.caller.client, count, most):
            pairs = await call.run(model.embedder.pairs, body.query, texts)
        if pairs.cut:
            log.warning("%s: %s", lease.name, model.embedder.cut_notice(pairs.cut, len(texts)))
        scores, lora = list[float](), lease.lora_of(call.caller.owner)
        for start in range(0, len(texts), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            part = Pairs(pairs.rows[some], pairs.seconds[some])
            added = await model.embedder.arank_pairs(part, lora=lora, client=call.caller.client)
            scores += added.tolist()
            service.metrics.evaluated(lease.name, sum(map(len, part.rows)))
    order = sorted(range(len(texts)), key=lambda i: -scores[i])[: body.top_n]
    results = [
        RerankResult(
            i, scores[i], RerankedText(texts[i]) if body.return_documents else msgspec.UNSET
        )
        for i in order
    ]
    tokens = sum(map(len, pairs.rows))
    return await call.run(Json, Reranked(lease.name, results, RerankUsage(tokens, tokens)))


ENDPOINTS = tuple(
    Endpoint(
        "POST", path, rerank,
        "Texts in the order in which they answer a query, by a reranker.",
        body=RerankRequest, answer=Reranked,
    )
    for path in PATHS
)  # fmt: skip
