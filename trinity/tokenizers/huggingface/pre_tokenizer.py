"""Find the name of the pre-tokenizer that a tokenizer.json describes.

llama.cpp's converter finds the name by a hash of token ids. This module reads the description
instead: it converts it to a sequence of regexes and searches trinity's table for them. If the
description is unknown, it searches for known rules that give the same ids for a test text; this
needs a large vocabulary.
"""

from __future__ import annotations

from trinity.errors import UnsupportedError
from trinity.tokenizers import tokenizer_from_metadata
from trinity.tokenizers.huggingface.vocabulary_source import CHECK_TEXT, VocabularySource
from trinity.tokenizers.pretokenizers import PRE_TOKENIZERS

MERGES_THAT_TELL = 20_000
# All kinds of characters next to each other and in runs, with upper and lower case in words.
_KINDS = (
    "a", "The", "word", "CamelCase", "UPPER", "1", "22", "333", "4444", "55555",
    " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t",
    "'s", "'LL", "'", ".", ",", "...", "!!", "_", "-", "$", "==", "/", "//",
    "\u00e9t\u00e9", "\u0434\u043e\u043c", "\u4e2d\u6587", "\u3042", "\u0e01\u0e33", "\u0915\u093f",
    "\u00bd", "\u00b2", "\u2014", "\u20ac", "\U0001f600",
)  # fmt: skip
TELLING_TEXT = CHECK_TEXT + "".join(first + second for first in _KINDS for second in _KINDS)

# ByteLevel with use_regex, and Digits. Source: tokenizers' byte_level.rs and digits.rs.
_GPT2 = PRE_TOKENIZERS["gpt-2"].regexes[0]
_DIGIT, _DIGITS = r"\p{N}", r"\p{N}+"


def pre_tokenizer_name(description: object, ignore_merges: bool) -> str | None:
    """Return the value of tokenizer.ggml.pre for the "pre_tokenizer" object of a tokenizer.json.

    Return None if it is unknown.
    """
    regexes = tuple(regex for step in _steps(description) for regex in _regexes(step))
    for name, known in PRE_TOKENIZERS.items():
        if known.regexes == regexes and known.ignore_merges == ignore_merges:
            return name
    return None


def pre_tokenizer_of(name: str) -> dict[str, object]:
    """Return a "pre_tokenizer" object with the rules of a name."""
    steps: list[object] = [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
        for regex in PRE_TOKENIZERS[name].regexes
    ]
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {"type": "Sequence", "pretokenizers": [*steps, {**last, "use_regex": False}]}


def name_by_ids(source: VocabularySource, merges: list[str], ignore_merges: bool) -> str | None:
    """Return the first known rules that give the library's ids of TELLING_TEXT, or None.

    ``source`` has no added tokens yet. The result is None for a small vocabulary: its tokens are
    too short to show where a text is cut.
    """
    if len(merges) < MERGES_THAT_TELL:
        return None
    expected = source.reference.ids[TELLING_TEXT]
    metadata = {
        "tokenizer.ggml.model": source.model,
        "tokenizer.ggml.tokens": [token or "" for token in source.tokens],
        "tokenizer.ggml.merges": merges,
    }
    for name in one_name_each():
        if PRE_TOKENIZERS[name].ignore_merges != ignore_merges:
            continue
        tokenizer = tokenizer_from_metadata({**metadata, "tokenizer.ggml.pre": name})
        if tokenizer.encode(TELLING_TEXT, add_bos=False) == expected:
            return name
    return None


def unknown(description: object, ignore_merges: bool, source: str) -> UnsupportedError:
    """Return an error that shows the unknown rules and lists the known ones."""
    return UnsupportedError(
        f"{source}: the pre-tokenizer is unknown, {'' if ignore_merges else 'not '}ignoring "
        f"merges: {description!r:.400}; trinity knows those of {', '.join(one_name_each())}"
    )


def _steps(description: object) -> list[object]:
    if isinstance(description, dict) and description.get("type") == "Sequence":
        steps = description.get("pretokenizers")
        return steps if isinstance(steps, list) else [description]
    return [description]


def _regexes(step: object) -> tuple[str | None, ...]:
    """Return the regexes that one step splits by, or (None,) if it is unknown."""
    if not isinstance(step, dict):
        return (None,)
    kind = step.get("type")
    if kind == "ByteLevel" and not step.get("add_prefix_space", True):
        return (_GPT2,) if step.get("use_regex", True) else ()
    if kind == "Digits":
        return (_DIGIT if step.get("individual_digits") else _DIGITS,)
    if kind == "Split":
        pattern = step.get("pattern")
        regex = pattern.get("Regex") if isinstance(pattern, dict) else None
        # For regexes that match everything, removing the rest is the same as isolating matches.
        form = (step.get("behavior"), bool(step.get("invert")))
        if isinstance(regex, str) and form in (("Isolated", False), ("Removed", True)):
            return (regex,)
    return (None,)


def one_name_each() -> list[str]:
    """Return one name for each set of rules."""
    names: dict[object, str] = {}
    for name, known in PRE_TOKENIZERS.items():
        names.setdefault((known.regexes, known.ignore_merges), name)
    return list(names.values())
