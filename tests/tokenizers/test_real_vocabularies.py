"""Vocabularies of real models give llama.cpp's ids."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import some
from tests.tokenizers.conftest import MetadataOf, TokenizerOf
from tests.tokenizers.small_vocabularies import TEXTS, reference_spm
from trinity.providers import open_weights
from trinity.tokenizers import Tokenizer, tokenizer_from_metadata
from trinity.tokenizers.bpe import BPEEncoder
from trinity.tokenizers.vocabulary import vocabulary_from_metadata

VOCABULARIES = ["gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2"]
SPM = ["llama-spm", "phi-3", "models/stories260K", "models/llama-2-tiny-random"]
SOME = settings(max_examples=100, deadline=None)


every_vocabulary = pytest.mark.parametrize("name", VOCABULARIES)


def streamed(tokenizer: Tokenizer, ids: list[int]) -> str:
    stream = tokenizer.stream(skip_special=False, continuation=False)
    return "".join(map(stream.push, ids)) + stream.finish()


@pytest.mark.few(2)
@every_vocabulary
def test_every_case_has_the_expected_ids_and_comes_back(
    name: str, shared_data: Path, tokenizer_of: TokenizerOf
) -> None:
    tokenizer = tokenizer_of(name)
    file = shared_data / "vocab" / f"ggml-vocab-{name}.gguf"
    *texts, after_last = Path(f"{file}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    assert after_last == ""
    lines = Path(f"{file}.out").read_text().splitlines()
    assert len(texts) == len(lines) > 40
    for text, line in zip(texts, lines, strict=True):
        ids = [int(word) for word in line.split()]
        assert tokenizer.encode(text, add_bos=False) == ids, text
        assert tokenizer.decode(ids) == text
        assert streamed(tokenizer, ids) == text


@pytest.mark.parametrize("model", ["stories260K", "stories260K-Q8_0", "llama-2-tiny-random"])
def test_golden_prompts(model: str, shared_data: Path, tokenizer_of: TokenizerOf) -> None:
    golden = json.loads((shared_data / "models" / "golden.json").read_text())[model]
    tokenizer = tokenizer_of(f"models/{model}")
    prompt = golden.get("prompt", "Once upon a time" if "stories" in model else "Hello world,")
    assert tokenizer.encode(prompt) == golden["prompt_ids"]
    assert tokenizer.decode(golden["prompt_ids"], skip_special=True) == prompt


def test_golden_story_streams_as_it_decodes(shared_data: Path, tokenizer_of: TokenizerOf) -> None:
    golden = json.loads((shared_data / "models" / "golden.json").read_text())["stories260K"]
    tokenizer = tokenizer_of("models/stories260K")
    prompt, story = golden["prompt_ids"], golden["greedy_ids"]
    assert tokenizer.decode(prompt[1:] + story, continuation=True) == golden["text"]
    assert tokenizer.decode(prompt + story, skip_special=True) == golden["text"][1:]
    stream = tokenizer.stream()
    pieces = "".join(map(stream.push, story)) + stream.finish()
    assert golden["prompt"] + pieces == golden["text"].removeprefix(" ")
    first = tokenizer.token_text(prompt[1])
    assert first.startswith("▁")
    assert tokenizer.stream().push(prompt[1]) == first.replace("▁", " ")
    assert tokenizer.stream(continuation=False).push(prompt[1]) == first.removeprefix("▁")


@pytest.mark.few(1)
@SOME
@given(text=TEXTS)
@pytest.mark.parametrize("spm", SPM)
def test_sentencepiece_agrees_with_the_algorithm(
    spm: str, text: str, metadata_of: MetadataOf, tokenizer_of: TokenizerOf
) -> None:
    metadata, tokenizer = metadata_of(spm), tokenizer_of(spm)
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    assert isinstance(tokens, list)
    expected = reference_spm(tokens, scores.tolist(), " " + text) if text else []  # type: ignore[attr-defined]
    assert tokenizer.encode(text, add_bos=False) == expected


@SOME
@given(text=TEXTS)
@pytest.mark.few(3)
@pytest.mark.parametrize("any_name", [*VOCABULARIES, "models/stories260K"])
def test_round_trip(any_name: str, text: str, tokenizer_of: TokenizerOf) -> None:
    """Every text is restored; only U+2581 becomes a space in SentencePiece vocabularies."""
    tokenizer = tokenizer_of(any_name)
    expected = text.replace("▁", " ") if tokenizer.add_space_prefix else text
    ids = tokenizer.encode(text, add_bos=False)
    assert tokenizer.decode(ids) == expected
    assert streamed(tokenizer, ids) == expected
    assert tokenizer.decode(tokenizer.encode(text), skip_special=True) == expected
    assert not any(map(tokenizer.is_special, ids))
    if any_name != "phi-3":  # which drops white space after special tokens
        parsed = tokenizer.encode(text, add_bos=False, parse_special=True)
        assert tokenizer.decode(parsed) == expected


@pytest.mark.few(2)
@SOME
@given(data=st.data())
@every_vocabulary
def test_any_ids_stream_as_they_decode(
    name: str, tokenizer_of: TokenizerOf, data: st.DataObject
) -> None:
    tokenizer = tokenizer_of(name)
    edge = [*tokenizer.eog_ids, tokenizer.vocab_size - 1, *range(300)]
    one = st.one_of(st.integers(0, tokenizer.vocab_size - 1), st.sampled_from(edge))
    ids = data.draw(st.lists(one, max_size=30))
    for skip in (False, True):
        for continuation in (False, True):
            whole = tokenizer.decode(ids, skip_special=skip, continuation=continuation)
            stream = tokenizer.stream(skip_special=skip, continuation=continuation)
            pieces = [*map(stream.push, ids), stream.finish()]
            assert "".join(pieces) == whole
            if "\ufffd" not in whole:
                assert all("\ufffd" not in piece for piece in pieces)


def test_bitnet_2b_4t(metadata_of: MetadataOf, tokenizer_of: TokenizerOf) -> None:
    """The file has Llama 3's vocabulary, no pre-tokenizer, and scores that are all 0."""
    metadata = dict(metadata_of("llama-bpe"))
    del metadata["tokenizer.ggml.pre"]
    metadata["tokenizer.ggml.scores"] = [0.0] * 128256
    metadata["tokenizer.ggml.add_bos_token"] = True
    tokenizer = tokenizer_from_metadata(metadata)
    assert len(tokenizer.notes) == 1
    assert "'llama-bpe'" in tokenizer.notes[0]
    assert tokenizer.eog_ids == {128001, 128009}
    assert tokenizer.token_text(128009) == "<|eot_id|>"
    text = "Hello, y'all! 3333333 times 我想 \r\n\r\n  x  "
    assert tokenizer.encode(text) == tokenizer_of("llama-bpe").encode(text)
    assert tokenizer.encode(text)[0] == 128000


