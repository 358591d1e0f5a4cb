"""Find the rules of a tokenizer.json for which GGUF has no keys, and keep them in another key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from trinity.errors import TokenizerError, UnsupportedError
from trinity.tokenizers.huggingface.reference import Reference, json_reference
from trinity.tokenizers.huggingface.vocabulary_source import CHECK_TEXT, VocabularySource
from trinity.tokenizers.rules import is_escape, rules_of, steps
from trinity.tokenizers.spm import SPACE
from trinity.tokenizers.vocabulary import (
    CONTROL,
    SPECIAL_TEXTS,
    UNKNOWN,
    USER_DEFINED,
    made_by_merges,
)

_MOST_COMPARED = 10_000_000  # characters of the beginnings of added tokens
_MOST_CHECKED = 100  # added tokens in the text that is compared
_SECTIONS = ("normalizer", "pre_tokenizer", "decoder")
_VOCABULARY = ("vocab", "merges")
# Options of BPE that change its ids and that the rules do not keep.
_REFUSED = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")


def reference_of(
    values: Mapping[str, object], path: str, rows: int, texts: Sequence[str] = (CHECK_TEXT,)
) -> Reference:
    """The library's ids of ``texts`` and of a text with the file's added tokens.

    ``rows``: the number of rows of the embedding; added tokens with greater ids are ignored.

    Raises: as ``json_reference``; UnsupportedError if the library gives an added token another id
    than the file.
    """
    added = [token for token in _added(values) if _fits(token, rows)]
    contents = [str(token.get("content")) for token in added]
    reference = json_reference(values, path, (*texts, text_with(contents)), contents)
    for token in added:
        number = reference.added.get(str(token.get("content")))
        if number != token.get("id"):
            raise UnsupportedError(
                f"{path}: the added token {token.get('content')!r:.60} has the id "
                f"{token.get('id')} in the file, but {number} in the tokenizers library; the ids "
                "of added tokens must follow those of the vocabulary"
            )
    return reference


def text_with(contents: Sequence[str]) -> str:
    """A text in which each added token occurs alone, between words and between spaces."""
    step = max(1, len(contents) // _MOST_CHECKED)
    return "".join(
        f"{content} {content}x{content}  Word {content} ,\n{content.lower()}{content}"
        for content in contents[::step]
    )


def add_rules(source: VocabularySource, values: Mapping[str, object], *, is_plain: bool) -> None:
    """Store the rules of the tokenizer.json ``values`` in ``source`` if GGUF has no keys for them.

    ``is_plain``: GGUF has keys for its normalizer and pre-tokenizer. Raises UnsupportedError for
    rules that trinity does not run, TokenizerError for malformed ones.
    """
    added = _added(values)
    if not (is_plain and _are_plain(added) and _finds_only(source, added)):
        added = [token for token in added if _fits(token, source.rows)]
        source.rules = _kept(values, added, source.source)


def has_normalized(values: Mapping[str, object]) -> bool:
    """Whether added tokens are searched for in the normalized text."""
    return any(token.get("normalized") for token in _added(values))


def decodes_alike(values: Mapping[str, object], prefix: bool) -> bool:
    """Whether decoding drops the first space of a text exactly if encoding adds one."""
    decoder = values.get("decoder")
    return decoder is None or rules_of({"decoder": decoder}).drops_first_space is prefix


def has_known_steps(pre_tokenizer: object) -> bool:
    """Whether trinity supports all steps of a pre-tokenizer."""
    try:
        rules_of({"pre_tokenizer": pre_tokenizer})
    except (TokenizerError, UnsupportedError):
        return False
    return True


def check_escapes(values: Mapping[str, object], path: str) -> None:
    """Raise UnsupportedError if spaces do not become U+2581, as they are in the vocabulary."""
    normalizer, splitter = values.get("normalizer"), values.get("pre_tokenizer")
    kinds = [step.get("type") for step in steps(splitter)]
    spaces = [s for s in steps(splitter) if s.get("type") == "Metaspace"]
    if "ByteLevel" in kinds or not (
        any(map(is_escape, steps(normalizer))) or any(s.get("replacement") == SPACE for s in spaces)
    ):
        raise UnsupportedError(
            f"{path}: a SentencePiece tokenizer with the normalizer {normalizer!r:.120} and the "
            f"pre-tokenizer {splitter!r:.120} is not supported: one of them must write spaces as "
            "U+2581"
        )


def _finds_only(source: VocabularySource, added: list[dict[str, object]]) -> bool:
    """Whether GGUF's rules find no other tokens in a text than the file's added tokens.

    GGUF's rules also find unknown tokens and end tokens, which may be plain words in the file.
    """
    contents = {token.get("content") for token in added}
    tokens = {
        token
        for token, kind in zip(source.tokens, source.types, strict=True)
        if token is not None
        and token not in contents
        and (kind in (UNKNOWN, CONTROL, USER_DEFINED) or token in SPECIAL_TEXTS)
    }
    return tokens <= made_by_merges(tokens, source.merges or ())


def _fits(token: Mapping[str, object], rows: int) -> bool:
    """Whether the embedding has a row for the token."""
    token_id = token.get("id")
    return not isinstance(token_id, int) or token_id < rows


def _kept(values: Mapping[str, object], added: list[dict[str, object]], path: str) -> str:
    model = values.get("model")
    assert isinstance(model, dict)
    for key in _REFUSED:
        if model.get(key) and model.get("type") == "BPE":
            raise UnsupportedError(f"{path}: BPE with {key} {model[key]!r:.40} is not supported")
    vocab = model.get("vocab")
    words = set(vocab) if isinstance(vocab, dict) else {pair[0] for pair in vocab or []}
    sections: dict[str, object] = {name: values.get(name) for name in _SECTIONS}
    sections["model"] = {k: v for k, v in model.items() if k not in _VOCABULARY}
    sections["added_tokens"] = [{**t, "in_model": t.get("content") in words} for t in added]
    try:
        rules_of(sections)
    except (TokenizerError, UnsupportedError) as error:
        raise type(error)(f"{path}: {error}") from error
    return json.dumps(sections, ensure_ascii=False, separators=(",", ":"))


def _added(values: Mapping[str, object]) -> list[dict[str, object]]:
    added = values.get("added_tokens") or []
    if not isinstance(added, list):
        raise TokenizerError("added_tokens is not a list")
    for token in added:
        if not isinstance(token, dict) or not isinstance(token.get("content"), str):
            raise TokenizerError(f"an added token is {token!r:.100}; expected content and id")
    return added


def _are_plain(added: list[dict[str, object]]) -> bool:
    """Whether a search for the longest added token first finds the same tokens as the library.

    The library takes the leftmost token, and the longest of those that begin there. Both searches
    find the same if no token contains another or begins as another one ends.
    """
    if any(t.get(flag) for t in added for flag in ("lstrip", "rstrip", "single_word")):
        return False
    texts = [str(t.get("content")) for t in added]
    if any(" " in text or SPACE in text for text in texts):
        return False
    if sum(len(text) ** 2 for text in texts) > _MOST_COMPARED:
        return False
    normalized = {bool(t.get("normalized")) for t in added}
    if len(normalized) == 2 and _overlap(texts, contained=True):
        return False
    return not _overlap(texts, contained=False)


def _overlap(texts: list[str], *, contained: bool) -> bool:
    """Whether the end of one text is the beginning of another, or one holds another."""
    runs = [text for text in texts if len(set(text)) == 1]  # which may follow each other
    others = [text for text in texts if len(set(text)) > 1]
    starts = {text[:n] for text in others for n in range(1, len(text))}
    starts_of_runs = {text[:n] for text in runs for n in range(1, len(text))}
    for text in texts:
        known = starts | starts_of_runs if len(set(text)) > 1 else starts
        if any(text[first:] in known for first in range(1, len(text))):
            return True
    if not contained:
        return False
    known = set(texts)
    return any(
        text[first:last] in known
        for text in texts
        for first in range(len(text))
        for last in range(first + 1, len(text) + 1)
        if (first, last) != (0, len(text))
    )
