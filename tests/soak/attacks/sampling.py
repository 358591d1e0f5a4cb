"""Request fields that cost time for each token."""

from __future__ import annotations

import itertools
import random

from tests.soak.attacks.target import CHAT, Target, attack

LONG = {"prompt": "x", "n_predict": 400, "ignore_eos": True}
MESSAGES = [{"role": "user", "content": "x"}]


@attack()
def as_many_stop_strings_as_may_be(target: Target) -> None:
    """1,024 stop strings of 8 characters each, different ones for each request."""
    number = iter(range(10**9))

    def ask() -> None:
        first = next(number) * 1024
        stop = [f"{first + i:08}" for i in range(1024)]
        target.ask("/completion", {**LONG, "stop": stop})

    target.again(ask, 8)


@attack()
def nuclei_of_the_whole_vocabulary(target: Target) -> None:
    """Answers of which each token is drawn from all."""
    body = {**LONG, "n_cmpl": 8, "top_k": 0, "top_p": 0.9999999, "min_p": 0.0, "temperature": 9}
    target.again(lambda: target.ask("/completion", body), 4)


@attack()
def as_many_probabilities_as_may_be(target: Target) -> None:
    """Streams with 256 probabilities of each token of 8 answers, after sampling."""
    body = {**LONG, "n_cmpl": 8, "n_probs": 256, "post_sampling_probs": True, "stream": True}
    target.again(lambda: target.ask("/completion", {**body, "top_k": 0, "top_p": 1.0}), 2)


@attack()
def penalties_of_the_whole_context(target: Target) -> None:
    """Penalties that look at all tokens of prompts that fill most of the context."""
    body = {"prompt": "x " * 200, "repeat_last_n": -1, "frequency_penalty": 0.5, "n_predict": 200}
    target.again(lambda: target.ask("/completion", {**body, "repeat_penalty": 1.1}), 8)


@attack()
def tokens_that_must_not_come(target: Target) -> None:
    """1,024 tokens that end an answer and may not come yet, and biases of as many."""
    body = {
        "messages": MESSAGES,
        "max_tokens": 400,
        "min_tokens": 400,
        "stop_token_ids": list(range(3, 200)) * 5,
        "logit_bias": {str(i): -1 for i in range(200)},
    }
    target.again(lambda: target.ask(CHAT, body), 8)


@attack("slots")
def operations_on_busy_slots(target: Target) -> None:
    """Long answers in one slot, and operations that wait for it."""

    def ask() -> None:
        target.ask("/completion", {**LONG, "id_slot": 0})

    def change() -> None:
        target.ask("/slots/0?action=erase", {})
        target.ask("/slots/0?action=save", {"filename": "busy"})
        target.ask("/slots/0?action=restore", {"filename": "busy"})

    number = iter(range(10**9))
    target.again(lambda: (ask, change, change)[next(number) % 3](), 12)


@attack()
def requests_that_go_first(target: Target) -> None:
    """Long answers with the first priority, and more of them than have places."""
    body = {"prompt": "x", "max_tokens": 400, "ignore_eos": True, "priority": -1000, "n": 16}
    target.again(lambda: target.ask("/v1/completions", body), 8)


@attack()
def biases_of_the_whole_vocabulary(target: Target) -> None:
    """A bias for each token, other ones in each request."""

    def ask() -> None:
        bias = {str(i): random.uniform(-5, 5) for i in range(256)}
        target.ask("/completion", {**LONG, "n_predict": 100, "logit_bias": bias})

    target.again(ask, 16)


@attack()
def echoes_with_log_probabilities(target: Target) -> None:
    """Prompts that fill most of the context, each token of which gets log-probabilities."""
    body = {"prompt": "x " * 200, "max_tokens": 1, "echo": True, "logprobs": 5, "n": 8}
    target.again(lambda: target.ask("/v1/completions", body), 8)


@attack()
def grammars_of_many_answers(target: Target) -> None:
    """16 answers to a request, each of which follows a grammar with many alternatives."""
    words = " | ".join(f'"w{i} "' for i in range(300))
    body = {"prompt": "x", "grammar": f"root ::= ({words})+", "n_predict": 200, "n_cmpl": 16}
    target.again(lambda: target.ask("/completion", body), 4)


@attack()
def breakers_of_repetitions(target: Target) -> None:
    """DRY over the whole context with 64 long sequence breakers, other ones in each request."""
    number = iter(range(10**9))

    def ask() -> None:
        first = next(number)
        breakers = [f"{first} {i} " + "e t " * 25 for i in range(64)]
        dry = {"dry_multiplier": 1.0, "dry_allowed_length": 1, "dry_penalty_last_n": -1,
               "dry_sequence_breakers": breakers}  # fmt: skip
        target.ask("/completion", {**LONG, "prompt": "e t " * 100, "n_cmpl": 8, **dry})

    target.again(ask, 8)


@attack()
def extreme_samplers(target: Target) -> None:
    """Mirostat, XTC and dynamic temperature with the largest and smallest numbers."""
    extremes = [
        {"mirostat": 2, "mirostat_tau": 1e300, "mirostat_eta": 1e300},
        {"mirostat": 1, "mirostat_tau": 0.0, "mirostat_eta": 1e-300},
        {"dynatemp_range": 1e300, "dynatemp_exponent": 1e300, "temperature": 100},
        {"xtc_probability": 1.0, "xtc_threshold": 0.0, "typical_p": 1e-300, "top_n_sigma": 1e-300},
        {"samplers": ["top_k", "temperature"] * 16, "top_k": 2**31 - 1},
    ]
    wanted = itertools.cycle(extremes)
    target.again(lambda: target.ask("/completion", {**LONG, "n_cmpl": 8, **next(wanted)}), 8)


@attack()
def adapters_that_do_not_exist(target: Target) -> None:
    """Lists of 30,000 LoRA adapters."""
    lora = [{"id": i, "scale": 1.0} for i in range(30_000)]
    target.again(lambda: target.ask("/completion", {**LONG, "lora": lora}), 4)


@attack()
def biases_of_texts(target: Target) -> None:
    """Biases of 10,000 texts, each of which is tokenized, other ones in each request."""
    number = iter(range(10**9))

    def ask() -> None:
        first = next(number) * 10_000
        body = {**LONG, "logit_bias": [[f"text {first + i}", -1] for i in range(10_000)]}
        target.ask("/completion", {**body, "n_predict": 4})

    target.again(ask, 8)


@attack()
def more_choices_than_may_be(target: Target) -> None:
    """As many choices as a number can hold, and 256 of 16 prompts, on three APIs."""
    most, prompts = 2**31 - 1, ["x"] * 16
    asked = itertools.cycle(
        [
            (CHAT, {"messages": MESSAGES, "n": most}),
            ("/v1/completions", {"prompt": prompts, "n": 256, "max_tokens": 400}),
            ("/completion", {"prompt": prompts, "n_cmpl": 256, "n_predict": 400}),
            ("/v1/completions", {"prompt": "x", "n": 128, "max_tokens": 1, "ignore_eos": True}),
        ]
    )
    target.again(lambda: target.ask(*next(asked)), 8)
