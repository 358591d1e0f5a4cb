"""Calls of a model: prompts, options, streams, batches, chats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.toy_model import (
    BOS,
    EOS,
    VOCAB_SIZE,
    ToyTokenizer,
    ids_of,
    toy_model,
)
from trinity.errors import ContextLengthError, InputError

HELLO = [{"role": "user", "content": "hi"}]
pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def test_generate_from_text_and_from_ids() -> None:
    model, engine = toy_model()
    engine.says("hello", after=3)
    assert model.generate("ab").text == "hello"
    assert model.generate([BOS, *ids_of("ab")]).text == "hello"
    assert model.generate(np.array([BOS, *ids_of("ab")])).text == "hello"  # type: ignore[arg-type]


def test_prompt_options() -> None:
    model, engine = toy_model()
    model.generate("</s>", max_tokens=0, parse_special=True)
    assert engine.evaluated == [[BOS, EOS]]
    engine.evaluated.clear()
    model.generate("</s>", max_tokens=0, add_bos=False)
    assert engine.evaluated == [ids_of("</s>")]


@pytest.mark.parametrize("prompt", ["", []])
def test_empty_prompt_is_bos_alone(prompt: Any) -> None:
    model, engine = toy_model()
    model.generate(prompt, max_tokens=1)
    assert engine.evaluated == [[BOS]]
    model, _ = toy_model(bos=False)
    with pytest.raises(InputError, match="prompt is empty"):
        model.generate(prompt)


@pytest.mark.parametrize("ids", [[-1], [VOCAB_SIZE], [1.5], ["a"], [[1]], [[1], [2, 3]], b"ab", 5])
def test_bad_token_ids(ids: Any) -> None:
    model, _ = toy_model()
    for call in (model.generate, model.logits, model.detokenize):
        with pytest.raises(InputError, match="token id"):
            call(ids)


def test_unknown_option_is_a_type_error() -> None:
    model, _ = toy_model()
    with pytest.raises(TypeError, match="temprature"):
        model.generate("a", temprature=1)  # type: ignore[call-arg]


def test_unknown_option_of_a_chat_is_a_type_error() -> None:
    model, _ = toy_model()
    with pytest.raises(TypeError, match="'tool'"):
        model.apply_chat_template(HELLO, tool=[])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'tool'"):
        model.chat_prompt(HELLO, tool=[])  # type: ignore[call-arg]


def test_arguments_are_checked_before_the_first_piece() -> None:
    model, engine = toy_model(context_length=8)
    with pytest.raises(InputError, match="top_p"):
        model.stream("a", top_p=2)
    with pytest.raises(ContextLengthError, match=r"21 tokens.*holds 8"):
        model.stream("a" * 20)
    assert engine.evaluated == []


def test_prefix_is_kept_between_calls_unless_unwanted() -> None:
    model, engine = toy_model()
    model.generate("abcdef", max_tokens=0)
    engine.evaluated.clear()
    model.generate("abcdeg", max_tokens=0)
    assert engine.evaluated == [ids_of("g")]
    engine.evaluated.clear()
    assert model.generate("abcdeh", max_tokens=0, cache_prompt=False).timings.cached_tokens == 0
    assert engine.evaluated == [[BOS, *ids_of("abcdeh")]]
    engine.evaluated.clear()
    model.generate("abcdehi", max_tokens=0)
    assert engine.evaluated == [ids_of("hi")]  # what is evaluated apart is found by nobody


def test_stream_pieces_make_the_text() -> None:
    model, engine = toy_model()
    engine.says("hello", after=3)
    chunks = list(model.stream("ab"))
    assert "".join(c.text for c in chunks) == "hello"
    assert chunks[-1].finish_reason == "stop"


def test_several_answers_to_one_prompt_share_it() -> None:
    model, engine = toy_model(prefill_chunk=64, context_length=300)
    prompt = "a prompt of more than a few tokens"
    alone = [model.generate(prompt, seed=7 + i, max_tokens=5).token_ids for i in range(3)]
    model, engine = toy_model(prefill_chunk=64, context_length=300)
    found = model.generate(prompt, n=3, seed=7, max_tokens=5)
    assert [completion.token_ids for completion in found] == alone
    assert [f.timings.cached_tokens for f in found] == [0, len(prompt), len(prompt)]
    assert sum(map(len, engine.evaluated)) == len(prompt) + 1 + 2 + 3 * 4
    assert len(model.chat(HELLO, n=2, max_tokens=1)) == 2
    with pytest.raises(InputError, match="n is 0"):
        model.generate(prompt, n=0)


def test_a_batch_gives_each_answer_as_it_ends() -> None:
    model, _ = toy_model()
    prompts = ["abc", [5, 6], "x"]
    alone = [model.generate(p, seed=1, max_tokens=4).token_ids for p in prompts]
    found = dict(model.generate_batch(prompts, seed=1, max_tokens=4))
    assert [found[i].token_ids for i in range(3)] == alone
    assert list(model.generate_batch([])) == []
    with pytest.raises(InputError, match="token id"):
        model.generate_batch([[-1]])
    with pytest.raises(ContextLengthError):
        model.generate_batch(["a", "a" * 65])


def test_logits() -> None:
    model, engine = toy_model(prefill_chunk=2)
    ids = [3, 4, 5, 6, 7]
    found = model.logits(ids)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [engine.logits_of(ids[: n + 1]) for n in range(5)])
    again = model.logits(ids)
    np.testing.assert_array_equal(found, again)
    assert found is not again
    assert model.logits([]).shape == (0, VOCAB_SIZE)
    with pytest.raises(ContextLengthError, match=r"65 tokens.*holds 64"):
        model.logits([3] * 65)


def test_tokenize_and_detokenize() -> None:
    model, _ = toy_model()
    assert model.tokenize("é") == [BOS, *ids_of("é")]
    assert model.tokenize("a", add_bos=False) == ids_of("a")
    assert model.tokenize("</s>", parse_special=True) == [BOS, EOS]
    assert model.detokenize(ids_of("é")) == "é"


def test_chat_has_one_bos_and_answers() -> None:
    model, engine = toy_model()
    ids = model.apply_chat_template(HELLO)
    assert ids == [BOS, *ids_of("[user]hi"), EOS, *ids_of("[assistant]")]
    engine.says("yes", after=len(ids))
    assert model.chat(HELLO).text == "yes"
    assert "".join(c.text for c in model.chat_stream(HELLO)) == "yes"


def test_template_without_bos_gets_one() -> None:
    model, _ = toy_model()
    template = "{{ messages[0].content }}"
    assert model.apply_chat_template(HELLO, template=template) == [BOS, *ids_of("hi")]


def test_next_turn_evaluates_only_what_is_new() -> None:
    model, engine = toy_model()
    engine.says("yes", after=len(model.apply_chat_template(HELLO)))
    answer = model.chat(HELLO)
    messages = [
        *HELLO,
        {"role": "assistant", "content": answer.text},
        {"role": "user", "content": "so"},
    ]
    following = model.chat(messages, max_tokens=1)
    first = len(model.apply_chat_template(HELLO, add_generation_prompt=True))
    assert following.timings.cached_tokens >= first + len(answer.token_ids) - 1


def test_chat_without_a_template() -> None:
    model, _ = toy_model(chat_template=None)
    with pytest.raises(InputError, match="template="):
        model.chat(HELLO)
    assert model.chat(HELLO, template="{{ messages[0].content }}", max_tokens=1).token_ids


@pytest.mark.parametrize(
    "messages", ["hi", [], {"role": "user"}, ["hi"], [{"content": "x"}], [{"role": "user"}]]
)
def test_bad_messages(messages: Any) -> None:
    model, _ = toy_model()
    with pytest.raises(InputError, match="message"):
        model.chat(messages)


def test_closed_model() -> None:
    model, engine = toy_model()
    with model:
        model.generate("a", max_tokens=1)
    assert engine.closed
    model.close()
    assert "closed" in repr(model)
    for call in (lambda: model.generate("a"), lambda: model.logits([1]), lambda: model.stream("a")):
        with pytest.raises(InputError, match="closed"):
            call()
    with pytest.raises(InputError, match="closed"), model:
        pass


def test_no_stop_strings() -> None:
    model, engine = toy_model()
    engine.says("hello", after=3)
    assert model.generate("ab", stop=None).text == "hello"


def test_token_texts_of_log_probabilities() -> None:
    model, engine = toy_model()
    engine.says("aé", after=3)
    found = model.generate("ab", logprobs=1).logprobs
    assert found is not None
    assert [entry.text for entry in found] == ["a", "\ufffd", "\ufffd"]
    assert [entry.top[0].text for entry in found] == ["a", "\ufffd", "\ufffd"]


def test_bad_priority() -> None:
    model, _ = toy_model()
    with pytest.raises(InputError, match="priority"):
        model.generate("ab", priority="high")  # type: ignore[arg-type]


def test_repr() -> None:
    model, _ = toy_model()
    text = "<Model toy: 2 layers, hidden size 16, context 64, portable, 2 threads>"
    assert repr(model) == text


def test_generate_with_a_loaded_model() -> None:
    model, engine = toy_model()
    engine.says("yes", after=2)
    assert trinity.generate(model, "a").text == "yes"
    assert not engine.closed


def test_generate_from_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    model, engine = toy_model()
    engine.says("yes", after=2)
    monkeypatch.setattr("trinity.loading.load", lambda path: model)
    assert trinity.generate("model.gguf", "a").text == "yes"
    assert engine.closed


def test_generate_checks_options_before_it_loads() -> None:
    with pytest.raises(InputError, match="top_k"):
        trinity.generate("there-is-no-such-file.gguf", "a", top_k=-1)


@pytest.mark.parametrize("options", [{"threads": 0}, {"context_length": 0}, {"threads": "2"}])
def test_load_checks_its_arguments(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        trinity.load("there-is-no-such-file.gguf", **options)


def test_missing_file() -> None:
    for call in (trinity.load, trinity.load_tokenizer, trinity.open_weights):
        with pytest.raises(InputError, match="no-such-file"):
            call("there-is-no-such-file.gguf")


def test_tokenizer_of_a_file_without_weights(shared_data: Path) -> None:
    tokenizer = trinity.load_tokenizer(shared_data / "vocab" / "ggml-vocab-llama-spm.gguf")
    ids = tokenizer.encode("Hello world", add_bos=False)
    assert ids == [15043, 3186]
    assert tokenizer.decode(ids) == "Hello world"


def test_toy_tokenizer_is_honest() -> None:
    assert ToyTokenizer().decode(ids_of("≈é")) == "≈é"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            lambda m: m.generate(None),
            r"the prompt is None \(NoneType\); it must be text or token ids",
        ),
        (lambda m: m.generate(b"a"), r"the prompt is b'a' \(bytes\); it must be text or token ids"),
        (lambda m: m.generate([1.5]), r"token ids are \[1.5\] .*; they must be a flat sequence"),
        (
            lambda m: m.detokenize("a"),
            r"token ids are 'a' \(str\); they must be integers, which tok",
        ),
        (lambda m: m.generate_batch("ab"), "prompts is one text; give a list of texts, or use gen"),
        (lambda _: trinity.load(None), r"None \(NoneType\) is not a path; give a text"),
    ],
)
def test_values_of_other_types_are_named(wrong: Callable[[Any], object], said: str) -> None:
    model, _ = toy_model()
    with pytest.raises(InputError, match=said):
        wrong(model)
