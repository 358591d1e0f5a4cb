"""Numbers, names and prompts that cost more than their size suggests."""

from __future__ import annotations

import itertools

from tests.soak.attacks.target import CHAT, Target, attack

MESSAGES = [{"role": "user", "content": "x"}]
MOST = 4 << 20
numbers = itertools.count()


@attack()
def keys_of_5000_digits(target: Target) -> None:
    """Keys of logit_bias of 5,000 digits."""
    bias = {f"{i}" + "9" * 5000: 1 for i in range(800)}
    target.again(lambda: target.ask(CHAT, {"messages": MESSAGES, "logit_bias": bias}), 4)


@attack()
def numbers_of_4_mb(target: Target) -> None:
    """An integer of four million digits."""
    body = b'{"messages":[{"role":"user","content":"x"}],"seed":' + b"9" * (MOST - 200) + b"}"
    target.again(lambda: target.ask(CHAT, body), 4)


@attack()
def the_same_key_again(target: Target) -> None:
    """One name, given 400,000 times."""
    body = b'{"messages":[{"role":"user","content":"x"}]' + b',"seed":1' * 400_000 + b"}"
    target.again(lambda: target.ask(CHAT, body), 4)


@attack()
def million_token_ids(target: Target) -> None:
    """A million token ids to be written as text."""
    target.again(lambda: target.ask("/detokenize", {"tokens": [7] * 1_000_000}), 4)


@attack()
def log_probabilities(target: Target) -> None:
    """The 20 best tokens at each place of 16 answers."""
    body = {"messages": MESSAGES, "n": 16, "max_tokens": 300, "ignore_eos": True,
            "logprobs": True, "top_logprobs": 20}  # fmt: skip
    target.again(lambda: target.ask(CHAT, body), 4)


@attack()
def long_urls(target: Target) -> None:
    """Queries of 20,000 parameters."""
    query = "&".join(f"a{i}=1" for i in range(8000))
    target.again(lambda: target.ask(f"/v1/files?{query}"), 8)


@attack()
def images_of_4_mb(target: Target) -> None:
    """An image of 4 MB in base64 for a model without eyes."""
    url = "data:image/png;base64," + "A" * (MOST - 1000)
    content = [{"type": "image_url", "image_url": {"url": url}}]
    target.again(lambda: target.ask(CHAT, {"messages": [{"role": "user", "content": content}]}), 4)


@attack()
def counted_tokens(target: Target) -> None:
    """Anthropic's count of the tokens of 4 MB."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "some words " * 360_000}]}
    target.again(lambda: target.ask("/v1/messages/count_tokens", body), 4)


@attack()
def ollama_stops(target: Target) -> None:
    """Ollama's options with 64 stop strings of 60 KB."""
    stop = [f"{i}" + "e" * 60_000 for i in range(64)]
    body = {"model": "tiny", "prompt": "x", "stream": False,
            "options": {"stop": stop, "num_predict": 400}}  # fmt: skip
    target.again(lambda: target.ask("/api/generate", body), 4)


@attack()
def anthropic_stops(target: Target) -> None:
    """Anthropic's API with thousands of stop sequences."""
    body = {"model": "tiny", "messages": MESSAGES, "max_tokens": 400,
            "stop_sequences": [f"{i}" + "e" * 500 for i in range(7000)]}  # fmt: skip
    target.again(lambda: target.ask("/v1/messages", body), 4)


@attack()
def long_prompts(target: Target) -> None:
    """Prompts that fill the context, each another one, from 16 clients."""

    def ask() -> None:
        text = f"{next(numbers)} " + "e t a o i n " * 38
        target.ask("/completion", {"prompt": text, "n_predict": 1, "cache_prompt": False})

    target.again(ask, 16)


@attack()
def many_prompts(target: Target) -> None:
    """64 prompts to a request of 16 clients."""
    body = {"prompt": ["some words of it " * 20] * 64, "max_tokens": 100, "ignore_eos": True}
    target.again(lambda: target.ask("/v1/completions", body), 16)


@attack()
def infills(target: Target) -> None:
    """Infills with thousands of files as context."""
    extra = [{"filename": f"f{i}", "text": "x" * 300} for i in range(10_000)]
    body = {"input_prefix": "a", "input_suffix": "b", "input_extra": extra, "n_predict": 1}
    target.again(lambda: target.ask("/infill", body), 4)


@attack()
def special_tokens_in_a_row(target: Target) -> None:
    """4 MB of special tokens, each of which is cut out of the text."""
    body = {"content": "<|eot_id|>" * (MOST // 11), "parse_special": True}
    target.again(lambda: target.ask("/tokenize", body), 4)


@attack()
def spaces_up_to_the_limit(target: Target) -> None:
    """A run of 4,000,000 spaces, which is as long as may be, and of marks."""
    texts = itertools.cycle((" " * 4_000_000, "!" * 4_000_000))
    target.again(lambda: target.ask("/tokenize", {"content": next(texts)}), 4)


@attack()
def many_short_texts(target: Target) -> None:
    """Texts of a few words to tokenize, by 32 clients."""
    target.again(lambda: target.ask("/tokenize", {"content": f"{next(numbers)} and more"}), 32)


@attack()
def prompts_of_ids(target: Target) -> None:
    """Prompts of 290,000 token ids, and of texts and ids in turn."""
    wanted = itertools.cycle(([7] * 290_000, ["x", 7] * 60_000))
    target.again(lambda: target.ask("/completion", {"prompt": next(wanted), "n_predict": 1}), 4)


@attack()
def metadata_of_many_names(target: Target) -> None:
    """Metadata of 65,000 names."""
    names = {f"n{i}": "x" for i in range(65_000)}
    paths = itertools.cycle(
        ((CHAT, {"messages": MESSAGES, "max_tokens": 1}), ("/v1/responses", {"input": "x"}))
    )

    def ask() -> None:
        path, body = next(paths)
        target.ask(path, {**body, "metadata": names})

    target.again(ask, 4)


@attack()
def results_of_nested_tools(target: Target) -> None:
    """Anthropic's results of tools with 15,000 texts, and arguments that are 60 lists deep."""
    value: object = "x"
    for _ in range(60):
        value = [value]
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": [value] * 200}}
    texts = [{"type": "text", "text": "x"}] * 15_000
    result = {"type": "tool_result", "tool_use_id": "a", "content": texts}
    turn = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    body = {"model": "tiny", "max_tokens": 1, "messages": [*MESSAGES, *turn]}
    target.again(lambda: target.ask("/v1/messages", body), 4)


@attack()
def templates_of_long_histories(target: Target) -> None:
    """2,000 messages with calls of tools, rendered and not answered."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    turn = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": [call] * 4},
        {"role": "tool", "tool_call_id": "a", "content": "x" * 500},
    ]
    target.again(lambda: target.ask("/apply-template", {"messages": turn * 660}), 4)