@pytest.mark.parametrize(("known", "pre"), [("qwen2", "'qwen2'"), ("gpt-2", "'gpt-2'")])
def test_missing_pre_of_other_known_vocabularies(
    known: str, pre: str, metadata_of: MetadataOf, tokenizer_of: TokenizerOf
) -> None:
    metadata = dict(metadata_of(known))
    del metadata["tokenizer.ggml.pre"]
    tokenizer = tokenizer_from_metadata(metadata)
    assert pre in tokenizer.notes[0]
    assert tokenizer.encode("It's 1234, é!") == tokenizer_of(known).encode("It's 1234, é!")


def test_template_with_bos_gets_no_second_one(tokenizer_of: TokenizerOf) -> None:
    for name, bos in (("llama-bpe", "<|begin_of_text|>"), ("llama-spm", "<s>")):
        tokenizer = tokenizer_of(name)
        ids = tokenizer.encode(bos + "Hi", parse_special=True)
        assert ids == tokenizer.encode("Hi")
        assert ids.count(tokenizer.bos_id or 0) == 1
        assert tokenizer.encode(bos, parse_special=True) == [tokenizer.bos_id]
        assert tokenizer.encode("") == [tokenizer.bos_id]


def test_special_tokens_are_parsed_only_on_request(tokenizer_of: TokenizerOf) -> None:
    tokenizer = tokenizer_of("llama-bpe")
    assert 128009 not in tokenizer.encode("a<|eot_id|>b")
    assert tokenizer.encode("a<|eot_id|>b", parse_special=True) == [128000, 64, 128009, 65]
    assert tokenizer.is_special(128009)
    assert tokenizer.decode([64, 128009, 65]) == "a<|eot_id|>b"
    assert tokenizer.decode([64, 128009, 65], skip_special=True) == "ab"


