"""Clients of rerankers: Cohere's SDK, LiteLLM's providers, LlamaIndex's and LangChain's classes."""

# packages: cohere==5.21.1 litellm==1.110.2 llama-index-postprocessor-tei-rerank==0.6.0
# packages: llama-index-postprocessor-cohere-rerank==0.10.0 langchain-cohere==0.6.0

from __future__ import annotations

from collections.abc import Sequence

import cohere
import litellm
from langchain_cohere import CohereRerank as LangChainRerank
from langchain_core.documents import Document
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.cohere_rerank import CohereRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference
from rows import RERANKER, URL, main, row

# Both work if the reranker is the only model.
UNNAMED = "the client names no model, and the first one is not a reranker"
AS_TEXTS = "Infinity's documents are strings, those of Jina and Cohere objects"
QUERY = "what is a license"
TEXTS = ["Foxes jump over dogs.", "The license applies to any work.", "A notice.", "Dogs sleep."]


def ordered(found: Sequence[tuple[int, float]], count: int) -> None:
    """Check that a client returned ``count`` texts with the best one first."""
    assert len({index for index, _ in found}) == len(found) == count
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)


@row("cohere.ClientV2 rerank")
def _() -> None:
    with cohere.ClientV2("none", base_url=URL) as client:
        made = client.rerank(model=RERANKER, query=QUERY, documents=TEXTS, top_n=3)
    ordered([(one.index, one.relevance_score) for one in made.results], 3)
    assert all(0 <= one.relevance_score <= 1 for one in made.results)
    assert made.id


@row("cohere.Client rerank")
def _() -> None:
    with cohere.Client("none", base_url=URL) as client:
        made = client.rerank(model=RERANKER, query=QUERY, documents=TEXTS, return_documents=True)
    ordered([(one.index, one.relevance_score) for one in made.results], 4)
    assert all(one.document.text == TEXTS[one.index] for one in made.results)


@row("cohere.AsyncClientV2 rerank")
def _() -> None:
    import asyncio

    async def ask() -> None:
        async with cohere.AsyncClientV2("none", base_url=URL) as client:
            made = await client.rerank(model=RERANKER, query=QUERY, documents=TEXTS)
        ordered([(one.index, one.relevance_score) for one in made.results], 4)

    asyncio.run(ask())


def by_litellm(provider: str) -> None:
    made = litellm.rerank(
        model=f"{provider}/{RERANKER}", query=QUERY, documents=TEXTS, top_n=2,
        api_base=URL, api_key="none",
    )  # fmt: skip
    ordered([(one["index"], one["relevance_score"]) for one in made.results], 2)


for _provider, _excused in (
    ("cohere", None), ("jina_ai", None), ("hosted_vllm", None), ("infinity", AS_TEXTS),
    ("huggingface", UNNAMED),
):  # fmt: skip
    row(f"litellm.rerank {_provider}/", excused=_excused)(lambda a=_provider: by_litellm(a))


def nodes() -> list[NodeWithScore]:
    return [NodeWithScore(node=TextNode(text=text), score=0.5) for text in TEXTS]


@row("llama-index TextEmbeddingInference", excused=UNNAMED)
def _() -> None:
    made = TextEmbeddingInference(base_url=URL, top_n=3).postprocess_nodes(nodes(), query_str=QUERY)
    ordered([(TEXTS.index(one.node.text), one.score) for one in made], 3)


@row("llama-index CohereRerank")
def _() -> None:
    ranker = CohereRerank(api_key="none", model=RERANKER, base_url=URL, top_n=3)
    made = ranker.postprocess_nodes(nodes(), query_str=QUERY)
    ordered([(TEXTS.index(one.node.text), one.score) for one in made], 3)


@row("langchain-cohere CohereRerank")
def _() -> None:
    ranker = LangChainRerank(
        cohere_api_key="none", model=RERANKER, base_url=URL, top_n=2, user_agent="x"
    )
    made = ranker.compress_documents([Document(text) for text in TEXTS], QUERY)
    found = [(TEXTS.index(one.page_content), one.metadata["relevance_score"]) for one in made]
    ordered(found, 2)


if __name__ == "__main__":
    main()
