"""SentencePiece and BPE on vocabularies small enough to check by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from tests.matrix import parts, some
from tests.tokenizers.small_vocabularies import (
    bpe,
    bpe_metadata,
    reference_spm,
    spm,
    spm_metadata,
)
from trinity.errors import InputError
from trinity.tokenizers import Tokenizer, tokenizer_from_metadata
from trinity.tokenizers.bpe import refuse_white_space
from trinity.tokenizers.pretokenizers import PRE_TOKENIZERS

WORDS = st.lists(
    st.tuples(
        st.text("ab▁é", min_size=1, max_size=4),
        st.sampled_from([-1.0, -2.0, -2.5, 0.0]),
        st.sampled_from([0, 1, 4, 5]),
    ),
    unique_by=lambda word: word[0],
    min_size=1,
)


@pytest.mark.few(1)
@pytest.mark.parametrize("part", parts(3))
@settings(max_examples=100, deadline=None)
@given(words=WORDS, text=st.text("ab é\n\0c", max_size=30))
def test_sentencepiece_on_any_vocabulary(
    part: int, words: list[tuple[str, float, int]], text: str
) -> None:
    """User-defined tokens are cut out first, so each piece between them is checked."""
    words = [*words, ("▁", -9.0, 1)] if all(word != "▁" for word, _, _ in words) else words
    metadata = spm_metadata(words, add_space_prefix=False, add_bos_token=False)
    tokenizer = tokenizer_from_metadata(metadata)
    pieces: list[str | int] = [text] if text else []
    specials = [(259 + i, word) for i, (word, _, kind) in enumerate(words) if kind == 4]
    for token, special in sorted(specials, key=lambda s: -len(s[1].encode())):
        cut: list[str | int] = []
        for piece in pieces:
            if isinstance(piece, int):
                cut.append(piece)
                continue
            for i, part in enumerate(piece.split(special)):
                cut += ([token] if i else []) + ([part] if part else [])
        pieces = cut
    expected: list[int] = []
    for piece in pieces:
        expected += (
            [piece]
            if isinstance(piece, int)
            else reference_spm(
                metadata["tokenizer.ggml.tokens"],  # type: ignore[arg-type]
                metadata["tokenizer.ggml.scores"],  # type: ignore[arg-type]
                piece,
            )
        )
    assert tokenizer.encode(text) == expected
    if not any("▁" in word and kind == 4 for word, _, kind in words):
        assert tokenizer.decode(expected) == text


def test_best_score_wins_then_the_leftmost() -> None:
    words = [("a", -9.0, 1), ("aa", -1.0, 1), ("b", -9.0, 1), ("ab", -0.5, 1), ("▁", -9.0, 1)]
    tokenizer = spm(words, add_space_prefix=False, add_bos_token=False)
    assert tokenizer.encode("aaa") == [260, 259]
    assert tokenizer.encode("aab") == [259, 262]


def test_plain_text_never_becomes_a_control_token() -> None:
    """This holds even if merges could build its text, or if it is one character."""
    words = [("<", -1.0, 1), ("|", -1.0, 1), ("<|", -1.0, 1), ("<|x", -1.0, 3), ("x", -1.0, 1)]
    words += [("y", -1.0, 3), ("▁", -1.0, 1)]
    tokenizer = spm(words)
    for text in ("<|x", "y", "<s>", "</s>", "<unk>"):
        assert not any(map(tokenizer.is_special, tokenizer.encode(text, add_bos=False))), text
        assert tokenizer.decode(tokenizer.encode(text, add_bos=False)) == text
    assert 262 in tokenizer.encode("<|x", parse_special=True)
    for ignore in ("llama-bpe", "gpt-2"):
        tokenizer = bpe(["< |"], words=[("<||", 3)], pre=ignore, add_bos_token=False)
        assert tokenizer.encode("<||") == [256, ord("|") - 33]
        assert tokenizer.encode("<||", parse_special=True) == [257]


def test_nul_in_a_token_is_left_to_bytes() -> None:
    tokenizer = spm([("a", -1.0, 1), ("\0a", 0.0, 1), ("\1unused 3", 0.0, 1), ("▁", -3.0, 1)])
    assert tokenizer.encode("\0a", add_bos=False) == [262, 3, 259]
    assert tokenizer.decode(tokenizer.encode("\0a\1unused 3", add_bos=False)) == "\0a\1unused 3"


def test_bpe_merges_by_rank_then_from_the_left() -> None:
    tokenizer = bpe(["a a", "a b", "aa a"])
    names = [tokenizer.token_text(i) for i in tokenizer.encode("aaaab")]
    assert names == ["aa", "aa", "b"]
    assert [tokenizer.token_text(i) for i in tokenizer.encode("aaab")] == ["aa", "ab"]


def test_ignored_merges_take_whole_words() -> None:
    words = [("abc", 1)]
    assert bpe(["b c"], words, pre="llama-bpe", add_bos_token=False).encode("abc") == [257]
    assert bpe(["b c"], words, pre="gpt-2").encode("abc") == [64, 256]


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("llama-bpe", "It'S 12345,  x\r\n\n y", "It|'S| |123|45|,| | x|\r\n\n| y"),
        ("qwen2", "It'S 12345", "It|'S| |1|2|3|4|5"),
        ("gpt-2", "It'S 12345,  x\n y", "It|'|S| 12345|,| | x|\n| y"),
        ("starcoder", "a 123", "a| |1|2|3"),
        ("falcon", "a,1234 b", "a|,|123|4| b"),
        ("default", "a$,1234 b 12", "a|$,|123|4| b| |12"),
        ("deepseek-llm", "Ab é 12中文\n [x]", "Ab| é| |12|中文|\n| [|x|]"),
        ("deepseek-coder", "Ab 12中文\n [x]", "Ab| |1|2|中文|\n| [|x|]"),
        ("deepseek-v3", "Ab 1234中文 .x", "Ab| |123|4|中文| .|x"),
        ("tekken", "HelloWorld 12 x/\n", "Hello|World| |1|2| x|/\n"),
        ("gpt-4o", "HelloWorld's 1234", "Hello|World's| |123|4"),
        ("qwen35", "e\u0301a 12", "e\u0301a| |1|2"),
        ("kimi-k2", "HelloWorld's 1234中文ab中", "Hello|World's| |123|4|中文|ab|中"),
        ("bailingmoe", "It's 12\n\n [x]", "It|'s| |1|2|\n\n| [|x|]"),
        ("seed-coder", "It's 12 [\n x", "It|'s| |1|2| [|\n| x"),
        ("exaone-moe", "It's a word, 12", "It|'s| a word|,| |1|2"),
        ("superbpe", "ab cd 12345", "ab cd |12|345"),
        ("poro-chat", "ab cd. 12", "ab| cd|.| 12"),
        ("viking", "ab cd. 12", "ab| cd|.| |1|2"),
        ("afmoe", "ab 1234567中文 .x", "ab| |1|234|567|中文| .|x"),
        ("laguna", "It's 12\n\n x", "It|'s| |1|2|\n\n| x"),
        ("youtu", "Ab's 12한글中文 x/\n", "Ab's| |1|2|한글|中文| x|/\n"),
        ("ufakzeka", "Ab's 12", "Ab|'s| |1|2"),
        ("jais-2", "It's 1234     x", "It|'s| |123|4|    | x"),
        ("tiny_aya", "ab 1234567", "ab| |1|234|567"),
    ],
)
def test_words_of_each_family(pre: str, text: str, pieces: str) -> None:
    sequence = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r), "isolated") for r in PRE_TOKENIZERS[pre].regexes]
    )
    assert "|".join(word for word, _ in sequence.pre_tokenize_str(text)) == pieces


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "pre",
    some(sorted(PRE_TOKENIZERS), ["default", "falcon", "gpt-2", "llama-bpe", "qwen2", "tekken"]),
)
def test_every_family_builds_and_keeps_the_text(pre: str) -> None:
    tokenizer = bpe(pre=pre, add_bos_token=False)
    text = "Ab's 12345,  x\r\n\n\t é 中文 한 🦙 \0 [](x) ____  $%"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    space = " " * 200_000 + "1"  # in time that grows with the text, not its square
    assert tokenizer.decode(tokenizer.encode(space)) == space


def test_user_defined_tokens_are_found_in_any_text() -> None:
    tokenizer = bpe(words=[("<x>", 4), ("<x><y>", 4), ("ab", 4)])
    start = len(bpe_metadata()["tokenizer.ggml.tokens"]) - 3  # type: ignore[arg-type]
    assert tokenizer.encode("<x>") == [start]
    assert tokenizer.encode("<x><y><x>") == [start + 1, start]  # the longest first
    assert tokenizer.encode("q<x>q") == [80, start, 80]
    assert tokenizer.decode(tokenizer.encode("q<x>q"), skip_special=True) == "q<x>q"


def test_longest_special_token_wins_wherever_it_is() -> None:
    tokenizer = bpe(words=[("QW", 4), ("WXY", 4)])
    wxy = len(bpe_metadata()["tokenizer.ggml.tokens"]) - 2  # type: ignore[arg-type]
    assert tokenizer.encode("QWXY") == [48, wxy]


def test_repaired_control_tokens() -> None:
    """Some old files have the BOS text before that of every control token."""
    bos = "<|begin_of_text|>"
    words = [(f"{bos}<|start_header_id|>", 3), (f"{bos}<|eom_id|>", 3), (f"{bos}x", 1)]
    tokenizer = bpe(words=words)
    first = tokenizer.vocab_size - 6
    assert tokenizer.token_text(first) == "<|start_header_id|>"
    assert tokenizer.token_text(first + 2) == f"{bos}x"
    assert first + 1 in tokenizer.eog_ids
    assert "2 control tokens" in tokenizer.notes[0]
    assert tokenizer.encode("<|start_header_id|>", parse_special=True) == [first]


def test_end_of_generation() -> None:
    words = [("<|im_end|>", 1), ("<|endoftext|>", 4), ("<|file_sep|>", 3), ("other", 3), ("z", 1)]
    base = bpe(words=words).vocab_size - 3 - len(words)
    tokenizer = bpe(words=words, eot_token_id=base + 3, eom_token_id=base + 4)
    assert tokenizer.eog_ids == {base, base + 1, base + 2, base + 3, base + 4, base + 6, base + 7}
    assert tokenizer.is_special(base)  # though the file calls it plain
    assert not tokenizer.is_special(base + 4)
    harmony = bpe(words=[("<|end|>", 3), ("<|return|>", 3), ("<|call|>", 3)])
    texts = {harmony.token_text(i) for i in harmony.eog_ids}
    assert texts == {"<|return|>", "<|call|>", "<|end_of_text|>", "<|eot_id|>"}


def test_spaces_after_special_tokens_come_back() -> None:
    tokenizer = spm()
    for text in ("a</s>b", "a</s> b", " a", "  </s>", "</s></s>a", " "):
        assert tokenizer.decode(tokenizer.encode(text, add_bos=False, parse_special=True)) == text
    ids = tokenizer.encode("a", add_bos=False)
    assert tokenizer.decode(ids) == "a"
    assert tokenizer.decode(ids, continuation=True) == " a"


def test_half_characters_wait() -> None:
    tokenizer = spm()
    llama = [3 + byte for byte in "🦙".encode()]
    stream = tokenizer.stream()
    assert [stream.push(i) for i in llama] == ["", "", "", "🦙"]
    assert stream.finish() == ""
    assert [stream.push(i) for i in llama[:3]] == ["", "", ""]
    assert stream.finish() == "\ufffd"
    assert stream.push(llama[0]) == ""
    assert stream.push(3 + ord("x")) == "\ufffdx"
    assert tokenizer.decode(llama[:3]) == "\ufffd"


def test_millions_of_spaces_are_refused() -> None:
    with pytest.raises(InputError, match="5000000 white space characters in a row"):
        bpe().encode(" " * 5_000_000)


@pytest.mark.parametrize("before", [0, 1, 70_000, 3_999_999, 4_000_001])
@pytest.mark.parametrize("after", [0, 5, 4_100_000])
def test_the_longest_white_space_is_found_at_every_place(before: int, after: int) -> None:
    space = "\n\t \u3000" * 1_000_000
    refuse_white_space("a" * before + space + "b" * after)
    with pytest.raises(InputError, match="4000001 white space characters in a row"):
        refuse_white_space("a" * before + space + " " + "b" * after)


@pytest.mark.few(1)
@pytest.mark.parametrize("make", [bpe, spm])
def test_other_threads_get_on_while_a_long_text_is_tokenized(make: Callable[[], Tokenizer]) -> None:
    tokenizer, text = make(), "ab a\n" * 300_000
    short = tokenizer.encode(text[:5000], add_bos=False)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(tokenizer.encode(text, add_bos=False)))
    thread.start()
    turns = 0
    while thread.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 20  # a library that keeps the interpreter's lock leaves two or three
    assert found[: len(short) - 2] == short[:-2]
    assert tokenizer.decode(found) == text
