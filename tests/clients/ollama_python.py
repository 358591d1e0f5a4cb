"""The official ollama package for Python."""

# packages: ollama==0.6.3

from __future__ import annotations

import asyncio
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import ollama
from pydantic import BaseModel
from rows import CHAT, DEMO, EMBEDDER, SCRIPTED, SCRIPTED_URL, URL, main, row

DEMO_FILE = Path(__file__).parents[2] / "trinity" / "data" / "demo-chat.gguf"
client = ollama.Client(host=URL)
scripted = ollama.Client(host=SCRIPTED_URL)
HELLO: Any = [{"role": "user", "content": "Say hello."}]
SHORT: Any = {"num_predict": 12, "temperature": 0}
ENOUGH: Any = {"num_predict": 200, "temperature": 0}
QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris?"}]


class Person(BaseModel):
    """A form of answers."""

    name: str
    age: int


def get_weather(city: str) -> str:
    """Get the weather of a city.

    Args:
        city: The city.
    """
    return f"18 degrees in {city}"


def refused(status: int, words: str, run: Any) -> None:
    """Check that a call fails as Ollama's does."""
    found = None
    try:
        run()
    except ollama.ResponseError as error:
        found = error
    assert found is not None, "it was accepted"
    assert found.status_code == status, found
    assert words in found.error, found


@row("chat")
def _() -> None:
    answer = client.chat(CHAT, HELLO, options=SHORT)
    assert answer.message.content
    assert answer.done
    assert answer.prompt_eval_count
    assert answer.eval_count
    assert answer.eval_duration


@row("chat stream")
def _() -> None:
    whole = client.chat(CHAT, HELLO, options=SHORT).message.content
    pieces = list(client.chat(CHAT, HELLO, options=SHORT, stream=True))
    assert "".join(one.message.content or "" for one in pieces) == whole
    assert [one.done for one in pieces] == [False] * (len(pieces) - 1) + [True]


@row("chat format json")
def _() -> None:
    ask: Any = [{"role": "user", "content": "A person as JSON with a name."}]
    answer = client.chat(CHAT, ask, format="json", options={**ENOUGH, "num_predict": 2000})
    if answer.done_reason == "stop":
        assert isinstance(json.loads(answer.message.content or ""), dict)
    assert (answer.message.content or "").lstrip().startswith("{")


@row("chat format schema (pydantic)")
def _() -> None:
    ask: Any = [{"role": "user", "content": "Tom is 30 years old. Answer as JSON."}]
    answer = client.chat(CHAT, ask, format=Person.model_json_schema(), options=ENOUGH)
    assert Person.model_validate_json(answer.message.content or "").age >= 0


@row("chat tools (python function)")
def _() -> None:
    answer = scripted.chat(SCRIPTED, QUESTION, tools=[get_weather])
    (call,) = answer.message.tool_calls or ()
    assert (call.function.name, call.function.arguments) == ("get_weather", {"city": "Paris"})


@row("chat tools: result sent back, tool message with tool_name")
def _() -> None:
    first = scripted.chat(SCRIPTED, QUESTION, tools=[get_weather])
    result = {"role": "tool", "tool_name": "get_weather", "content": get_weather("Paris")}
    second = scripted.chat(SCRIPTED, [*QUESTION, first.message, result], tools=[get_weather])
    assert second.message.content == "It is 18 degrees in Paris."


@row("chat: assistant Message object re-sent")
def _() -> None:
    first = client.chat(CHAT, HELLO, options=SHORT)
    second = client.chat(CHAT, [*HELLO, first.message, *HELLO], options=SHORT)
    assert (second.prompt_eval_count or 0) > (first.prompt_eval_count or 0)


@row("chat think=False")
def _() -> None:
    assert client.chat(CHAT, HELLO, think=False, options=SHORT).message.content


@row("chat think=True (not a thinker; Ollama: 400 does not support thinking)")
def _() -> None:
    refused(400, "does not support thinking", partial(client.chat, CHAT, HELLO, think=True))


for value in ("5m", -1):
    name = f"chat keep_alive={value!r}"
    row(name)(partial(client.chat, CHAT, HELLO, keep_alive=value, options=SHORT))


@row("generate keep_alive=0 without prompt (unload: `ollama stop`)")
def _() -> None:
    client.chat(DEMO, HELLO, options=SHORT)
    assert DEMO in [one.model for one in client.ps().models]
    answer = client.generate(DEMO, keep_alive=0)
    assert answer.done_reason == "unload"
    assert client.chat(DEMO, HELLO, options=SHORT).message.content


