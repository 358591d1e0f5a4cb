"""WordPiece vocabularies (BERT), run by the `tokenizers` library.

A word becomes the longest token that it begins with, then the longest that continues it, and so
on; if none fits, the unknown token. GGUF writes tokens that begin a word with U+2581, others
without the "##". Source: transformers' BertTokenizer; llama.cpp's llm_tokenizer_wpm.
"""

from __future__ import annotations

from trinity.errors import TokenizerError
from trinity.tokenizers.bpe import library_ids, refusals
from trinity.tokenizers.metadata import RECONVERT
from trinity.tokenizers.spm import SPACE
from trinity.tokenizers.vocabulary import CONTROL, UNKNOWN, Vocabulary

_GOES_ON = "##"
_LONGEST_WORD = 100  # characters; longer ones are unknown, as in BERT


class WordPieceEncoder:
    """Converts text without special tokens to ids. Usable from several threads at once."""

    def __init__(self, vocab: Vocabulary) -> None:
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        if vocab.unk_id is None:
            raise TokenizerError(
                "tokenizer.ggml.unknown_token_id is missing, and a WordPiece vocabulary "
                f"(tokenizer.ggml.model 'bert') needs it; {RECONVERT}"
            )
        unknown = vocab.tokens[vocab.unk_id]
        words = {
            text.removeprefix(SPACE) if text.startswith(SPACE) else _GOES_ON + text: i
            for text, i in vocab.ids.items()
            if vocab.types[i] not in (CONTROL, UNKNOWN) and i != vocab.unk_id
        }
        with refusals("tokenizer.ggml.tokens is not a WordPiece vocabulary"):
            self._tokenizer = Tokenizer(
                models.WordPiece(
                    {**words, unknown: vocab.unk_id},
                    unk_token=unknown,
                    max_input_chars_per_word=_LONGEST_WORD,
                )
            )
            self._tokenizer.normalizer = normalizers.BertNormalizer(
                lowercase=vocab.lowercase, strip_accents=vocab.strip_accents
            )
            self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``."""
        with refusals("the tokenizers library cannot encode the text"):
            return library_ids(self._tokenizer, text)


def wordpiece_piece(vocab: Vocabulary, token_id: int) -> bytes:
    """Return the bytes of a token that is neither control nor user-defined."""
    return vocab.tokens[token_id].replace(SPACE, " ").encode()
