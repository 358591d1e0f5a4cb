"""Rules of a tokenizer.json for which GGUF has no keys, stored in a key of trinity's own.

The key contains the JSON of the file's sections without the vocabulary and the merges, for which
GGUF has keys. The `tokenizers` library runs these sections in this process. A file may be hostile,
so only steps and patterns that take time in proportion to the text are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from trinity.errors import TokenizerError, UnsupportedError
from trinity.formats.json_object import parse_json_object
from trinity.tokenizers import metadata as read
from trinity.tokenizers.pretokenizers import PRE_TOKENIZERS

KEY = "tokenizer.trinity.rules"  # see docs/convert.md
SCORES_KEY = "tokenizer.trinity.scores"  # of a Unigram vocabulary, in 64 bits
NFC_KEY = "tokenizer.trinity.nfc"  # whether texts are composed; all other rules are GGUF's

_SPACE = "\u2581"
_NORMALIZERS = frozenset(
    ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "BertNormalizer",
     "Precompiled", "Nmt", "ByteLevel", "Replace", "Prepend")
)  # fmt: skip
_PRE_TOKENIZERS = frozenset(
    ("ByteLevel", "Digits", "Metaspace", "Whitespace", "WhitespaceSplit", "Punctuation",
     "BertPreTokenizer", "UnicodeScripts", "CharDelimiterSplit", "Split")
)  # fmt: skip
_REGEXES = frozenset(regex for known in PRE_TOKENIZERS.values() for regex in known.regexes)
_MOST_STEPS, _LONGEST_TEXT, _LONGEST_CHARSMAP = 16, 64, 1 << 22
_MOST_ADDED, _LONGEST_ADDED = 1 << 16, 1 << 14
_MOST_GROWTH = 4096  # characters that a character may become by Replace
_FLAGS = ("special", "single_word", "lstrip", "rstrip", "normalized", "in_model")


class AddedToken(NamedTuple):
    """A token that is found in the text before the rest is tokenized.

    ``in_model``: it is in the model's vocabulary too. The flags are those of tokenizer.json.
    """

    id: int
    content: str
    special: bool
    single_word: bool
    lstrip: bool
    rstrip: bool
    normalized: bool
    in_model: bool


class Rules(NamedTuple):
    """The checked sections of a tokenizer.json, without vocabulary and merges.

    ``model`` has the options of the model's section, such as "unk_token".
    """

    normalizer: Mapping[str, object] | None
    pre_tokenizer: Mapping[str, object] | None
    decoder: Mapping[str, object] | None
    model: Mapping[str, object]
    added_tokens: tuple[AddedToken, ...]

    @property
    def drops_first_space(self) -> bool:
        """Whether decoding drops a space at the beginning of the text."""
        for step in steps(self.decoder, "decoders"):
            if step.get("type") == "Strip" and step.get("content") == " " and step.get("start"):
                return True
            if step.get("type") == "Metaspace":
                return prepends(step) != "never"
        return False

    @property
    def keeps_text(self) -> bool:
        """Whether no byte of a text is dropped or changed, except for spaces that are escaped."""
        return (
            all(s.get("type") == "Prepend" or is_escape(s) for s in steps(self.normalizer))
            and all(
                s.get("type") in ("ByteLevel", "Metaspace", "Digits")
                or (s.get("type") == "Split" and s.get("behavior") != "Removed")
                for s in steps(self.pre_tokenizer)
            )
            and not any(token.lstrip or token.rstrip for token in self.added_tokens)
        )


def read_rules(metadata: Mapping[str, object]) -> Rules | None:
    """The rules in a model file's metadata, or None if there are none.

    Raises TokenizerError for malformed rules, UnsupportedError for unknown steps.
    """
    text = read.text(metadata, KEY.removeprefix("tokenizer."))
    if text is None:
        return None
    if len(text) > read.MAX_BYTES:
        raise TokenizerError(f"{KEY} has {len(text)} characters, far more than any tokenizer has")
    try:
        return rules_of(parse_json_object(text.encode(), KEY))
    except UnicodeEncodeError as error:
        raise TokenizerError(f"{KEY} is not UTF-8 text: {error}") from error


def rules_of(values: Mapping[str, object]) -> Rules:
    """Check the sections of a tokenizer.json. Raises: as ``read_rules``."""
    normalizer, pre_tokenizer = values.get("normalizer"), values.get("pre_tokenizer")
    _check_normalizers(list(steps(normalizer)))
    _check_pre_tokenizers(list(steps(pre_tokenizer)))
    added = values.get("added_tokens") or []
    if not isinstance(added, list) or len(added) > _MOST_ADDED:
        raise TokenizerError(f"added_tokens is not a list of at most {_MOST_ADDED} tokens")
    decoder, model = values.get("decoder"), values.get("model")
    return Rules(
        _object(normalizer), _object(pre_tokenizer), _object(decoder), _object(model) or {},
        tuple(map(_added_token, added)),
    )  # fmt: skip


def tokenizer_notes(metadata: Mapping[str, object]) -> list[str]:
    """Warnings about a GGUF file whose texts other engines tokenize differently."""
    if KEY in metadata:
        return [
            f"GGUF has no keys for these rules of the tokenizer: {_shown(read_rules(metadata))};"
            f" they are stored in {KEY}, which other engines ignore, so some texts become other"
            " tokens there"
        ]
    if metadata.get(NFC_KEY) is True:
        return [
            f"the tokenizer composes characters (NFC), which is stored in {NFC_KEY}; other engines"
            " ignore that key, so text with decomposed characters becomes other tokens there"
        ]
    return []


def _shown(rules: Rules | None) -> str:
    if rules is None:
        return ""
    flags = ("single_word", "lstrip", "rstrip", "normalized")
    used = [flag for flag in flags if any(getattr(t, flag) for t in rules.added_tokens)]
    names = [
        *(f"the normalizer {step['type']}" for step in steps(rules.normalizer)),
        *(f"the pre-tokenizer {step['type']}" for step in steps(rules.pre_tokenizer)),
        *(f"added tokens with {flag}" for flag in used),
    ]
    return ", ".join(names) or "how added tokens are found"


def steps(section: object, name: str = "") -> Iterator[dict[str, object]]:
    """The steps of a section, which may be null, one step or a Sequence of steps.

    Raises TokenizerError for anything else.
    """
    if section is None:
        return
    if not isinstance(section, dict):
        raise TokenizerError(f"a section of tokenizer.json is {section!r:.60}, not an object")
    if section.get("type") != "Sequence":
        yield section
        return
    names = (name,) if name else ("normalizers", "pretokenizers")
    for inner in next((v for n in names if isinstance(v := section.get(n), list)), []):
        if isinstance(inner, dict) and inner.get("type") == "Sequence":
            raise UnsupportedError("a Sequence within a Sequence is not supported")
        yield from steps(inner)


def prepends(step: Mapping[str, object]) -> str:
    """The prepend_scheme of a Metaspace step: "first", "always" or "never"."""
    if step.get("add_prefix_space") is False:  # how older files say it
        return "never"
    return str(step.get("prepend_scheme", "always"))


def is_escape(step: Mapping[str, object]) -> bool:
    """Whether a normalizer writes spaces as U+2581."""
    return (
        step.get("type") == "Replace"
        and step.get("pattern") == {"String": " "}
        and step.get("content") == _SPACE
    )


def _check_normalizers(all_steps: list[dict[str, object]]) -> None:
    _check_types(all_steps, _NORMALIZERS, "normalizer")
    growth = 1
    for step in all_steps:
        if step["type"] == "Replace":
            _check_pattern(step.get("pattern"))
            content = step.get("content")
            growth *= len(content) + 1 if isinstance(content, str) else 1
    if growth > _MOST_GROWTH:
        raise UnsupportedError("the Replace normalizers make texts too long")


def _check_pre_tokenizers(all_steps: list[dict[str, object]]) -> None:
    _check_types(all_steps, _PRE_TOKENIZERS, "pre-tokenizer")
    for step in all_steps:
        if step["type"] == "Split":
            _check_pattern(step.get("pattern"))


def _check_types(all_steps: list[dict[str, object]], known: frozenset[str], what: str) -> None:
    if len(all_steps) > _MOST_STEPS:
        raise UnsupportedError(
            f"{what} has {len(all_steps)} steps; at most {_MOST_STEPS} are supported"
        )
    for step in all_steps:
        kind = step.get("type")
        if not isinstance(kind, str) or kind not in known:
            raise UnsupportedError(f"the {what} {kind!r:.60} is not supported")
        longest = _LONGEST_CHARSMAP if kind == "Precompiled" else _LONGEST_TEXT
        for value in step.values():
            if isinstance(value, str) and len(value) > longest:
                raise UnsupportedError(
                    f"the {what} {kind} has a text of {len(value)} characters, which is too long"
                )


def _check_pattern(pattern: object) -> None:
    """Raise UnsupportedError for a pattern that may take long: unknown, and not a simple one.

    Without groups, and with two repetitions at most, the time cannot explode.
    """
    match pattern:
        case {"String": str(text)} if 0 < len(text) <= _LONGEST_TEXT:
            return
        case {"Regex": str(regex)}:
            simple = len(regex) <= _LONGEST_TEXT and "(" not in regex
            if regex in _REGEXES or (simple and len(re.findall(r"[*+{]", regex)) <= 2):
                return
    raise UnsupportedError(f"the pattern {pattern!r:.120} is not supported")


def _added_token(fields: object) -> AddedToken:
    match fields:
        case {"id": int(token_id), "content": str(content), **more} if (
            0 < len(content) <= _LONGEST_ADDED
        ):
            flags = [more.get(name) is True for name in _FLAGS]
            return AddedToken(token_id, content, *flags)
    raise TokenizerError(f"an added token is {fields!r:.100}; expected content and id")


def _object(section: object) -> Mapping[str, object] | None:
    if section is None or isinstance(section, dict):
        return section
    raise TokenizerError(f"a section of tokenizer.json is {section!r:.60}, not an object")
