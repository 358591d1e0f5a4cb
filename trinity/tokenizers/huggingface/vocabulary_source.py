"""A vocabulary while it is read, from any kind of file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trinity.errors import ConfigError, TokenizerError
from trinity.tokenizers.huggingface.reference import Reference
from trinity.tokenizers.vocabulary import BYTE, CONTROL, UNKNOWN, UNUSED, USER_DEFINED

_PADDING_SCORE = -10000.0
_ADDED_SCORE = -1000.0
# Tokens of image and audio input, in models without rows for them (Gemma 3 1B).
_PLACES_OF_OTHERS = frozenset({"<image_soft_token>"})
# A converted tokenizer must give the same ids for this text: words, digits, contractions, white
# space, punctuation, scripts, composed characters, emoji.
CHECK_TEXT = (
    "Hello, World! It's 3.14159 or 1,234,567?\n\n\tindented  twice   thrice\r\n"
    "don't you'LL we've I'M\nfoo_bar(x)=[1, 2]; // $5 <=> a^b `code` ~#@\n"
    "na\u00efve caf\u00e9 \u00dcber \u041f\u0440\u0438\u0432\u0435\u0442 \u4f60\u597d\uff0c"
    "\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \uc548\ub155 \u0645\u0631\u062d\u0628\u0627 "
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0928\u092e\u0938\u094d\u0924\u0947 "
    "\U0001f600\U0001f44d\U0001f3fd \u00bd \u00b2 end \n \n"
)


@dataclass(slots=True)
class VocabularySource:
    """A vocabulary that is being converted to GGUF's metadata.

    ``model``, ``pre``, ``merges``, ``scores`` and ``add_space_prefix`` are the values of
    tokenizer.ggml.NAME; None if this kind of tokenizer has no such key. ``tokens`` and ``types``
    have one entry per id, at most ``rows``, as the embedding has; ids without a token are None.
    ``more``: further keys of tokenizer.ggml. ``reference``: ids by the library that the files were
    made for. ``rules`` and ``nfc``: the values of trinity's own keys, see ``file_rules``.
    """

    source: str
    model: str
    rows: int
    tokens: list[str | None]
    types: list[int]
    reference: Reference
    scores: list[float] | None = None
    merges: list[str] | None = None
    pre: str | None = None
    add_space_prefix: bool | None = None
    more: dict[str, object] = field(default_factory=dict)
    rules: str | None = None
    nfc: bool = False

    def put(self, token_id: int, token: str, kind: int, score: float) -> None:
        """Set or replace the token of an id, which may be beyond the current end."""
        missing = token_id + 1 - len(self.tokens)
        if missing > 0:
            self.tokens += [None] * missing
            self.types += [UNUSED] * missing
            if self.scores is not None:
                self.scores += [_PADDING_SCORE] * missing
        self.tokens[token_id] = token
        self.types[token_id] = kind
        if self.scores is not None:
            self.scores[token_id] = score

    def put_added(self, token_id: object, fields: Mapping[str, object]) -> None:
        """Add a token: its id, its content and whether it is special.

        Raises TokenizerError if it is malformed, ConfigError for an id beyond the embedding.
        """
        text = fields.get("content")
        if not isinstance(text, str) or not isinstance(token_id, int) or isinstance(token_id, bool):
            raise TokenizerError(
                f"{self.source}: an added token is {dict(fields)!r:.100}; expected content and id"
            )
        if token_id < 0:
            raise TokenizerError(
                f"{self.source}: the added token {text!r:.60} has the id {token_id}"
            )
        if token_id >= self.rows and text in _PLACES_OF_OTHERS:
            return
        self.check_id(token_id)
        kind = _added_kind(text, fields.get("special") is True)
        known = self.tokens[token_id] if token_id < len(self.tokens) else None
        if known == text and self.types[token_id] in (UNKNOWN, CONTROL, BYTE):
            return
        if kind == USER_DEFINED:
            text = text.replace("\u2581", " ")  # such tokens are matched before spaces are escaped
        score = _ADDED_SCORE
        if self.model == "t5" and known is not None and self.scores is not None:
            score = self.scores[token_id]  # by which it competes with other tokens
        self.put(token_id, text, kind, score)

    def check_id(self, token_id: int) -> None:
        """Raise ConfigError for an id beyond the embedding's rows."""
        if token_id >= self.rows:
            raise ConfigError(
                f"{self.source}: {token_id + 1} tokens, but vocab_size in config.json is "
                f"{self.rows}; the tokenizer belongs to another model"
            )

    def fit(self) -> None:
        """Give every row of the embedding a token, as llama.cpp's converter does.

        Raises ConfigError if there are more tokens than rows.
        """
        self.check_id(len(self.tokens) - 1)
        if len(self.tokens) < self.rows:
            self.put(self.rows - 1, f"[PAD{self.rows - 1}]", UNUSED, _PADDING_SCORE)
        for token_id, token in enumerate(self.tokens):
            if token is None:
                self.tokens[token_id] = f"[PAD{token_id}]"


def _added_kind(text: str, special: bool) -> int:
    """Return the type of an added token. Source: llama.cpp's converter."""
    looks_special = text in ("<pad>", "<mask>", "<2mass>", "[@BOS@]") or any(
        text.startswith(start) and text.endswith(end)
        for start, end in (("<|", "|>"), ("<\uff5c", "\uff5c>"))
    )
    return CONTROL if special or looks_special or text.startswith("<unused") else USER_DEFINED
