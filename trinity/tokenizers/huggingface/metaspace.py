"""tokenizer.json of a SentencePiece tokenizer without tokenizer.model: GGUF's "llama".

transformers writes such files: BPE over characters, with U+2581 for a space and tokens for the
bytes of other characters. SentencePiece merges the pair whose result has the highest score; the
file's BPE merges the listed pair of the lowest rank. Both agree if every pair of tokens that form a
token is listed, and the pairs of each token are adjacent. Then a token's score is minus the rank of
its first pair. Other files keep their merges and rules in addition to the scores.
Source: transformers convert_slow_tokenizer.py, generate_merges.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from trinity.errors import UnsupportedError
from trinity.tokenizers.huggingface import tokenizer_json
from trinity.tokenizers.huggingface.file_rules import (
    add_rules,
    check_escapes,
    decodes_alike,
    has_normalized,
    reference_of,
)
from trinity.tokenizers.huggingface.vocabulary_source import VocabularySource
from trinity.tokenizers.rules import prepends, steps
from trinity.tokenizers.spm import SPACE
from trinity.tokenizers.vocabulary import BYTE, NORMAL, UNKNOWN

_PREPEND = {"type": "Prepend", "prepend": SPACE}


def is_metaspace(values: Mapping[str, object]) -> bool:
    """Whether a tokenizer.json has a SentencePiece tokenizer: BPE with byte fallback."""
    model = values.get("model")
    return isinstance(model, dict) and model.get("byte_fallback") is True


def metaspace_source(values: Mapping[str, object], path: str, rows: int) -> VocabularySource:
    """Read the vocabulary of the object ``values`` of the file ``path``, for ``rows`` ids.

    Raises UnsupportedError for unsupported rules, TokenizerError if it is malformed.
    """
    model = values["model"]
    assert isinstance(model, dict)
    check_escapes(values, path)
    prefix = _adds_prefix(values)
    reference = reference_of(values, path, rows)
    source = VocabularySource(path, "llama", rows, [], [], reference, add_space_prefix=prefix)
    tokenizer_json.read_vocab(model.get("vocab"), source)
    merges = tokenizer_json.merges_of(model, path)
    ranks, in_order = _ranks(merges)
    source.scores = [0.0] * len(source.tokens)
    for token_id, token in enumerate(source.tokens):
        if token is None:
            continue
        if tokenizer_json.BYTE_TEXT.fullmatch(token):
            source.types[token_id] = BYTE
        elif token == model.get("unk_token") or token == "<unk>":
            source.types[token_id] = UNKNOWN
        elif token in ranks:
            source.scores[token_id] = -float(ranks[token])
    tokenizer_json.read_added_tokens(values, source)
    is_plain = in_order and _are_listed(source, merges) and tokenizer_json.has_all_bytes(source)
    add_rules(source, values, is_plain=is_plain and _escapes_only(values, prefix))
    if source.rules is not None:
        source.merges = merges
    return source


def with_json_rules(source: VocabularySource, values: Mapping[str, object], path: str) -> None:
    """Add the rules of tokenizer.json to the vocabulary of a tokenizer.model.

    Raises UnsupportedError if the two contradict each other or the rules are not supported,
    TokenizerError if tokenizer.json is malformed.
    """
    model = values.get("model")
    if not is_metaspace(values) or not isinstance(model, dict):
        raise UnsupportedError(
            f"{path}: not BPE with byte_fallback, as {source.source} is; remove the file that "
            "does not belong to the model"
        )
    prefix, merges = _adds_prefix(values), tokenizer_json.merges_of(model, path)
    ranks, in_order = _ranks(merges)
    is_plain = (
        prefix is source.add_space_prefix
        and _escapes_only(values, prefix)
        and in_order
        and _have_scores_order(source, ranks)
        and _are_listed(source, merges)
        and tokenizer_json.has_all_bytes(source)
    )
    add_rules(source, values, is_plain=is_plain)
    if source.rules is not None:
        check_escapes(values, path)
        source.reference = reference_of(values, path, source.rows)
        source.merges, source.add_space_prefix = merges, prefix


def _escapes_only(values: Mapping[str, object], prefix: bool) -> bool:
    """Whether the only steps are to escape spaces and, with ``prefix``, to put one before a text.

    Decoding then drops that space.
    """
    if not decodes_alike(values, prefix):
        return False
    normalizers = list(steps(values.get("normalizer")))
    if values.get("pre_tokenizer") not in (None, tokenizer_json.NO_SPLIT):
        return False
    return normalizers == [tokenizer_json.ESCAPE] or (
        normalizers == [_PREPEND, tokenizer_json.ESCAPE] and not has_normalized(values)
    )


def _adds_prefix(values: Mapping[str, object]) -> bool:
    """Whether a space is put before a text."""
    splitters = steps(values.get("pre_tokenizer"))
    return any(step.get("type") == "Prepend" for step in steps(values.get("normalizer"))) or any(
        step.get("type") == "Metaspace" and prepends(step) != "never" for step in splitters
    )


def _ranks(merges: list[str]) -> tuple[dict[str, int], bool]:
    """Return the rank of each token's first pair, and whether the pairs of each are adjacent."""
    ranks: dict[str, int] = {}
    before, in_order = "", True
    for rank, merge in enumerate(merges):
        token = merge.replace(" ", "")
        in_order = in_order and (token == before or token not in ranks)
        ranks.setdefault(token, rank)
        before = token
    return ranks, in_order


def _are_listed(source: VocabularySource, merges: list[str]) -> bool:
    """Whether every pair of tokens that form a token is a merge, and each token has one."""
    tokens = {token for token in source.tokens if token is not None}
    listed = set(merges)
    for token, kind in zip(source.tokens, source.types, strict=True):
        if token is None or kind != NORMAL or len(token) == 1:
            continue
        cuts = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        pairs = [f"{left} {right}" for left, right in cuts if left in tokens and right in tokens]
        if not pairs or not listed.issuperset(pairs):
            return False
    return True


def _have_scores_order(source: VocabularySource, ranks: Mapping[str, int]) -> bool:
    """Whether tokens that are merged earlier have higher scores."""
    scores = dict(zip(source.tokens, source.scores or (), strict=True))
    ordered = [scores.get(token) for token in sorted(ranks, key=ranks.__getitem__)]
    return all(a is not None and b is not None and a > b for a, b in pairwise(ordered))
