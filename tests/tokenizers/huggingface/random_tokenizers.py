"""Random tokenizer.json files: models, normalizers, pre-tokenizers and added tokens combined."""

from __future__ import annotations

import random
from typing import Any

from trinity.tokenizers.bpe import BYTE_CHARACTERS
from trinity.tokenizers.huggingface.pre_tokenizer import pre_tokenizer_of
from trinity.tokenizers.pretokenizers import PRE_TOKENIZERS

SPACE = "\u2581"
_WORDS = """
the The hello world naïve café über Привет мир 你好 世界 こんにちは 안녕 مرحبا नमस्ते สวัสดี ½ ² ﬁne
Ａｂｃ İstanbul ŒUVRE 123 4567 foo_bar it's can't end
 e\u0301 a\u0308b \u212b 😀 👍🏽 <x> < > [M] x ab bcd
"""
WORDS = _WORDS.split()
GAPS = ["", " ", "  ", "\n", "\t", "\u3000", "\u00a0", " \n ", SPACE, ".", "! ", "\u200b", "\0"]
_ADDED = ("<x>", "<|end|>", "[M]", "<Sp A>", "ab", "abc", "bcd", "Ünd", "é")
_REGEXES = ("llama-bpe", "qwen2", "gpt-2", "deepseek-v3")
_APART = ("<x>", "<|end|>", "[M]", "<é>")  # none begins as another ends
_SPECIAL = ("<unk>", "<s>", "</s>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SPACES = (SPACE * 2, "  ", " ab")
_ESCAPE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
_SIMPLE: tuple[dict[str, Any], ...] = (
    {"type": "NFC"}, {"type": "NFD"}, {"type": "NFKC"}, {"type": "NFKD"}, {"type": "Lowercase"},
    {"type": "StripAccents"}, {"type": "Nmt"},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {"type": "Strip", "strip_left": False, "strip_right": True},
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
    {"type": "Replace", "pattern": {"String": "l"}, "content": ""},
    {"type": "Prepend", "prepend": "a"},
    {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
     "strip_accents": None, "lowercase": True},
    {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": False,
     "strip_accents": False, "lowercase": True},
)  # fmt: skip
_CUTS: tuple[dict[str, Any], ...] = (
    {"type": "Digits", "individual_digits": True}, {"type": "Digits", "individual_digits": False},
    {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "BertPreTokenizer"},
    {"type": "Punctuation", "behavior": "Isolated"}, {"type": "UnicodeScripts"},
    {"type": "CharDelimiterSplit", "delimiter": " "},
    {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
     "invert": False},
    {"type": "Split", "pattern": {"Regex": "[0-9]+"}, "behavior": "Removed", "invert": False},
)  # fmt: skip


def text_of(draw: random.Random, added: list[str]) -> str:
    """Words of several scripts and added tokens, with all kinds of space between them or none."""
    pieces = [draw.choice(WORDS + added * 3) + draw.choice(GAPS) for _ in range(draw.randint(0, 9))]
    return draw.choice(GAPS) + "".join(pieces)


def tokenizer_json(draw: random.Random, kind: str) -> dict[str, Any]:
    """One of ``kind``: "bytes", "metaspace", "escaped", "unigram" or "wordpiece"."""
    model, vocab = _MODELS[kind](draw)
    if draw.random() < 0.3:
        return _usual(draw, kind, model, vocab)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(draw, vocab),
        "normalizer": _sequence("normalizers", _normalizers(draw, kind)),
        "pre_tokenizer": _sequence("pretokenizers", _pre_tokenizers(draw, kind)),
        "post_processor": None,
        "decoder": _decoder(draw, kind),
        "model": model,
    }


