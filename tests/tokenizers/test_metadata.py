"""Missing, malformed or odd metadata gives a clear error or a repair with a notice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.tokenizers.small_vocabularies import (
    Metadata,
    bpe,
    bpe_metadata,
    spm,
    spm_metadata,
)
from trinity.errors import InputError, TokenizerError, UnsupportedError
from trinity.tokenizers import tokenizer_from_metadata

Maker = Callable[..., Metadata]
both = pytest.mark.parametrize("make", [spm_metadata, bpe_metadata])
TEXT = "ab aab  ba <s>é"


@pytest.mark.parametrize("model", ["plamo2", "no_vocab", "x" * 999])
def test_unsupported_models_name_the_supported(model: str) -> None:
    with pytest.raises(UnsupportedError, match=r"'llama' .*'gpt2' .*'gemma4'") as caught:
        spm(model=model)
    assert model[:40] in str(caught.value)
    assert len(str(caught.value)) < 300


@both
def test_no_tokenizer(make: Maker) -> None:
    for metadata in ({}, {"general.name": "x"}, make(model=...)):
        with pytest.raises(TokenizerError, match=r"tokenizer\.ggml\.model is missing"):
            tokenizer_from_metadata(metadata)


@both
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model", 7, "is int '7', not a string"),
        ("tokens", ..., "no tokens"),
        ("tokens", [], "no tokens"),
        ("tokens", "abc", "not an array of strings"),
        ("tokens", [1, 2, 3], "an array of int, not an array of strings"),
        ("tokens", ["a", 2, "b"], "an array of int and str"),
        ("tokens", ["a", None], "an array of NoneType and str"),
        ("tokens", [["a"], ["b"]], "an array of list"),
        ("tokens", [b"a"], "an array of bytes"),
        ("tokens", np.zeros(300, np.int8), "an array of int8, not an array of strings"),
        ("tokens", ["a", "\ud800"], "lone surrogate"),
        ("token_type", "x", "is str 'x', not an array of integers"),
        ("token_type", 3, "not an array of integers"),
        ("token_type", ["1"] * 999, "not an array of integers"),
        ("token_type", np.zeros(999, np.float32), "an array of float32"),
        ("token_type", np.zeros(999, np.bool_), "an array of bool"),
        ("token_type", np.zeros((999, 2), np.int32), "not an array of integers"),
        ("token_type", [[1], [2, 3]], "not an array of integers"),
        ("token_type", [1, 1], "has 2 elements for"),
        ("token_type", [], "has 0 elements for"),
        ("bos_token_id", "1", "is str '1', not an integer"),
        ("bos_token_id", 1.0, "is float '1.0', not an integer"),
        ("eos_token_id", True, "is bool 'True', not an integer"),
        ("eot_token_id", [1], "an array of int, not an integer"),
        ("add_bos_token", 1, "is int '1', not true or false"),
        ("add_bos_token", "true", "not true or false"),
        ("add_eos_token", [True], "not true or false"),
        ("chat_template", 5, "is int '5', not a string"),
    ],
)
def test_values_of_the_wrong_kind(make: Maker, key: str, value: object, message: str) -> None:
    with pytest.raises(TokenizerError, match=r"^tokenizer|^the model file") as caught:
        tokenizer_from_metadata(make(**{key: value}))
    assert message in str(caught.value)
    assert f"{key}" in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (..., "scores is missing"),
        ("x", "not an array of numbers"),
        (["0.5"] * 999, "not an array of numbers"),
        ([0.0] * 10, "has 10 elements for"),
        ([], "has 0 elements for"),
        ([0.0] * 260 + [float("nan")] * 20, "are NaN, the first at id 260"),
        (np.zeros(999, np.bool_), "an array of bool"),
        ([10**400] * 999, "not an array of numbers"),
    ],
)
def test_sentencepiece_needs_scores(scores: object, message: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        spm(scores=scores)
    assert message in str(caught.value)


def test_bpe_needs_no_scores() -> None:
    for scores in (..., "x", [], [float("nan")] * 999):
        assert bpe(scores=scores).encode("ab") == bpe().encode("ab")


@both
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_integers_of_any_width_are_read_as_declared(make: Maker, dtype: type) -> None:
    expected = tokenizer_from_metadata(make())
    metadata = make()
    metadata["tokenizer.ggml.token_type"] = np.array(
        metadata["tokenizer.ggml.token_type"],
        dtype,
    )
    tokenizer = tokenizer_from_metadata(metadata)
    assert tokenizer.encode(TEXT) == expected.encode(TEXT)


def test_scores_of_any_width_and_integers() -> None:
    scores = spm_metadata()["tokenizer.ggml.scores"]
    expected = spm().encode(TEXT)
    for dtype in (np.float16, np.float32, np.float64, np.int32, np.int8):
        assert spm(scores=(2 * np.array(scores)).astype(dtype)).encode(TEXT) == expected


@both
def test_arrays_longer_than_the_tokens_are_cut(make: Maker) -> None:
    metadata = make()
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], 3, 3]  # type: ignore[misc]
    expected = tokenizer_from_metadata(make()).encode(TEXT)
    assert tokenizer_from_metadata(metadata).encode(TEXT) == expected


@both
def test_types_out_of_range_count_as_plain(make: Maker) -> None:
    expected = tokenizer_from_metadata(make())
    metadata = make()
    types = [t if t in (2, 3, 6) else 77 for t in metadata["tokenizer.ggml.token_type"]]  # type: ignore[attr-defined]
    types[-1] = -(2**40)
    metadata["tokenizer.ggml.token_type"] = types
    assert tokenizer_from_metadata(metadata).encode(TEXT) == expected.encode(TEXT)


@both
def test_without_types_all_tokens_are_plain_but_end_texts(make: Maker) -> None:
    tokenizer = tokenizer_from_metadata(make(token_type=...))
    text = "ab ba é"
    assert tokenizer.decode(tokenizer.encode(text, add_bos=False)) == text
    assert {tokenizer.token_text(i) for i in tokenizer.eog_ids} <= {
        "</s>",
        "<|eot_id|>",
        "<|end_of_text|>",
    }
    assert all(map(tokenizer.is_special, tokenizer.eog_ids))


@both
@pytest.mark.parametrize("bad", [-2, 10**6, 2**31, 2**63])
def test_ids_out_of_range_are_ignored_and_told(make: Maker, bad: int) -> None:
    tokenizer = tokenizer_from_metadata(make(eot_token_id=bad, bos_token_id=bad))
    assert len([note for note in tokenizer.notes if str(bad) in note]) == 2
    assert bad not in tokenizer.eog_ids
    assert tokenizer.bos_id in (1, None)


def test_no_id_as_converters_write_it_is_no_remark() -> None:
    assert spm(padding_token_id=0xFFFFFFFF, eot_token_id=0xFFFFFFFF, eom_token_id=-1).notes == []


def test_default_ids_and_flags() -> None:
    tokenizer = spm()
    assert (tokenizer.bos_id, tokenizer.eos_id) == (1, 2)
    assert (tokenizer.add_bos, tokenizer.add_eos, tokenizer.add_space_prefix) == (True, False, True)
    tokenizer = bpe(bos_token_id=..., eos_token_id=...)
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos) == (None, None, False)
    assert bpe(pre="llama-bpe").add_bos
    assert not bpe(pre="llama-bpe", add_bos_token=False).add_bos
    assert not bpe(pre="qwen2").add_bos


def test_flags_of_the_file() -> None:
    plain = spm().encode("ab", add_bos=False)
    assert spm(add_bos_token=False).encode("ab") == plain
    assert spm(add_eos_token=True).encode("ab") == [1, *plain]
    assert spm(add_eos_token=True).encode("ab", add_eos=True) == [1, *plain, 2]
    assert spm(add_eos_token=True).encode("ab</s>", add_eos=True, parse_special=True) == [
        1,
        *plain,
        2,
    ]
    assert spm(add_eos_token=False).encode("ab", add_eos=True) == [1, *plain]
    tokenizer = spm(add_space_prefix=False)
    assert tokenizer.encode("ab", add_bos=False) != plain
    assert tokenizer.decode(tokenizer.encode(" ab", add_bos=False)) == " ab"


def test_bos_that_is_asked_for_but_not_named_is_left_out() -> None:
    tokenizer = bpe(bos_token_id=..., add_bos_token=True)
    assert "BOS" in tokenizer.notes[0]
    assert tokenizer.encode("ab") == bpe().encode("ab")


def test_repeated_tokens_use_the_last_id() -> None:
    words = [("▁", -5.0, 1), ("a", -5.0, 1), ("a", -5.0, 1), ("<s>", 0.0, 1)]
    tokenizer = spm(words)
    assert tokenizer.encode("a", add_bos=False) == [259, 261]
    assert "2 tokens repeat the text of another" in tokenizer.notes[0]
    assert tokenizer.decode([260, 261]) == "aa"
    doubled = bpe(words=[("ab", 1), ("ab", 1)])
    assert doubled.encode("ab") == [261]
    assert "repeat" in doubled.notes[0]


def test_empty_tokens_get_a_name() -> None:
    tokenizer = spm([("▁", -5.0, 1), ("", 0.0, 1), ("a", -5.0, 1)])
    assert tokenizer.token_text(260) == "[EMPTY_260]"
    assert tokenizer.encode("a", add_bos=False) == [259, 261]
    assert "id 260" in tokenizer.notes[0]
    assert bpe(words=[("", 1), ("", 3)]).encode("ab") == bpe().encode("ab")


def test_equal_scores_are_told() -> None:
    assert "scores are equal" in spm([("a", 0.0, 1), ("b", 0.0, 1)]).notes[0]


def test_infinite_scores_order_too() -> None:
    words = [("a", 0.0, 1), ("b", 0.0, 1), ("c", 0.0, 1), ("▁", 0.0, 1)]
    words += [("ab", float("-inf"), 1), ("bc", float("inf"), 1)]
    assert spm(words).encode("abc", add_bos=False) == [262, 259, 264]


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        (..., "merges is missing"),
        ("a b", "not an array of strings"),
        ([1, 2], "an array of int"),
        (["ab"], "merge 0 is 'ab'"),
        (["a b", "a "], "merge 1 is 'a '"),
        (["a b", ""], "merge 1 is ''"),
        (["a b", " "], "merge 1 is ' '"),
        (["a q", "nosuch a"], "does not fit the tokens"),
        (["a b c"], "does not fit the tokens"),
    ],
)
def test_malformed_merges(merges: object, message: str) -> None:
    metadata = bpe_metadata()
    del metadata["tokenizer.ggml.merges"]
    if merges is not ...:
        metadata["tokenizer.ggml.merges"] = merges
    with pytest.raises(TokenizerError) as caught:
        tokenizer_from_metadata(metadata).encode("ab")
    assert message in str(caught.value)


def test_of_repeated_merges_the_first_counts() -> None:
    merges = ["b c", "a b", "b c", "a bc"]
    tokenizer = bpe(["b c", "a b", "a bc"])
    metadata = bpe_metadata(["b c", "a b", "a bc"])
    metadata["tokenizer.ggml.merges"] = merges
    again = tokenizer_from_metadata(metadata)
    assert again.encode("abc") == tokenizer.encode("abc") == [258]


def test_bytes_that_the_vocabulary_lacks() -> None:
    """SentencePiece gives the unknown token for them, byte-level BPE drops them."""
    metadata: Metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "▁", "a"],
        "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -1.0, -2.0],
        "tokenizer.ggml.token_type": [2, 3, 3, 1, 1],
    }
    assert tokenizer_from_metadata(metadata).encode("aé") == [1, 3, 4, 0, 0]
    tokens = ["<|endoftext|>", "a", "b", "ab"]
    metadata = bpe_metadata(tokens=tokens, token_type=[3, 1, 1, 1], bos_token_id=0)
    metadata["tokenizer.ggml.merges"] = ["a b"]
    assert tokenizer_from_metadata(metadata).encode("abé") == [3]


def test_unknown_pre_names_the_known() -> None:
    with pytest.raises(TokenizerError, match=r"'nosuch'.*llama-bpe"):
        bpe(pre="nosuch")
    with pytest.raises(TokenizerError, match="not a string"):
        bpe(pre=3)


def test_missing_pre_of_an_unknown_vocabulary_is_default_and_told() -> None:
    for tokenizer in (bpe(pre=...), bpe(pre="")):
        assert "'default' rules" in tokenizer.notes[0]
        assert tokenizer.encode("ab, 1234") == bpe(pre="default").encode("ab, 1234")
    assert bpe(pre="default").notes == []


@both
def test_templates(make: Maker) -> None:
    tokenizer = tokenizer_from_metadata(
        make(**{"chat_template": "{% broken", "chat_template.tool_use": "B"})
    )
    assert tokenizer.chat_template == "{% broken"
    assert tokenizer.chat_templates == {"tool_use": "B"}
    assert tokenizer_from_metadata(make()).chat_template is None


@both
@pytest.mark.parametrize("bad", [-1, 10**6, 2**70, True, "1", 1.0, None])
def test_unknown_ids(make: Maker, bad: object) -> None:
    tokenizer = tokenizer_from_metadata(make())
    for use in (
        lambda: tokenizer.decode([1, bad]),  # type: ignore[list-item]
        lambda: tokenizer.stream().push(bad),  # type: ignore[arg-type]
        lambda: tokenizer.token_text(bad),  # type: ignore[arg-type]
        lambda: tokenizer.is_special(bad),  # type: ignore[arg-type]
    ):
        with pytest.raises(TokenizerError) as caught:
            use()
        assert str(bad) in str(caught.value)
    if isinstance(bad, int) and not isinstance(bad, bool):
        assert f"{tokenizer.vocab_size} tokens" in str(caught.value)


@both
def test_numpy_ids(make: Maker) -> None:
    tokenizer = tokenizer_from_metadata(make())
    ids = np.array(tokenizer.encode("ab é"), np.int32)
    assert tokenizer.decode(ids, skip_special=True) == "ab é"


@both
@pytest.mark.parametrize("text", ["a\ud800", "\udfff", b"ab", None, 5])
def test_text_that_is_none(make: Maker, text: object) -> None:
    with pytest.raises(InputError):
        tokenizer_from_metadata(make()).encode(text)  # type: ignore[arg-type]