@row("chat logprobs")
def _() -> None:
    answer = client.chat(CHAT, HELLO, logprobs=True, top_logprobs=2, options=SHORT)
    assert len(answer.logprobs or ()) == answer.eval_count
    assert all(len(one.top_logprobs or ()) == 2 for one in answer.logprobs or ())


OPTIONS: dict[str, Any] = {
    "num_ctx": 2048, "num_gpu": 99, "num_thread": 2, "main_gpu": 0, "use_mmap": True,
    "use_mlock": True, "num_keep": 4, "seed": 1, "top_k": 40, "top_p": 0.9, "tfs_z": 1.0,
    "typical_p": 1.0, "repeat_last_n": 64, "repeat_penalty": 1.1, "presence_penalty": 0.0,
    "frequency_penalty": 0.0, "mirostat": 0, "mirostat_eta": 0.1, "penalize_newline": True,
    "stop": ["\n"], "low_vram": False, "embedding_only": False, "numa": False, "min_p": 0.05,
    "num_batch": 512, "f16_kv": True, "vocab_only": False, "logits_all": False,
    "mirostat_tau": 5.0, "num_ctx_big": 32768,
}  # fmt: skip


def with_option(name: str, value: Any) -> None:
    """An answer with an option."""
    name = "num_ctx" if name == "num_ctx_big" else name
    answer = client.chat(CHAT, HELLO, options={**SHORT, name: value})
    assert answer.eval_count


for name, value in OPTIONS.items():
    row(f"option {name}={value}")(partial(with_option, name, value))


@row("generate")
def _() -> None:
    assert client.generate(CHAT, "Say hello.", options=SHORT).response


@row("generate stream")
def _() -> None:
    whole = client.generate(CHAT, "Say hello.", options=SHORT).response
    pieces = client.generate(CHAT, "Say hello.", options=SHORT, stream=True)
    assert "".join(one.response for one in pieces) == whole


@row("generate context round trip")
def _() -> None:
    first = client.generate(CHAT, "My name is Tom.", options=SHORT)
    assert first.context
    second = client.generate(CHAT, "What is my name?", context=first.context, options=SHORT)
    assert list(second.context or ())[: len(first.context)] == list(first.context)
    assert (second.prompt_eval_count or 0) > len(first.context)


@row("generate system=")
def _() -> None:
    plain = client.generate(CHAT, "Say hello.", options=SHORT)
    told = client.generate(CHAT, "Say hello.", system="You are a pirate " * 9, options=SHORT)
    assert told.prompt_eval_count != plain.prompt_eval_count


@row("generate template=")
def _() -> None:
    answer = client.generate(CHAT, "Paris", template="{{ .Prompt }} is", options=SHORT)
    raw = client.generate(CHAT, "Paris is", raw=True, options=SHORT)
    assert answer.response == raw.response


@row("generate suffix=")
def _() -> None:
    ask = partial(client.generate, CHAT, "def f():", suffix="return 1", options=SHORT)
    refused(400, "does not support insert", ask)


@row("generate raw")
def _() -> None:
    assert client.generate(CHAT, "The capital of France is", raw=True, options=SHORT).response


@row("generate raw with system='' template=''")
def _() -> None:
    ask = partial(client.generate, CHAT, "The capital of France is", raw=True, options=SHORT)
    assert ask(system="", template="").response == ask().response


@row("generate images=[] / chat images=[]")
def _() -> None:
    assert client.generate(CHAT, "Say hello.", images=[], options=SHORT).response
    asked: Any = [{**HELLO[0], "images": []}]
    assert client.chat(CHAT, asked, options=SHORT).message.content


@row("generate format schema")
def _() -> None:
    schema = Person.model_json_schema()
    answer = client.generate(CHAT, "Tom is 30. As JSON:", format=schema, options=ENOUGH)
    Person.model_validate_json(answer.response)


def length(vector: Any) -> float:
    """Euclidean length."""
    return math.sqrt(sum(x * x for x in vector))


@row("embed one")
def _() -> None:
    (vector,) = client.embed(EMBEDDER, "Hello").embeddings
    assert abs(length(vector) - 1) < 1e-4


@row("embed several")
def _() -> None:
    one, two = client.embed(EMBEDDER, ["Hello", "War and peace"]).embeddings
    assert one == client.embed(EMBEDDER, "Hello").embeddings[0]
    assert one != two


@row("embed truncate=True")
def _() -> None:
    assert client.embed(EMBEDDER, "Hello", truncate=True).embeddings


LONG = "The quick brown fox jumps over the lazy dog. " * 300