def _usual(
    draw: random.Random, kind: str, model: dict[str, Any], vocab: dict[str, int]
) -> dict[str, Any]:
    """As most published files are: GGUF's keys say the rules of many of them."""
    normalizer: dict[str, Any] | None = {
        "bytes": draw.choice((None, {"type": "NFC"})),
        "wordpiece": draw.choice(_SIMPLE[-2:]),
        "unigram": {"type": "NFKC"},
    }.get(kind, _ESCAPE)
    splitter: dict[str, Any] | None = {
        "bytes": pre_tokenizer_of(draw.choice(_REGEXES)),
        "wordpiece": {"type": "BertPreTokenizer"},
        "unigram": {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always"},
    }.get(kind)
    if kind == "metaspace" and draw.random() < 0.5:
        steps = [{"type": "Prepend", "prepend": SPACE}, _ESCAPE]
        normalizer = {"type": "Sequence", "normalizers": steps}
    special = [text for text in vocab if text in _SPECIAL]
    apart = [t for t in draw.sample(_APART, draw.randint(0, len(_APART))) if t not in vocab]
    ids = [*(vocab[text] for text in special), *range(len(vocab), len(vocab) + len(apart))]
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
    added = [
        {"id": token_id, "content": text, "special": draw.random() < 0.7, **flags}
        for token_id, text in zip(ids, [*special, *apart], strict=True)
    ]
    if draw.random() < 0.2 and added:
        draw.choice(added)[draw.choice(list(flags))] = True
    return {
        "version": "1.0", "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": splitter, "decoder": _decoder(draw, kind), "model": model,
    }  # fmt: skip


def _sequence(name: str, steps: list[dict[str, Any]]) -> dict[str, Any] | None:
    if len(steps) < 2:
        return steps[0] if steps else None
    return {"type": "Sequence", name: steps}


def _normalizers(draw: random.Random, kind: str) -> list[dict[str, Any]]:
    found = draw.sample(_SIMPLE, draw.choice((0, 0, 0, 1, 2)))
    if kind == "bytes" and draw.random() < 0.1:
        found.append({"type": "ByteLevel"})
    if kind in ("metaspace", "escaped") and draw.random() < 0.6:
        found += [{"type": "Prepend", "prepend": SPACE}] * draw.choice((0, 1)) + [_ESCAPE]
    return found


def _pre_tokenizers(draw: random.Random, kind: str) -> list[dict[str, Any]]:
    found = draw.sample(_CUTS, draw.choice((0, 0, 0, 1, 2)))
    if kind == "bytes":
        regexes = PRE_TOKENIZERS[draw.choice(_REGEXES)].regexes
        found += [
            {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
            for regex in regexes[: draw.choice((0, 9))]
        ]
        found.append(
            {"type": "ByteLevel", "add_prefix_space": draw.random() < 0.3, "trim_offsets": True,
             "use_regex": draw.random() < 0.5}
        )  # fmt: skip
    elif kind != "wordpiece" and draw.random() < 0.7:
        metaspace: dict[str, Any] = {
            "type": "Metaspace",
            "replacement": SPACE,
            "prepend_scheme": draw.choice(("first", "never", "always")),
            "split": draw.random() < 0.5,
        }
        if draw.random() < 0.2:  # as older files have it
            metaspace = {"type": "Metaspace", "replacement": SPACE, "add_prefix_space": True}
        found.append(metaspace)
    return found


def _decoder(draw: random.Random, kind: str) -> dict[str, Any] | None:
    if kind == "bytes":
        return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
    if kind == "wordpiece":
        return {"type": "WordPiece", "prefix": "##", "cleanup": False}
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if draw.random() < 0.5:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def _added_tokens(draw: random.Random, vocab: dict[str, int]) -> list[dict[str, Any]]:
    size = len(vocab)
    contents = draw.sample(_ADDED, draw.randint(0, len(_ADDED)))
    contents += draw.sample(_SPACES, draw.choice((0, 0, 1)))
    words = sorted(text for text in vocab if len(text) > 1 and not text.startswith("<"))
    known = [text for text in draw.sample(words, 2) if text not in contents]
    contents = [*[text for text in contents if text in vocab], *known, *contents]
    tokens, taken = [], size
    for content in dict.fromkeys(contents):
        token_id = vocab.get(content, taken)
        taken += token_id == taken
        tokens.append(
            {"id": token_id, "content": content}
            | {
                flag: draw.random() < chance
                for flag, chance in (
                    ("special", 0.5),
                    ("lstrip", 0.2),
                    ("rstrip", 0.2),
                    ("single_word", 0.2),
                    ("normalized", 0.4),
                )
            }
        )
    return sorted(tokens, key=lambda token: token["id"])


def _merged(draw: random.Random, words: list[str], vocab: dict[str, int]) -> list[list[str]]:
    """Merges that make random beginnings of words, whose tokens go into ``vocab``."""
    merges: dict[tuple[str, str], None] = {}
    for word in draw.sample(words, len(words)):
        left = word[:1]
        for right in word[1 : draw.randint(1, len(word))]:
            if left in vocab and right in vocab and left + right:
                merges[left, right] = None
                vocab.setdefault(left + right, len(vocab))
                left += right
    return [list(pair) for pair in merges]


def _together(merges: list[list[str]], vocab: dict[str, int]) -> list[list[str]]:
    """Every pair that makes a token, those of one token after each other."""
    made = dict.fromkeys(left + right for left, right in merges)
    return [
        [token[:cut], token[cut:]]
        for token in made
        for cut in range(1, len(token))
        if token[:cut] in vocab and token[cut:] in vocab
    ]


def _bytes(draw: random.Random) -> tuple[dict[str, Any], dict[str, int]]:
    vocab = {character: i for i, character in enumerate(BYTE_CHARACTERS.values())}
    words = [
        "".join(BYTE_CHARACTERS[byte] for byte in (space + word).encode())
        for word in WORDS
        for space in ("", " ", "\n")
    ]
    merges = _merged(draw, words, vocab)
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "ignore_merges": draw.random() < 0.4, "vocab": vocab, "merges": merges,
    }  # fmt: skip
    return model, vocab


def _characters(draw: random.Random) -> tuple[dict[str, Any], dict[str, int]]:
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    in_order = draw.random() < 0.5
    vocab |= {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    letters = sorted({letter for word in WORDS for letter in word} | {SPACE, "\n", ".", ","})
    for letter in letters:
        if draw.random() < 0.8:
            vocab[letter] = len(vocab)
    merges = _merged(draw, [s + w for w in WORDS for s in ("", SPACE, SPACE * 2)], vocab)
    if in_order:  # as SentencePiece's scores can say
        merges = _together(merges, vocab)
    model = {
        "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": draw.random() < 0.8, "byte_fallback": True,
        "ignore_merges": draw.random() < 0.1, "vocab": vocab, "merges": merges,
    }  # fmt: skip
    return model, vocab


def _unigram(draw: random.Random) -> tuple[dict[str, Any], dict[str, int]]:
    texts = ["<unk>", "<s>", "</s>", SPACE]
    texts += [f"<0x{byte:02X}>" for byte in range(256)] * (draw.random() < 0.3)
    for word in WORDS:
        texts += [
            SPACE + word[: draw.randint(1, len(word))],
            word[draw.randint(0, len(word) - 1) :],
        ]
        texts += [letter for letter in word if draw.random() < 0.7]
    texts = list(dict.fromkeys(texts))
    scores = [round(-10 * draw.random(), 2) for _ in texts]
    model = {
        "type": "Unigram",
        "unk_id": 0,
        "vocab": [list(p) for p in zip(texts, scores, strict=True)],
        "byte_fallback": SPACE in texts and "<0x00>" in texts,
    }
    return model, {text: i for i, text in enumerate(texts)}


def _wordpiece(draw: random.Random) -> tuple[dict[str, Any], dict[str, int]]:
    texts = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    for word in WORDS:
        cut = draw.randint(1, len(word))
        texts += [word[:cut], word[:1].lower(), "##" + word[cut:], "##" + word[-1:], word.lower()]
    texts = [text for text in dict.fromkeys(texts) if text != "##"]
    vocab = {text: i for i, text in enumerate(texts)}
    longest = draw.choice((100, 100, 4))
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": longest,
        "vocab": vocab,
    }
    return model, vocab


_MODELS = {
    "bytes": _bytes,
    "metaspace": _characters,
    "escaped": _characters,
    "unigram": _unigram,
    "wordpiece": _wordpiece,
}
