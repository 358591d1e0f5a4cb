"""JSON bodies that are large, deep or odd."""

from __future__ import annotations

import gzip
import itertools
import json

from tests.soak.attacks.target import CHAT, Target, attack
from trinity.server.transport.compressed import WINDOW_LOG, zstd_library

MESSAGES = [{"role": "user", "content": "x"}]
numbers = itertools.count()
MOST = 4 << 20  # bytes that the server takes of a body


@attack()
def response_fields(target: Target) -> None:
    """A million names of fields that the answer shall have."""
    body = json.dumps({"prompt": "x", "n_predict": 1, "response_fields": ["a/b"] * 580_000})
    target.again(lambda: target.ask("/completion", body.encode()), 4)


@attack()
def different_response_fields(target: Target) -> None:
    """The same, each name another one."""
    fields = [f"a{i}/b" for i in range(320_000)]
    body = json.dumps({"prompt": "x", "n_predict": 1, "response_fields": fields})
    target.again(lambda: target.ask("/completion", body.encode()), 4)


@attack()
def deep_json(target: Target) -> None:
    """Arrays in arrays, 4 MB of them."""
    half = MOST // 2 - 100
    body = b'{"messages": ' + b"[" * half + b"]" * half + b"}"
    target.again(lambda: target.ask(CHAT, body), 4)


@attack()
def wide_json(target: Target) -> None:
    """A million unknown fields of one letter each."""
    fields = ",".join(f'"{i:x}":0' for i in range(330_000))
    body = ('{"messages":[{"role":"user","content":"x"}],"max_tokens":1,' + fields + "}").encode()
    target.again(lambda: target.ask(CHAT, body), 4)


@attack()
def huge_logit_bias(target: Target) -> None:
    """A bias for each of 65,000 keys, most of which are no tokens."""
    bias = {str(i): 1 for i in range(65_000)}
    target.again(lambda: target.ask(CHAT, {"messages": MESSAGES, "logit_bias": bias}), 4)


@attack()
def long_stop_lists(target: Target) -> None:
    """590 stop strings of 7,000 characters, in long answers."""
    stop = [f"{i}" + "a" * 6990 for i in range(590)]
    body = {"prompt": "x", "n_predict": 400, "ignore_eos": True, "stop": stop}
    target.again(lambda: target.ask("/completion", body), 4)


@attack()
def stop_strings_that_almost_match(target: Target) -> None:
    """Stop strings each of whose beginnings the answer may have, on OpenAI's API."""
    stop = ["e" * (100_000 * i) + "!" for i in range(1, 5)]
    body = {"messages": MESSAGES, "max_tokens": 400, "ignore_eos": True, "stop": stop}
    target.again(lambda: target.ask(CHAT, body), 8)


@attack()
def invalid_utf8(target: Target) -> None:
    """4 MB of bytes that are no UTF-8."""
    body = b'{"messages": [{"role": "user", "content": "' + b"\xff" * (MOST - 100) + b'"}]}'
    target.again(lambda: target.ask(CHAT, body), 4)


@attack()
def tokenize_4_mb(target: Target) -> None:
    """A text of 4 MB to be tokenized."""
    body = {"content": "no space and no end " * (MOST // 22)}
    target.again(lambda: target.ask("/tokenize", body), 4)


@attack()
def one_word_of_4_mb(target: Target) -> None:
    """One word of 4 MB, for which each merge is a candidate."""
    target.again(lambda: target.ask("/tokenize", {"content": "e" * (MOST - 100)}), 4)


@attack()
def template_bombs(target: Target) -> None:
    """Values for the chat template that hold 4 MB of nested lists."""
    kwargs = {f"k{i}": [[["x" * 10] * 10] * 10] * 3 for i in range(100)}
    body = {"messages": MESSAGES * 1000, "chat_template_kwargs": kwargs}
    target.again(lambda: target.ask("/apply-template", body), 8)


@attack()
def many_messages(target: Target) -> None:
    """2,048 messages of 1.9 KB."""
    body = {"messages": [{"role": "user", "content": "ab " * 630}] * 2048, "max_tokens": 1}
    target.again(lambda: target.ask(CHAT, body), 4)


@attack()
def many_choices(target: Target) -> None:
    """64 choices of 400 tokens for each of 4 clients."""
    body = {"messages": MESSAGES, "n": 64, "max_tokens": 400, "ignore_eos": True}
    target.again(lambda: target.ask(CHAT, body), 4)


@attack()
def embeddings_of_many_texts(target: Target) -> None:
    """Embeddings of 2,048 texts."""
    body = {"input": ["some words of it " * 20] * 2048}
    target.again(lambda: target.ask("/v1/embeddings", body), 4)


@attack()
def rerank_of_many_documents(target: Target) -> None:
    """10,000 documents to be ranked."""
    body = {"query": "x", "documents": ["some words of it " * 20] * 10_000}
    target.again(lambda: target.ask("/v1/rerank", body), 4)


@attack()
def many_log_probabilities(target: Target) -> None:
    """Answers that come whole, with 1,024 log-probabilities for each token."""
    body = json.dumps({"prompt": "x", "n_predict": 100, "n_probs": 1024, "ignore_eos": True})
    target.again(lambda: target.ask("/completion", body.encode()), 4)


@attack()
def compressed_bodies(target: Target) -> None:
    """64 KB that gzip expands to 64 MB, of which the server reads --max-body."""
    packed = gzip.compress(b'{"messages": "' + b"x" * (64 << 20) + b'"}')
    target.again(lambda: target.ask(CHAT, packed, {"Content-Encoding": "gzip"}), 8)


@attack()
def models_that_do_not_exist(target: Target) -> None:
    """A model with another name of 8 KB in each request."""

    def ask() -> None:
        name = f"{next(numbers)}" + "m" * 8000
        target.ask(CHAT, {"model": name, "messages": MESSAGES, "max_tokens": 1})
        target.ask(f"/v1/models/{name[:4000]}")

    target.again(ask, 8)


@attack()
def compressed_bodies_of_many_clients(target: Target) -> None:
    """Bodies of 4 MB of spaces in a few KB of gzip, by 64 clients."""
    packed = gzip.compress(b'{"content":"x"}' + b" " * (MOST - 100))
    headers = {"Content-Encoding": "gzip"}
    target.again(lambda: target.ask("/tokenize", packed, headers), 64)


@attack()
def zstd_bodies(target: Target) -> None:
    """A few hundred bytes that zstd expands to 64 MB, with the largest window."""
    zstd = zstd_library()
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: WINDOW_LOG})
    packed = packer.compress(b'{"messages": "' + b"x" * (64 << 20)) + packer.flush()
    target.again(lambda: target.ask(CHAT, packed, {"Content-Encoding": "zstd"}), 16)


