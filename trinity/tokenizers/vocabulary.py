"""The vocabulary of a model file: tokens, types, special ids, flags; checked and repaired once.

Source: llama.cpp src/llama-vocab.cpp, llama_vocab::impl::load.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trinity.errors import TokenizerError, UnsupportedError
from trinity.tokenizers import metadata as read
from trinity.tokenizers.metadata import RECONVERT
from trinity.tokenizers.pretokenizers import PreTokenizer, pre_tokenizer_named
from trinity.tokenizers.rules import NFC_KEY, SCORES_KEY, Rules, read_rules

UNDEFINED, NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(7)

# Limits: each costs a multiple of its bytes. The largest known vocabularies have 262,144 tokens,
# 514,906 merges; their longest tokens are runs of some hundred spaces.
MAX_TOKENS, MAX_MERGES, MAX_TOKEN_CHARACTERS = 1 << 19, 1 << 19, 1 << 14
# Text is searched once per length of special tokens; with runs of white space about 80 lengths.
MAX_SPECIALS, MAX_SPECIAL_LENGTHS = 1 << 16, 256

SUPPORTED_MODELS = {
    "llama": "SentencePiece", "gpt2": "byte-level BPE", "gemma4": "character BPE",
    "bert": "WordPiece", "t5": "Unigram", "rwkv": "longest match",
}  # fmt: skip

# Tokens with these texts end a generation, whatever the file says about them. The last line has the
# padding of fill-in-the-middle prompts; the tokens of _FILES end a generation too.
_ENDS = (
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn>"
    " <|endoftext|> </s> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance>"
    " <eos> <turn|> <|tool_response> <｜end▁of▁sentence｜> [e~["
    " <|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD]"
)
# Texts of the tokens before the prefix, the suffix and the middle, one line for each.
_FIM = (
    "<|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE> <|code_prefix|>",
    "<|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF> <|code_suffix|>",
    "<|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID> <|code_middle|>",
)
# Texts of the tokens before the name of a repository, and of a file.
_FILES = ("<|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame>", "<|file_sep|>")
_END_TEXTS = frozenset(" ".join((_ENDS, *_FILES)).split())
_FIM_TEXTS = frozenset(" ".join(_FIM).split())
SPECIAL_TEXTS = _END_TEXTS | _FIM_TEXTS
_END_KEYS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
_BYTE_TEXT = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(slots=True)
class Vocabulary:
    """The checked vocabulary that a tokenizer is built from."""

    model: str
    tokens: list[str]  # by id
    types: NDArray[np.int8]  # by id
    ids: dict[str, int]  # text to id; the last one if several tokens share a text
    scores: NDArray[np.float32 | np.float64] | None = None  # float32; for "llama" and "t5"
    merges: list[str] | None = None  # for "gpt2" and "gemma4"
    pre: PreTokenizer | None = None  # for "gpt2"
    bos_id: int | None = None
    eos_id: int | None = None
    unk_id: int | None = None
    add_bos: bool = False
    add_eos: bool = False
    add_space_prefix: bool = False
    eog_ids: frozenset[int] = frozenset()
    rstrip: frozenset[int] = frozenset()  # ids after which encoding drops white space
    sep_id: int | None = None
    add_sep: bool = False  # put ``sep_id`` after EOS between the texts of a pair
    lowercase: bool = False  # for "bert"
    strip_accents: bool | None = None  # for "bert"; None: if ``lowercase``
    charsmap: bytes = b""  # for "t5": the table that normalizes texts
    drop_spaces: bool = False  # for "t5": merge several spaces, and drop those around a text
    prepends_space: bool = False  # for "t5"
    rules: Rules | None = None  # the rules of a tokenizer.json that the other fields cannot express
    nfc: bool = False  # compose texts first
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)

    def byte_of(self, token_id: int) -> int | None:
        """Return the byte of a byte token, or None for another token.

        In files without types the token's text decides.
        """
        token = self.tokens[token_id]
        if len(token) != 6 or not token.startswith("<0x"):
            return None
        kind = self.types[token_id]
        if kind == BYTE or (self.model != "gpt2" and kind in (NORMAL, UNDEFINED, UNUSED)):
            match = _BYTE_TEXT.fullmatch(token)
            if match:
                return int(match[1], 16)
        return None


def vocabulary_from_metadata(metadata: Mapping[str, object]) -> Vocabulary:
    """Read and check the vocabulary of a model file.

    It makes the repairs that other engines make (see ``notes``): an id out of range is ignored, an
    empty token gets the text "[EMPTY_id]", and the last of several tokens with the same text is
    used. Raises UnsupportedError for another kind of tokenizer, TokenizerError for malformed keys.
    """
    model = read.text(metadata, "ggml.model")
    if model not in SUPPORTED_MODELS:
        raise _unsupported(model)
    if model == "gpt2" and read.text(metadata, "ggml.pre") in _OVER_CHARACTERS:
        model = "gemma4"
    tokens = read.strings(metadata, "ggml.tokens", MAX_TOKENS, MAX_TOKEN_CHARACTERS)
    if not tokens:
        raise TokenizerError(
            f"the model file has no tokens (tokenizer.ggml.tokens is missing or empty); {RECONVERT}"
        )
    empty = [i for i, token in enumerate(tokens) if not token]
    for i in empty:
        tokens[i] = f"[EMPTY_{i}]"
    types = read.numbers(metadata, "ggml.token_type", len(tokens), "iu")
    if types is None:
        types = np.full(len(tokens), NORMAL, np.int8)
    types = np.where(np.isin(types, range(UNDEFINED, BYTE + 1)), types, UNDEFINED)
    specials = int(np.isin(types, (UNKNOWN, CONTROL, USER_DEFINED)).sum())
    if specials > MAX_SPECIALS:
        raise TokenizerError(
            f"tokenizer.ggml.token_type marks {specials} tokens as control or user-defined; the "
            f"limit is {MAX_SPECIALS}, far more than any model has; {RECONVERT}"
        )
    vocab = Vocabulary(model, tokens, types.astype(np.int8), {})
    if empty:
        vocab.notes.append(f"{len(empty)} tokens have no text, the first is id {empty[0]}")
    vocab.rules = read_rules(metadata)
    vocab.nfc = _flag(metadata, NFC_KEY.removeprefix("tokenizer."), False)
    _READERS[model](metadata, vocab)
    _read_special_ids(metadata, vocab)
    _repair_control_texts(vocab)
    _check_lengths(vocab)
    vocab.ids = dict(zip(vocab.tokens, range(len(tokens)), strict=True))
    if len(vocab.ids) < len(tokens):
        twice = next(t for i, t in enumerate(vocab.tokens) if vocab.ids[t] != i)
        vocab.notes.append(
            f"{len(tokens) - len(vocab.ids)} tokens repeat the text of another, such as"
            f" {twice[:40]!r}; the last id of each text is used"
        )
    _find_end_ids(metadata, vocab)
    _find_rstrip(metadata, vocab)
    return vocab


def _check_lengths(vocab: Vocabulary) -> None:
    ids = matched_ids(vocab, (UNKNOWN, CONTROL, USER_DEFINED))
    lengths = {len(vocab.tokens[i].encode()) for i in ids}
    if len(lengths) > MAX_SPECIAL_LENGTHS:
        raise TokenizerError(
            f"the control and user-defined tokens (tokenizer.ggml.token_type) have {len(lengths)} "
            f"different lengths; the limit is {MAX_SPECIAL_LENGTHS}, far more than any model has; "
            f"{RECONVERT}"
        )


def _unsupported(model: str | None) -> TokenizerError | UnsupportedError:
    supported = ", ".join(f"{name!r} ({kind})" for name, kind in SUPPORTED_MODELS.items())
    if model is None:
        return TokenizerError(
            f"the model file has no tokenizer (tokenizer.ggml.model is missing); {RECONVERT};"
            f" supported: {supported}"
        )
    return UnsupportedError(
        f"tokenizer.ggml.model is {model[:40]!r}, which is not supported; supported: {supported}"
    )


def _read_scores(metadata: Mapping[str, object], vocab: Vocabulary) -> None:
    scores = read.numbers(metadata, "ggml.scores", len(vocab), "iuf")
    if scores is None:
        raise TokenizerError(
            f"tokenizer.ggml.scores is missing, and a {SUPPORTED_MODELS[vocab.model]} vocabulary"
            f" (tokenizer.ggml.model {vocab.model!r}) cannot choose tokens without scores;"
            f" {RECONVERT}"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # a double beyond float32
        vocab.scores = scores.astype(np.float32)
    bad = np.flatnonzero(np.isnan(vocab.scores))
    if bad.size:
        raise TokenizerError(
            f"tokenizer.ggml.scores: {bad.size} of {len(vocab)} scores are NaN, the first at id"
            f" {bad[0]}; {RECONVERT}"
        )


def _read_spm(metadata: Mapping[str, object], vocab: Vocabulary) -> None:
    _read_scores(metadata, vocab)
    assert vocab.scores is not None
    normal = vocab.scores[vocab.types == NORMAL]
    if normal.size > 1 and (normal == normal[0]).all():
        vocab.notes.append("all scores are equal: words may be split differently from training")
    vocab.add_bos = _flag(metadata, "ggml.add_bos_token", True)
    vocab.add_eos = _flag(metadata, "ggml.add_eos_token", False)
    vocab.add_space_prefix = _flag(metadata, "ggml.add_space_prefix", True)
    if vocab.rules is not None:
        _read_merges(metadata, vocab)
    vocab.bos_id, vocab.eos_id, vocab.unk_id = (i if i < len(vocab) else None for i in (1, 2, 0))


def _read_merges(metadata: Mapping[str, object], vocab: Vocabulary) -> None:
    vocab.merges = read.strings(metadata, "ggml.merges", MAX_MERGES, 2 * MAX_TOKEN_CHARACTERS)
    if vocab.merges is None:
        raise TokenizerError(
            f"tokenizer.ggml.merges is missing, and {SUPPORTED_MODELS[vocab.model]}"
            f" (tokenizer.ggml.model {vocab.model!r}) cannot run without merges; {RECONVERT}"
        )


def _read_bpe(metadata: Mapping[str, object], vocab: Vocabulary) -> None:
    _read_merges(metadata, vocab)
    assert vocab.merges is not None
    name = read.text(metadata, "ggml.pre")
    vocab.pre, note = pre_tokenizer_named(name, len(vocab), len(vocab.merges))
    if note:
        vocab.notes.append(note)
    # llama.cpp replaces missing BOS and EOS ids by 11, which is right for Falcon. In other
    # vocabularies 11 is a comma, and generation would end at the first one.
    vocab.add_bos = _flag(metadata, "ggml.add_bos_token", vocab.pre.add_bos)
    vocab.add_eos = _flag(metadata, "ggml.add_eos_token", False)


def _read_gemma4(metadata: Mapping[str, object], vocab: Vocabulary) -> None:
    _read_merges(metadata, vocab)
    adds_bos = read.flag(metadata, "ggml.add_bos_token")
    if read.text(metadata, "ggml.pre") in _OVER_CHARACTERS:
        vocab.add_bos = bool(adds_bos)
    else:
        vocab.add_bos = True
    if adds_bos is False and vocab.add_bos:
        # As in llama.cpp: early files contradict this, but Gemma 4 generates nonsense without BOS.
        vocab.notes.append("tokenizer.ggml.add_bos_token is false; Gemma 4 needs BOS: it is added")
    vocab.add_eos = _flag(metadata, "ggml.add_eos_token", False)
    vocab.add_space_prefix = _flag(metadata, "ggml.add_space_prefix", False)


def _read_bert(metadata: Mapping[str, object], vocab: Vocabulary) -> None:
    vocab.add_bos = _flag(metadata, "ggml.add_bos_token", True)
    vocab.add_eos = _flag(metadata, "ggml.add_eos_token", True)
    vocab.add_sep = _flag(metadata, "ggml.add_sep_token", False)
    vocab.add_space_prefix = True
    vocab.lowercase = _flag(metadata, "ggml.normalizer.lowercase", True)
    vocab.strip_accents = read.flag(metadata, "ggml.normalizer.strip_accents")
    # Source: llama.cpp's defaults, the ids of bert-base-uncased.
    ids = (i if i < len(vocab) else None for i in (101, 102, 100))
    vocab.bos_id, vocab.sep_id, vocab.unk_id = ids
    vocab.eos_id = vocab.sep_id


def _read_t5(metadata: Mapping[str, object], vocab: Vocabulary) -> None:
    _read_scores(metadata, vocab)
    assert vocab.scores is not None
    exact = read.numbers(metadata, SCORES_KEY.removeprefix("tokenizer."), len(vocab), "f")
    if exact is not None:
        vocab.scores = exact.astype(np.float64)
    if not np.isfinite(vocab.scores).all():
        raise TokenizerError(
            f"tokenizer.ggml.scores: {int((~np.isfinite(vocab.scores)).sum())} of {len(vocab)}"
            f" scores are infinite; {RECONVERT}"
        )
    vocab.add_bos = _flag(metadata, "ggml.add_bos_token", False)
    vocab.add_eos = _flag(metadata, "ggml.add_eos_token", True)
    vocab.add_sep = _flag(metadata, "ggml.add_sep_token", False)
    vocab.drop_spaces = _flag(metadata, "ggml.remove_extra_whitespaces", True)
    vocab.prepends_space = _flag(metadata, "ggml.add_space_prefix", True)
    vocab.eos_id = 1 if len(vocab) > 1 else None
    unknown = np.flatnonzero(vocab.types == UNKNOWN)
    vocab.unk_id = int(unknown[0]) if unknown.size else None
    charsmap = read.numbers(metadata, "ggml.precompiled_charsmap", 0, "iu", whole=True)
    vocab.charsmap = b"" if charsmap is None else charsmap.astype(np.uint8).tobytes()


def _read_rwkv(metadata: Mapping[str, object], vocab: Vocabulary) -> None:
    vocab.add_bos = _flag(metadata, "ggml.add_bos_token", False)
    vocab.add_eos = _flag(metadata, "ggml.add_eos_token", False)


def _flag(metadata: Mapping[str, object], key: str, default: bool) -> bool:
    value = read.flag(metadata, key)
    return default if value is None else value


def _special_id(metadata: Mapping[str, object], vocab: Vocabulary, name: str) -> int | None:
    """Return the id of tokenizer.ggml.NAME_token_id, or None if it is missing or out of range."""
    value = read.integer(metadata, f"ggml.{name}_token_id")
    if value is None or 0 <= value < len(vocab):
        return value
    if value not in (-1, 0xFFFFFFFF):  # converters write these for "none"
        vocab.notes.append(
            f"tokenizer.ggml.{name}_token_id is {value}, out of range for {len(vocab)} tokens:"
            " ignored"
        )
    return None


def _read_special_ids(metadata: Mapping[str, object], vocab: Vocabulary) -> None:
    for name, attribute in (
        ("bos", "bos_id"),
        ("eos", "eos_id"),
        ("unknown", "unk_id"),
        ("seperator", "sep_id"),  # as converters spell it
    ):
        token_id = _special_id(metadata, vocab, name)
        if token_id is not None:
            setattr(vocab, attribute, token_id)
    for name in ("bos", "eos"):
        if getattr(vocab, f"add_{name}") and getattr(vocab, f"{name}_id") is None:
            vocab.notes.append(f"the model asks for a {name.upper()} token but names none")
            setattr(vocab, f"add_{name}", False)


def _repair_control_texts(vocab: Vocabulary) -> None:
    """Strip a BOS text before the text of other control tokens.

    A converter once encoded each special token with BOS in front, so that early ternary Llama 3
    files have "<|begin_of_text|><|eot_id|>" for "<|eot_id|>".
    """
    if vocab.bos_id is None or vocab.types[vocab.bos_id] != CONTROL:
        return
    bos, repaired = vocab.tokens[vocab.bos_id], 0
    for i in np.flatnonzero(vocab.types == CONTROL).tolist():
        token = vocab.tokens[i]
        if i != vocab.bos_id and token.startswith(bos) and len(token) > len(bos):
            vocab.tokens[i] = token[len(bos) :]
            repaired += 1
    if repaired:
        vocab.notes.append(f"{repaired} control tokens had {bos!r:.40} before their text: removed")


def infill_ids(vocab: Vocabulary) -> tuple[int, int, int] | None:
    """Return the tokens before the prefix, the suffix and the middle, or None."""
    marks = [token for token in (_mark(vocab, row) for row in _FIM) if token is not None]
    return (marks[0], marks[1], marks[2]) if len(marks) == len(_FIM) else None


def file_ids(vocab: Vocabulary) -> tuple[int | None, int | None]:
    """Return the tokens before the name of a repository and of a file, each or None."""
    repository, file = _FILES
    return _mark(vocab, repository), _mark(vocab, file)


def _mark(vocab: Vocabulary, row: str) -> int | None:
    """Return the first of some texts that is a control token."""
    ids = [vocab.ids[text] for text in row.split() if text in vocab.ids]
    return next((token for token in ids if vocab.types[token] == CONTROL), None)


# Values of tokenizer.ggml.pre whose files say byte-level BPE, although their BPE is over
# characters as Gemma 4's. llama.cpp has the same exception.
_OVER_CHARACTERS = ("sarvam-moe",)
_READERS = {
    "llama": _read_spm, "gpt2": _read_bpe, "gemma4": _read_gemma4,
    "bert": _read_bert, "t5": _read_t5, "rwkv": _read_rwkv,
}  # fmt: skip


def _find_end_ids(metadata: Mapping[str, object], vocab: Vocabulary) -> None:
    ends = {vocab.eos_id} | {_special_id(metadata, vocab, name) for name in _END_KEYS[1:]}
    words = _words(vocab, SPECIAL_TEXTS)
    for text in SPECIAL_TEXTS:
        token_id = vocab.ids.get(text)
        if token_id is not None and text not in words:
            vocab.types[token_id] = CONTROL  # some files call them normal or user-defined
            if text in _END_TEXTS:
                ends.add(token_id)
    texts = {vocab.tokens[i] for i in ends if i is not None}
    # In these formats the message or sequence continues after the token.
    calls = texts & {"<|call|>", "<|calls|>"}
    if calls and texts & {"<|return|>", "<|flush|>"} and "<|end|>" in texts:
        ends.discard(vocab.ids["<|end|>"])
        vocab.types[vocab.ids["<|end|>"]] = USER_DEFINED
    if {"<|tool_response>", "</s>"} <= texts:
        ends.discard(vocab.ids["</s>"])
        vocab.types[vocab.ids["</s>"]] = NORMAL
    vocab.eog_ids = frozenset(i for i in ends if i is not None)


def _words(vocab: Vocabulary, texts: frozenset[str]) -> set[str]:
    """Return those of ``texts`` that are ordinary tokens: in Qwen 2, "</s>" is an HTML tag."""
    normal = {t for t in texts if t in vocab.ids and vocab.types[vocab.ids[t]] == NORMAL}
    return made_by_merges(normal, vocab.merges or ())


def made_by_merges(texts: Collection[str], merges: Iterable[str]) -> set[str]:
    """Return those of ``texts`` that are the two sides of a merge together."""
    wanted, lengths = set(texts), {len(text) + 1 for text in texts}
    if not wanted:
        return wanted
    candidates = (merge for merge in merges if len(merge) in lengths)
    cuts = ((merge, merge.find(" ", 1)) for merge in candidates)
    return {made for m, cut in cuts if cut > 0 and (made := m[:cut] + m[cut + 1 :]) in wanted}


def _find_rstrip(metadata: Mapping[str, object], vocab: Vocabulary) -> None:
    """Find Phi-3's special tokens that drop the white space after them, which no key says."""
    name = metadata.get("general.name")
    if isinstance(name, str) and ("phi-3" in name.lower() or "phi3" in name.lower()):
        kept = {vocab.ids.get(text) for text in ("<unk>", "<s>", "<|endoftext|>")}
        vocab.rstrip = frozenset(matched_ids(vocab, (CONTROL, UNKNOWN, USER_DEFINED))) - kept


def matched_ids(vocab: Vocabulary, kinds: Sequence[int]) -> list[int]:
    """Return ids of the given types, those with the longest text (in UTF-8 bytes) first."""
    ids: list[int] = np.flatnonzero(np.isin(vocab.types, kinds)).tolist()
    return sorted(ids, key=lambda i: -len(vocab.tokens[i].encode()))
