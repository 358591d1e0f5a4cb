"""The tokenizer of a model file: text to ids and ids to text."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Protocol
from unicodedata import normalize

import numpy as np

from trinity.errors import InputError, TokenizerError, about
from trinity.tokenizers import metadata as read
from trinity.tokenizers.bound import longest_token, text_bytes
from trinity.tokenizers.bpe import BPEEncoder, bpe_piece
from trinity.tokenizers.library import LibraryEncoder
from trinity.tokenizers.special import SpecialTokens
from trinity.tokenizers.spm import SPMEncoder, spm_piece
from trinity.tokenizers.stream import StreamDecoder
from trinity.tokenizers.unigram import UnigramEncoder
from trinity.tokenizers.vocabulary import (
    CONTROL,
    UNKNOWN,
    USER_DEFINED,
    Vocabulary,
    file_ids,
    infill_ids,
    vocabulary_from_metadata,
)
from trinity.tokenizers.wordpiece import WordPieceEncoder, wordpiece_piece


def tokenizer_from_metadata(
    metadata: Mapping[str, object], end_ids: Iterable[int] = (), *, source: str = ""
) -> Tokenizer:
    """Return the tokenizer that a GGUF file's metadata describes.

    ``end_ids`` end a generation in addition to those in the metadata. Arrays may be lists or NumPy
    arrays. Errors of the vocabulary, also at its first use, begin with ``source``, the model's
    file. Raises TokenizerError for missing or malformed keys, UnsupportedError for an unsupported
    kind of tokenizer.
    """
    with about(source):
        vocab = vocabulary_from_metadata(metadata)
        template = read.text(metadata, "chat_template")
    vocab.eog_ids |= frozenset(i for i in end_ids if 0 <= i < len(vocab))
    prefix = "tokenizer.chat_template."
    templates = {
        key.removeprefix(prefix): value
        for key, value in ((k, metadata[k]) for k in metadata if k.startswith(prefix))
        if isinstance(value, str)
    }
    return Tokenizer(vocab, template, templates, source)


class _Encoder(Protocol):
    def encode(self, text: str) -> list[int]: ...


def _rwkv_encoder(vocab: Vocabulary) -> _Encoder:
    from trinity.tokenizers.rwkv import RwkvEncoder  # few models have such a vocabulary

    return RwkvEncoder(vocab)


_ENCODERS: dict[str, Callable[[Vocabulary], _Encoder]] = {
    "llama": SPMEncoder, "gpt2": BPEEncoder, "gemma4": BPEEncoder,
    "bert": WordPieceEncoder, "t5": UnigramEncoder, "rwkv": _rwkv_encoder,
}  # fmt: skip


class Tokenizer:
    """Converts text to token ids and back. Usable from several threads at once.

    Attributes:
        vocab_size: number of tokens; ids are 0 .. vocab_size - 1.
        bos_id, eos_id: begin- and end-of-sequence token, or None.
        add_bos, add_eos: whether the model's file asks for them around a text.
        add_space_prefix: whether encoding puts a space before a text and after each special token.
        infill_ids: tokens before the prefix, the suffix and the middle of a fill-in-the-middle
            prompt, or None.
        file_ids: tokens before the name of a repository, and of a file; each may be None.
        eog_ids: tokens that end a generation (end of sequence, of turn, of message).
        chat_template: the file's Jinja2 template, not yet compiled, or None.
        chat_templates: other templates by name.
        notes: notes about the vocabulary for the user, one line each.

    ``decode(encode(text))`` is ``text``, after the text of BOS if the file asks for it and
    ``skip_special`` is not set. Exceptions:

    - SentencePiece vocabularies and Gemma 4's write a space as U+2581, so that character is decoded
      as a space. With ``add_space_prefix`` decoding drops the space that encoding adds.
    - Phi-3 drops white space after special tokens.
    - WordPiece and Unigram vocabularies normalize a text, and so may the rules of a tokenizer.json.
    """

    def __init__(
        self,
        vocab: Vocabulary,
        chat_template: str | None = None,
        chat_templates: Mapping[str, str] | None = None,
        source: str = "",
    ) -> None:
        self._vocab = vocab
        self._source = source
        self._specials = SpecialTokens(vocab)
        self._kinds = vocab.types.tolist()
        self._encoder: _Encoder | LibraryEncoder | None = None
        self._building = threading.Lock()
        self._pieces: dict[int, tuple[bytes, bool]] = {}
        self.vocab_size = len(vocab)
        self.bos_id, self.eos_id = vocab.bos_id, vocab.eos_id
        self.add_bos, self.add_eos = vocab.add_bos, vocab.add_eos
        rules = vocab.rules
        self.add_space_prefix = vocab.add_space_prefix and rules is None
        self._drops_first = (
            rules.drops_first_space if rules and rules.decoder else vocab.add_space_prefix
        )
        self.eog_ids = vocab.eog_ids
        self.infill_ids = infill_ids(vocab)
        self.file_ids = file_ids(vocab)
        self.chat_template = chat_template
        self.chat_templates = dict(chat_templates or {})
        self.notes = list(vocab.notes)

    def encode(
        self, text: str, *, add_bos: bool = True, add_eos: bool = False,
        parse_special: bool = False, continuation: bool = False,
    ) -> list[int]:  # fmt: skip
        """Return the token ids of ``text``.

        ``add_bos`` and ``add_eos`` add those tokens if the model's file asks for them, but not a
        second time. With ``parse_special`` the texts of control tokens become those tokens: use it
        for chat templates, not for user input. With ``continuation`` no space is put before the
        first word, for a text that follows others.

        Raises InputError for text that UTF-8 cannot encode, or too long a run of white space;
        TokenizerError if the vocabulary is not usable (at the first call).
        """
        _check_text(text)
        encoder = self._encoder or self._build_encoder()
        if isinstance(encoder, LibraryEncoder):
            ids = encoder.encode(text, parse_special=parse_special, continuation=continuation)
        else:
            ids = self._encoded_parts(encoder, text, parse_special, continuation)
        if add_bos and self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        if add_eos and self.add_eos and self.eos_id is not None and ids[-1:] != [self.eos_id]:
            ids.append(self.eos_id)
        return ids

    def _encoded_parts(
        self, encoder: _Encoder, text: str, parse_special: bool, continuation: bool
    ) -> list[int]:
        """Return ids by GGUF's rules: special tokens first, then the texts between them."""
        ids: list[int] = []
        after_special = not continuation
        for part in self._specials.partition(text, parse_special):
            if isinstance(part, int):
                ids.append(part)
            else:
                part = normalize("NFC", part) if self._vocab.nfc else part
                ids += encoder.encode(
                    " " + part if self.add_space_prefix and after_special else part
                )
            after_special = isinstance(part, int)
        return ids

    def encode_whole(self, text: str) -> list[int]:
        """Return the token ids of a whole text for encoders and embedding models.

        The texts of control tokens become those tokens. BOS and EOS are added if the model's file
        asks for them, even if the text already has them. Raises as ``encode``.
        Source: transformers' tokenizers; llama.cpp, llama_tokenize.
        """
        ids = self.encode(text, add_bos=False, parse_special=True)
        if self.add_bos and self.bos_id is not None:
            ids.insert(0, self.bos_id)
        return self._ended(ids)

    def encode_pair(self, first: str, second: str) -> tuple[list[int], int]:
        """Return the token ids of a pair of texts, and the index of the second text.

        Each is encoded as by ``encode_whole``, the second without BOS, with the separators that the
        model's file asks for. Raises as ``encode``.
        """
        ids = self.encode_whole(first)
        if self._vocab.add_sep and self._vocab.sep_id is not None:
            ids.append(self._vocab.sep_id)
        others = self.encode(second, add_bos=False, parse_special=True)
        return [*ids, *self._ended(others)], len(ids)

    def _ended(self, ids: list[int]) -> list[int]:
        return [*ids, self.eos_id] if self.add_eos and self.eos_id is not None else ids

    def inner(self, ids: list[int]) -> list[int]:
        """Remove the BOS and EOS that ``encode`` adds from ``ids``.

        Source: llama.cpp, llama_detokenize, remove_special.
        """
        first = int(self.add_bos and ids[:1] == [self.bos_id])
        last = int(self.add_eos and len(ids) > first and ids[-1] == self.eos_id)
        return ids[first : len(ids) - last]

    def least_tokens(self, text: str) -> int:
        """Return a lower bound of the number of tokens without tokenizing; 0 if there is none.

        It follows from the bytes of the longest token.
        """
        longest = self._longest
        if longest is None:
            return 0
        if self._vocab.nfc:
            text = normalize("NFC", text)
        return -(-text_bytes(self._vocab, text) // longest)

    def decode(
        self, ids: Iterable[int], *, skip_special: bool = False, continuation: bool = False
    ) -> str:
        """Return the text of token ids; bytes that are not UTF-8 become U+FFFD.

        ``skip_special`` omits control and unknown tokens. ``continuation`` keeps the space of the
        first word, for ids that follow others. Raises TokenizerError for an unknown id.
        """
        stream = self.stream(skip_special=skip_special, continuation=continuation)
        return b"".join(map(stream.bytes_of, ids)).decode("utf-8", "replace")

    def stream(self, *, skip_special: bool = True, continuation: bool = True) -> StreamDecoder:
        """Return a decoder for single tokens, by default for those that follow a prompt."""
        return StreamDecoder(
            self._piece,
            self.is_special if skip_special else _never,
            drop_space=self.add_space_prefix,
            drop_first=self._drops_first and not continuation,
        )

    def bytes_of(self, token_id: int) -> bytes:
        """Return the bytes that one token adds to a text, also for special tokens.

        Raises TokenizerError for an unknown id.
        """
        return self._piece(token_id)[0]

    def token_text(self, token_id: int) -> str:
        """Return a token as in the vocabulary: "▁Hello", "<0x0A>", "Ġworld", "<|eot_id|>".

        Raises TokenizerError for an unknown id.
        """
        return self._vocab.tokens[self._checked(token_id)]

    def is_special(self, token_id: int) -> bool:
        """Whether it is a control or unknown token. Raises TokenizerError for an unknown id."""
        return self._kinds[self._checked(token_id)] in (CONTROL, UNKNOWN)

    def pieces(self) -> Iterator[tuple[bytes, bool]]:
        """Return for each token the bytes that it adds to a text, and whether it is plain text.

        Control, unknown and user-defined tokens are not.
        """
        return map(self._read_piece, range(self.vocab_size))

    def whole_text(self, ids: Sequence[int]) -> str:
        """Return the text of tokens with special ones and a leading space."""
        return b"".join(self._piece(token_id)[0] for token_id in ids).decode(errors="replace")

    def __repr__(self) -> str:
        return f"<Tokenizer {self._vocab.model}: {self.vocab_size} tokens>"

    @cached_property
    def _longest(self) -> int | None:
        return longest_token(self._vocab)

    def _piece(self, token_id: int) -> tuple[bytes, bool]:
        """Return a token's bytes, and whether it is plain text, not special or user-defined."""
        # Only ids of the vocabulary are in the table; ``True`` would be found as 1.
        piece = self._pieces.get(token_id) if type(token_id) is int else None
        if piece is None:
            token_id = self._checked(token_id)
            piece = self._pieces[token_id] = self._read_piece(token_id)
        return piece

    def _read_piece(self, token_id: int) -> tuple[bytes, bool]:
        if self._kinds[token_id] in (CONTROL, UNKNOWN, USER_DEFINED):
            return self._vocab.tokens[token_id].encode(), False
        if self._vocab.model == "gpt2":
            return bpe_piece(self._vocab, token_id), True
        if self._vocab.model == "bert":
            return wordpiece_piece(self._vocab, token_id), True
        if self._vocab.model == "rwkv":
            from trinity.tokenizers.rwkv import rwkv_piece

            return rwkv_piece(self._vocab, token_id), True
        return spm_piece(self._vocab, token_id), True

    def _checked(self, token_id: int) -> int:
        if not isinstance(token_id, int | np.integer) or isinstance(token_id, bool):
            raise TokenizerError(f"a token id is an integer, not {token_id!r}")
        if not 0 <= token_id < self.vocab_size:
            raise TokenizerError(
                f"token id {token_id} is out of range: the vocabulary has {self.vocab_size} tokens"
                f" (0 to {self.vocab_size - 1})"
            )
        return int(token_id)

    def _build_encoder(self) -> _Encoder | LibraryEncoder:
        with self._building:
            if self._encoder is None:
                vocab = self._vocab
                with about(self._source):
                    self._encoder = (
                        LibraryEncoder(vocab, vocab.rules)
                        if vocab.rules
                        else _ENCODERS[vocab.model](vocab)
                    )
                self._vocab.merges = None  # the largest part, and no longer needed
            return self._encoder


def _never(token_id: int) -> bool:
    return False


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise InputError(f"the text to tokenize is {type(text).__name__}, not str")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"the text contains the lone surrogate {text[error.start]!r} at position "
            f"{error.start}, which is not a character: decode the bytes it came from with "
            "errors='replace'"
        ) from error
