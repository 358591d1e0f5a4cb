"""Chroma's and Mem0's clients of Ollama's and OpenAI's APIs."""

# packages: chromadb==1.5.9 mem0ai==2.2.1 ollama==0.6.3 openai==3.57.0

from __future__ import annotations

import os
from typing import Any

os.environ |= {"OPENAI_API_KEY": "none", "MEM0_TELEMETRY": "False", "ANONYMIZED_TELEMETRY": "False"}

import chromadb
from chromadb.utils.embedding_functions import (
    OllamaEmbeddingFunction,
    OpenAIEmbeddingFunction,
)
from mem0.configs.embeddings.base import BaseEmbedderConfig
from mem0.configs.llms.ollama import OllamaConfig
from mem0.configs.llms.openai import OpenAIConfig
from mem0.embeddings.ollama import OllamaEmbedding
from mem0.embeddings.openai import OpenAIEmbedding
from mem0.llms.ollama import OllamaLLM
from mem0.llms.openai import OpenAILLM
from rows import CHAT, EMBEDDER, URL, main, row

TEXTS = ["The cat sleeps on the sofa.", "Parliament passed the budget."]
HELLO = [{"role": "user", "content": "Say hello."}]


def nearest(function: Any, name: str) -> None:
    """The text about a cat is found by a question about an animal."""
    collection = chromadb.EphemeralClient().create_collection(name, embedding_function=function)
    collection.add(ids=["a", "b"], documents=TEXTS)
    found = collection.query(query_texts=["Where is the pet?"], n_results=1)
    assert (found["documents"] or [])[0] == TEXTS[:1]


@row("chromadb OllamaEmbeddingFunction")
def _() -> None:
    nearest(OllamaEmbeddingFunction(url=URL, model_name=EMBEDDER), "by-ollama")


@row("chromadb OpenAIEmbeddingFunction + collection query")
def _() -> None:
    function = OpenAIEmbeddingFunction(
        api_key="none", api_base=f"{URL}/v1", model_name=EMBEDDER, api_key_env_var="OPENAI_API_KEY"
    )
    nearest(function, "by-openai")


@row("mem0 OllamaEmbedding embedder")
def _() -> None:
    config = BaseEmbedderConfig(model=EMBEDDER, ollama_base_url=URL, embedding_dims=384)
    assert len(OllamaEmbedding(config).embed("Hello")) == 384


@row("mem0 OllamaLLM")
def _() -> None:
    config = OllamaConfig(model=CHAT, ollama_base_url=URL, max_tokens=12)
    assert OllamaLLM(config).generate_response(HELLO)


@row("mem0 OpenAI embedder and LLM")
def _() -> None:
    config = BaseEmbedderConfig(
        model=EMBEDDER, openai_base_url=f"{URL}/v1", api_key="none", embedding_dims=384
    )
    assert len(OpenAIEmbedding(config).embed("Hello")) == 384
    settings = OpenAIConfig(model=CHAT, openai_base_url=f"{URL}/v1", api_key="none", max_tokens=12)
    assert OpenAILLM(settings).generate_response(HELLO)


if __name__ == "__main__":
    main()
