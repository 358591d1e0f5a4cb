"""Reranking: /v1/rerank in the forms of Jina, TEI and Voyage, Cohere's /v2/rerank, vLLM's /score.

Scores of /v1/rerank are those of ``Model.rank``, as llama.cpp gives them; those of Voyage's form,
Cohere and vLLM are between 0 and 1, as there. TEI is Text Embeddings Inference.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from trinity.runtime.texts import Pairs
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.vectors import AT_ONCE, MOST_TEXTS
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable
from trinity.server.schemas import Body

log = logging.getLogger("trinity.server")

PATHS = ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking")


class DocumentObject(Body):
    """A text in an object."""

    text: str


Document = str | DocumentObject


class RerankRequest(Body):
    """A query, and texts: as ``documents`` in Jina's form and in Voyage's, as ``texts`` in TEI's.

    At most ``top_n`` of them are in the answer. ``return_documents``, or ``return_text`` in TEI's
    form, puts the texts into it. A request with ``top_k`` or ``truncation`` has Voyage's form.
    """

    query: str
    documents: Annotated[list[Document], Meta(min_length=1, max_length=MOST_TEXTS)] | None = None
    texts: Annotated[list[Document], Meta(min_length=1, max_length=MOST_TEXTS)] | None = None
    model: str | None = None
    top_n: Annotated[int, Meta(ge=1)] | None = None
    return_documents: bool = False
    return_text: bool = False
    raw_scores: bool | None = None  # false: between 0 and 1
    top_k: Annotated[int, Meta(ge=1)] | None = None
    truncation: bool | None = None  # false: refuse a text that is too long instead of cutting it

    def has_voyages_form(self) -> bool:
        """Whether the answer has Voyage's form: its clients read no other."""
        return self.texts is None and (self.top_k is not None or self.truncation is not None)

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
    """Tokens of the query with each text. Together AI's clients want ``completion_tokens``."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class VoyageResult(msgspec.Struct):
    """The score of the text at ``index`` of the request, in Voyage's form."""

    index: int
    relevance_score: float
    document: str | msgspec.UnsetType = msgspec.UNSET


class Reranked(msgspec.Struct):
    """The texts, best first: ``results``, or ``data`` in Voyage's form."""

    model: str
    usage: RerankUsage
    results: list[RerankResult] | msgspec.UnsetType = msgspec.UNSET
    data: list[VoyageResult] | msgspec.UnsetType = msgspec.UNSET
    object: Literal["list"] = "list"


class TeiResult(msgspec.Struct):
    """The score of the text at ``index`` of the request, in TEI's form."""

    index: int
    score: float
    text: str | msgspec.UnsetType = msgspec.UNSET


class CohereRequest(Body):
    """The body of Cohere's POST /v2/rerank."""

    query: str
    documents: Annotated[list[Document], Meta(min_length=1, max_length=MOST_TEXTS)]
    model: str | None = None
    top_n: Annotated[int, Meta(ge=1)] | None = None
    max_tokens_per_doc: Ignorable[None] = None


class CohereReranked(msgspec.Struct):
    """The texts, best first, in Cohere's form."""

    id: str
    results: list[RerankResult]
    meta: dict[str, dict[str, str]]


Side = str | Annotated[list[str], Meta(min_length=1, max_length=MOST_TEXTS)]


class ScoreRequest(Body):
    """The body of vLLM's POST /score: one text with each of several, or as many pairs.

    vLLM has three pairs of names for the two texts.
    """

    text_1: Side | None = None
    text_2: Side | None = None
    queries: Side | None = None
    documents: Side | None = None
    data_1: Side | None = None
    data_2: Side | None = None
    model: str | None = None
    use_activation: bool | None = None  # false: the model's own scores
    activation: bool | None = None  # the older name

    def pairs(self) -> list[tuple[str, list[str]]]:
        """Return pairs of a first text and its second texts. Raises: ApiError."""
        sides = (
            (self.text_1, self.text_2), (self.queries, self.documents), (self.data_1, self.data_2)
        )  # fmt: skip
        given = [(first, second) for first, second in sides if first and second]
        if len(given) != 1:
            raise ApiError(400, "give text_1 and text_2", "text_1")
        ((first, second),) = given
        queries = [first] if isinstance(first, str) else first
        texts = [second] if isinstance(second, str) else second
        if len(queries) == 1:
            return [(queries[0], texts)]
        if len(queries) != len(texts):
            raise ApiError(
                400, f"text_1 has {len(queries)} texts and text_2 {len(texts)}; the numbers must "
                "be equal, or text_1 one text", "text_1",
            )  # fmt: skip
        return [(query, [text]) for query, text in zip(queries, texts, strict=True)]


class Score(msgspec.Struct):
    """The score of a pair."""

    index: int
    score: float
    object: Literal["score"] = "score"


class Scores(msgspec.Struct):
    """The scores of all pairs, in vLLM's form."""

    id: str
    created: int
    model: str
    data: list[Score]
    usage: RerankUsage
    object: Literal["list"] = "list"