def test_words_of_qwen2_end_nothing(tokenizer_of: TokenizerOf) -> None:
    """The vocabulary has a merged HTML token "</s>" and separate end tokens."""
    tokenizer = tokenizer_of("qwen2")
    texts = {tokenizer.token_text(i) for i in tokenizer.eog_ids}
    assert texts == {"<|endoftext|>", "<|im_end|>"}
    assert not any(map(tokenizer.is_special, tokenizer.encode("<s>x</s>")))


def test_phi_3_swallows_white_space_after_special_tokens(tokenizer_of: TokenizerOf) -> None:
    tokenizer = tokenizer_of("phi-3")
    encode = tokenizer.encode
    assert encode("<|user|>\n Hi<|end|>\n", parse_special=True) == encode(
        "<|user|>Hi<|end|>", parse_special=True
    )
    assert encode("<s>\nHi", parse_special=True) != encode("<s>Hi", parse_special=True)
    assert {tokenizer.token_text(i) for i in tokenizer.eog_ids} == {
        "</s>",
        "<|end|>",
        "<|endoftext|>",
    }


@pytest.mark.full
@every_vocabulary
def test_long_texts(name: str, shared_data: Path, tokenizer_of: TokenizerOf) -> None:
    """A book and a million characters without a space take seconds each and are restored."""
    tokenizer = tokenizer_of(name)
    book = (shared_data / "text" / "war-and-peace.txt").read_text(encoding="utf-8")[:500_000]
    for text in (book, "x" * 1_000_000, " " * 300_000 + "y", "ab1é" * 50_000):
        assert tokenizer.decode(tokenizer.encode(text, add_bos=False)) == text


@pytest.mark.few(1)
@pytest.mark.parametrize("shared", ["models/stories260K", "gpt-2"])
def test_threads_share_a_tokenizer(shared: str, metadata_of: MetadataOf) -> None:
    tokenizer = tokenizer_from_metadata(metadata_of(shared))  # not yet built
    texts = [f"Thread {i} says: Once upon a time 🦙" * 20 for i in range(8)]
    found: dict[int, set[str]] = {}

    def work(i: int) -> None:
        turns = (tokenizer.encode(texts[i], add_bos=False) for _ in range(20))
        found[i] = set(map(tokenizer.decode, turns))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(len(texts))] == [{text} for text in texts]


@pytest.mark.parametrize("name", some(["llama-bpe", "qwen2", "gpt-2"], ["gpt-2"]))
def test_a_part_of_the_vocabulary_gives_the_same_ids(shared_data: Path, name: str) -> None:
    """Short texts use a model of the tokens that can occur; ids equal the full model's."""
    path = shared_data / f"vocab/ggml-vocab-{name}.gguf"
    with closing(open_weights(path)) as provider:
        encoder = BPEEncoder(vocabulary_from_metadata(provider.metadata))
    whole = encoder._make_whole()
    texts = (shared_data / f"vocab/ggml-vocab-{name}.gguf.inp").read_text("utf-8")
    cases = [text[:1000] for text in texts.split("\n__ggml_vocab_test__\n")]
    assert len(cases) > 20
    for text in cases:
        encoder._parts = 0
        part = encoder._make_part(text)
        assert part is not None
        found = part.encode(text, add_special_tokens=False).ids
        assert found == whole.encode(text, add_special_tokens=False).ids
