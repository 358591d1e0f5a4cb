"""How few tokens a text can have, known before it is tokenized."""

from __future__ import annotations

from trinity.tokenizers.bpe import BYTE_CHARACTERS
from trinity.tokenizers.spm import SPACE
from trinity.tokenizers.vocabulary import (
    CONTROL,
    UNKNOWN,
    USER_DEFINED,
    Vocabulary,
    matched_ids,
)


def longest_token(vocab: Vocabulary) -> int | None:
    """The most bytes of a text, as ``text_bytes`` counts them, that one token stands for.

    None where there is no such number: the rules change texts, white space after special tokens is
    dropped, or bytes that are no tokens are dropped or become one unknown token together.
    """
    if vocab.rstrip or not _has_all_bytes(vocab):
        return None
    if vocab.rules is not None and not vocab.rules.keeps_text:
        return None
    if vocab.model == "gpt2":  # each character is a byte
        lengths = max(map(len, vocab.tokens))
    else:
        lengths = max(len(token.replace(SPACE, " ").encode()) for token in vocab.tokens)
    # Special tokens are found in the text as they are; the longest is the first.
    special = matched_ids(vocab, (CONTROL, UNKNOWN, USER_DEFINED))[:1]
    return max([lengths, *(len(vocab.tokens[i].encode()) for i in special)])


def text_bytes(vocab: Vocabulary, text: str) -> int:
    """Bytes of a text in UTF-8, where U+2581 counts as the space that it is read as."""
    if vocab.model != "gpt2":
        text = text.replace(SPACE, " ")
    return len(text.encode("utf-8", "surrogatepass"))


def _has_all_bytes(vocab: Vocabulary) -> bool:
    """Whether every byte of a text becomes a token or a part of one."""
    if vocab.model == "gpt2":
        return all(character in vocab.ids for character in BYTE_CHARACTERS.values())
    if vocab.model == "llama":  # a byte without a token becomes the unknown one, by itself
        return vocab.unk_id is not None
    return all(f"<0x{byte:02X}>" in vocab.ids for byte in range(256))