@dataclass(frozen=True, slots=True)
class Ranking:
    """The scores of pairs; ``by_logits``: whether they are logits, which have no limits."""

    name: str  # of the model
    scores: list[float]
    tokens: int
    by_logits: bool

    def activated(self) -> list[float]:
        """The scores between 0 and 1."""
        if not self.by_logits:
            return self.scores
        scores: list[float] = np.exp(-np.logaddexp(0.0, -np.array(self.scores))).tolist()
        return scores


async def ranking(
    call: Call[RerankRequest] | Call[CohereRequest] | Call[ScoreRequest],
    asked: Sequence[tuple[str, list[str]]],
    *,
    truncate: bool = True,
) -> Ranking:
    """Score each query with its texts. Raises: as ``Model.rank``; ApiError.

    ``truncate``: texts that are too long are cut, with a warning.
    """
    service, total = call.service, sum(len(texts) for _, texts in asked)
    lease = await call.lease(call.body.model)
    with lease as model:

        def read() -> Pairs:
            found = [
                model.embedder.pairs(query, texts, truncate=truncate) for query, texts in asked
            ]
            rows = [row for one in found for row in one.rows]
            seconds = [second for one in found for second in one.seconds]
            starts = np.cumsum([0, *(len(one.rows) for one in found)]).tolist()
            cut = [start + i for one, start in zip(found, starts, strict=False) for i in one.cut]
            return Pairs(rows, seconds, tuple(cut))

        count, most = min(total, AT_ONCE), service.settings.max_queue
        with lease.entering(call.caller.client, count, most):
            pairs = await call.run(read)
        if pairs.cut:
            log.warning("%s: %s", lease.name, model.embedder.cut_notice(pairs.cut, total))
        scores, lora = list[float](), lease.lora_of(call.caller.owner)
        for start in range(0, total, AT_ONCE):
            some = slice(start, start + AT_ONCE)
            part = Pairs(pairs.rows[some], pairs.seconds[some])
            added = await model.embedder.arank_pairs(part, lora=lora, client=call.caller.client)
            scores += added.tolist()
            service.metrics.evaluated(lease.name, sum(map(len, part.rows)))
        by_logits = model.embedder.ranks_by_logits
    return Ranking(lease.name, scores, sum(map(len, pairs.rows)), by_logits)


def order_of(scores: Sequence[float], most: int | None) -> list[int]:
    """The places of the best scores, best first."""
    return sorted(range(len(scores)), key=lambda i: -scores[i])[:most]


async def rerank(call: Call[RerankRequest]) -> ASGI:
    """Rank the texts by their scores."""
    body = call.body
    texts = body.given()
    found = await ranking(call, [(body.query, texts)], truncate=body.truncation is not False)
    usage = RerankUsage(found.tokens, found.tokens)
    if body.has_voyages_form():
        scores, most = found.activated(), body.top_n if body.top_k is None else body.top_k
        data = [
            VoyageResult(i, scores[i], texts[i] if body.return_documents else msgspec.UNSET)
            for i in order_of(scores, most)
        ]
        return await call.run(Json, Reranked(found.name, usage, data=data))
    if body.texts is not None:
        scores = found.activated() if body.raw_scores is False else found.scores
        listed = [
            TeiResult(i, scores[i], texts[i] if body.return_text else msgspec.UNSET)
            for i in order_of(scores, body.top_n)
        ]
        return await call.run(Json, listed)
    results = [
        RerankResult(
            i, found.scores[i], RerankedText(texts[i]) if body.return_documents else msgspec.UNSET
        )
        for i in order_of(found.scores, body.top_n)
    ]
    return await call.run(Json, Reranked(found.name, usage, results))


async def cohere_rerank(call: Call[CohereRequest]) -> ASGI:
    """Rank the texts by their scores, which are between 0 and 1."""
    body = call.body
    texts = [x if isinstance(x, str) else x.text for x in body.documents]
    scores = (await ranking(call, [(body.query, texts)])).activated()
    results = [RerankResult(i, scores[i]) for i in order_of(scores, body.top_n)]
    made = CohereReranked(secrets.token_hex(16), results, {"api_version": {"version": "2"}})
    return await call.run(Json, made)


async def score(call: Call[ScoreRequest]) -> ASGI:
    """Score pairs of texts, in their order."""
    body = call.body
    found = await ranking(call, body.pairs())
    scores = found.scores if False in (body.use_activation, body.activation) else found.activated()
    made = Scores(
        f"score-{secrets.token_hex(16)}", int(time.time()), found.name,
        [Score(i, value) for i, value in enumerate(scores)],
        RerankUsage(found.tokens, found.tokens),
    )  # fmt: skip
    return await call.run(Json, made)


ENDPOINTS = (
    *(
        Endpoint(
            "POST", path, rerank,
            "Texts in the order in which they answer a query, by a reranker.",
            body=RerankRequest, answer=Reranked | list[TeiResult],
        )
        for path in PATHS
    ),
    Endpoint(
        "POST", "/v2/rerank", cohere_rerank, "Reranking in Cohere's form.",
        body=CohereRequest, answer=CohereReranked,
    ),
    *(
        Endpoint(
            "POST", path, score, "Scores of pairs of texts by a reranker, in vLLM's form.",
            body=ScoreRequest, answer=Scores,
        )
        for path in ("/score", "/v1/score")
    ),
)  # fmt: skip