@attack()
def bodies_of_empty_blocks(target: Target) -> None:
    """4 MB of gzip that expand to nothing."""
    packed = gzip.compress(b"")[:10] + b"\x00\x00\x00\xff\xff" * (MOST // 5 - 100)
    target.again(lambda: target.ask(CHAT, packed, {"Content-Encoding": "gzip"}), 8)


@attack()
def calls_of_a_long_history(target: Target) -> None:
    """A conversation of 500 calls of tools with arguments of 3 KB, and their results."""
    arguments = json.dumps({f"k{i}": ["v" * 20] * 5 for i in range(20)})
    messages: list[dict[str, object]] = [*MESSAGES]
    for i in range(500):
        call = {"id": f"c{i}", "type": "function", "function": {
            "name": "f", "arguments": arguments,
        }}  # fmt: skip
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": arguments})
    target.again(lambda: target.ask(CHAT, {"messages": messages, "max_tokens": 1}), 8)


@attack()
def biases_in_pairs(target: Target) -> None:
    """30,000 pairs of a token and its bias, in llama.cpp's form."""
    body = {"prompt": "x", "n_predict": 1, "logit_bias": [[i % 256, 0.5] for i in range(30_000)]}
    target.again(lambda: target.ask("/completion", body), 8)


@attack()
def vectors_of_many_texts(target: Target) -> None:
    """Embeddings of 2,048 texts of a letter, as numbers and in base64."""
    forms = itertools.cycle(("float", "base64"))

    def ask() -> None:
        body = {"input": ["x"] * 2048, "encoding_format": next(forms)}
        target.ask("/v1/embeddings", body)

    target.again(ask, 8)


@attack()
def half_characters(target: Target) -> None:
    """4 MB of escapes, with half of a surrogate pair at the end."""
    body = b'{"content":"' + b"\\n" * (MOST // 2 - 100) + b'\\ud83d"}'
    target.again(lambda: target.ask("/tokenize", body), 4)


@attack()
def escaped_quotes(target: Target) -> None:
    """4 MB of escaped quotes, in which no value may be counted."""
    body = b'{"content":"' + b'\\"' * (MOST // 2 - 100) + b'"}'
    target.again(lambda: target.ask("/tokenize", body), 4)


@attack()
def pieces_of_a_long_text(target: Target) -> None:
    """Texts of 100,000 words, whose tokens are returned with their texts."""
    body = {"content": "a b " * 50_000, "with_pieces": True}
    target.again(lambda: target.ask("/tokenize", body), 4)


@attack()
def tiny_texts_to_embed(target: Target) -> None:
    """16,000 texts of one letter, on Ollama's API."""
    body = {"model": "tiny", "input": ["x"] * 16_000}
    target.again(lambda: target.ask("/api/embed", body), 4)


@attack()
def as_many_tools_as_may_be(target: Target) -> None:
    """1,024 tools with descriptions, which the chat template may render for each request."""
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tools = [
        {"type": "function", "function": {
            "name": f"tool_{i}", "description": "d" * 500, "parameters": parameters,
        }}
        for i in range(1024)
    ]  # fmt: skip
    body = {"messages": MESSAGES, "tools": tools, "tool_choice": "auto", "max_tokens": 1}
    target.again(lambda: target.ask(CHAT, body), 8)
