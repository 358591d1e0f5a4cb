"""LlamaIndex's models and embeddings for Ollama."""

# packages: llama-index-llms-ollama==0.11.0 llama-index-embeddings-ollama==0.10.0

from __future__ import annotations

from typing import Any

from llama_index.core.llms import ChatMessage
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.ollama import OllamaEmbedding
from llama_index.llms.ollama import Ollama
from rows import CHAT, EMBEDDER, SCRIPTED, SCRIPTED_URL, URL, main, row

SHORT = {"num_predict": 12}
HELLO = [ChatMessage(role="user", content="Say hello.")]


def model(name: str = CHAT, **options: Any) -> Ollama:
    """A model with the client's defaults."""
    url = SCRIPTED_URL if name == SCRIPTED else URL
    more = {} if name == SCRIPTED else {"additional_kwargs": SHORT}
    return Ollama(model=name, base_url=url, request_timeout=300, **more, **options)


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return "18 degrees"


@row("complete")
def _() -> None:
    assert model().complete("Say hello.").text


@row("chat")
def _() -> None:
    assert model().chat(HELLO).message.content


@row("stream_chat")
def _() -> None:
    pieces = list(model().stream_chat(HELLO))
    assert "".join(one.delta or "" for one in pieces) == pieces[-1].message.content


@row("stream_complete")
def _() -> None:
    pieces = list(model().stream_complete("Say hello."))
    assert "".join(one.delta or "" for one in pieces) == pieces[-1].text


@row("chat_with_tools")
def _() -> None:
    tools = [FunctionTool.from_defaults(get_weather)]
    llm = model(SCRIPTED)
    answer = llm.chat_with_tools(tools, user_msg="What is the weather in Paris?")
    (call,) = llm.get_tool_calls_from_response(answer)
    assert (call.tool_name, call.tool_kwargs) == ("get_weather", {"city": "Paris"})


@row("predict_and_call")
def _() -> None:
    tools = [FunctionTool.from_defaults(get_weather)]
    answer = model(SCRIPTED).predict_and_call(tools, user_msg="What is the weather in Paris?")
    assert answer.response == "18 degrees"


@row("context_window=8000 (sets num_ctx)")
def _() -> None:
    assert model(context_window=8000).chat(HELLO).message.content


@row("embeddings: get_text_embedding_batch")
def _() -> None:
    found = OllamaEmbedding(model_name=EMBEDDER, base_url=URL).get_text_embedding_batch(
        ["Hello", "War and peace"]
    )
    assert [len(one) for one in found] == [384, 384]


@row("embeddings: a default chunk (1024 tokens) of a document into MiniLM")
def _() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 400
    chunks = SentenceSplitter().split_text(text)
    found = OllamaEmbedding(model_name=EMBEDDER, base_url=URL).get_text_embedding_batch(chunks)
    assert len(found) == len(chunks) > 1


if __name__ == "__main__":
    main()