@row("embed truncate=True, too long")
def _() -> None:
    (vector,) = client.embed(EMBEDDER, LONG, truncate=True).embeddings
    assert vector == client.embed(EMBEDDER, LONG).embeddings[0]
    refused(400, "", partial(client.embed, EMBEDDER, LONG, truncate=False))


@row("embed dimensions=")
def _() -> None:
    (vector,) = client.embed(EMBEDDER, "Hello", dimensions=64).embeddings
    assert len(vector) == 64
    assert abs(length(vector) - 1) < 1e-4


@row("embed options num_ctx")
def _() -> None:
    assert client.embed(EMBEDDER, "Hello", options={"num_ctx": 2048}).embeddings


@row("embed keep_alive")
def _() -> None:
    assert client.embed(EMBEDDER, "Hello", keep_alive="5m").embeddings


@row("embed empty list")
def _() -> None:
    assert client.embed(EMBEDDER, []).embeddings == []


@row("embeddings (old)")
def _() -> None:
    old = client.embeddings(EMBEDDER, "Hello").embedding
    new = client.embed(EMBEDDER, "Hello").embeddings[0]
    assert max(abs(a - b) for a, b in zip(old, new, strict=True)) < 1e-6


@row("list")
def _() -> None:
    names = [one.model for one in client.list().models]
    assert {CHAT, DEMO, EMBEDDER} <= set(names)


@row("show")
def _() -> None:
    found = client.show(CHAT)
    info = found.modelinfo or {}
    assert info["general.architecture"] == "llama"
    assert info["llama.context_length"]
    assert "completion" in (found.capabilities or ())
    assert "embedding" in (client.show(EMBEDDER).capabilities or ())


@row("ps")
def _() -> None:
    client.chat(CHAT, HELLO, options=SHORT)
    assert CHAT in [one.model for one in client.ps().models]


@row("pull stream")
def _() -> None:
    assert [one.status for one in client.pull(CHAT, stream=True)][-1] == "success"
    assert client.pull(CHAT).status == "success"
    refused(400, "is not on the Hugging Face hub", partial(client.pull, "nope"))


@row("create from existing, copy, delete")
def _() -> None:
    system, options = "You are Mario.", ollama.Options(temperature=0.5, stop=["###"], num_ctx=1024)
    made = client.create("mario", from_=CHAT, system=system, parameters=options, messages=HELLO)
    assert made.status == "success"
    *_, last = client.create("mario", from_=CHAT, system=system, stream=True)
    assert last.status == "success"
    assert client.chat("mario", HELLO, options=SHORT).message.content
    assert client.copy("mario", "luigi").status == "success"
    assert {"mario", "luigi"} <= {one.model for one in client.list().models}
    for name in ("mario", "luigi"):
        assert client.delete(name).status == "success"
    refused(404, "not found", partial(client.chat, "mario", HELLO))
    refused(403, "store of created models", partial(client.delete, CHAT))


@row("create from a blob")
def _() -> None:
    digest = client.create_blob(DEMO_FILE)
    assert client.create("blob/demo", files={"demo.gguf": digest}).status == "success"
    assert client.chat("blob/demo", HELLO, options=SHORT).message.content
    assert client.delete("blob/demo").status == "success"


@row("delete unknown -> 404 ResponseError")
def _() -> None:
    refused(404, "not found", partial(client.delete, "nope"))


@row("chat unknown model -> 404 with 'not found'")
def _() -> None:
    refused(404, "not found", partial(client.chat, "nope", HELLO))


@row("async chat stream")
def _() -> None:
    async def run() -> str:
        asking = ollama.AsyncClient(host=URL)
        pieces = await asking.chat(CHAT, HELLO, options=SHORT, stream=True)
        return "".join([one.message.content or "" async for one in pieces])

    assert asyncio.run(run()) == client.chat(CHAT, HELLO, options=SHORT).message.content


@row("chat of a model with :latest")
def _() -> None:
    assert client.chat(f"{CHAT}:latest", HELLO, options=SHORT).message.content


@row("demo chat")
def _() -> None:
    assert client.chat(DEMO, HELLO, options=SHORT).message.content


@row("long prompt beyond context (Ollama cuts)")
def _() -> None:
    long: Any = [{"role": "user", "content": LONG * 4}]
    answer = client.chat(DEMO, long, options=SHORT)
    assert answer.eval_count
    turns: Any = [{"role": "user", "content": LONG}, {"role": "assistant", "content": "Yes."}]
    answer = client.chat(DEMO, [*turns, *turns, *HELLO], options=SHORT)
    plain = client.chat(DEMO, HELLO, options=SHORT)
    assert answer.prompt_eval_count == plain.prompt_eval_count


if __name__ == "__main__":
    main()
