"""A lower bound of a text's number of tokens, without tokenizing it."""

from __future__ import annotations

from trinity.tokenizers.bpe import BYTE_CHARACTERS
from trinity.tokenizers.spm import SPACE
from trinity.tokenizers.vocabulary import CONTROL, UNKNOWN, USER_DEFINED, Vocabulary, matched_ids


def longest_token(vocab: Vocabulary) -> int | None:
    """Return the largest number of bytes, as ``text_bytes`` counts them, that one token stands for.

    Return None if there is no bound: the rules change texts, white space after special tokens is
    dropped, or bytes without a token are dropped or merged into one unknown token.
    """
    if vocab.rstrip or not _has_all_bytes(vocab):
        return None
    if vocab.rules is not None and not vocab.rules.keeps_text:
        return None
    if vocab.model == "gpt2":  # each character is a byte
        lengths = max(map(len, vocab.tokens))
    else:
        lengths = max(len(token.replace(SPACE, " ").encode()) for token in vocab.tokens)
    # Special tokens are searched for literally; the longest is the first.
    special = matched_ids(vocab, (CONTROL, UNKNOWN, USER_DEFINED))[:1]
    return max([lengths, *(len(vocab.tokens[i].encode()) for i in special)])


def text_bytes(vocab: Vocabulary, text: str) -> int:
    """Return the size of a text in UTF-8; U+2581 counts as a space."""
    if vocab.model != "gpt2":
        text = text.replace(SPACE, " ")
    return len(text.encode("utf-8", "surrogatepass"))


def _has_all_bytes(vocab: Vocabulary) -> bool:
    """Whether every byte of a text becomes a token or a part of one."""
    if vocab.model == "gpt2":
        return all(character in vocab.ids for character in BYTE_CHARACTERS.values())
    if vocab.model == "llama":  # each byte without a token becomes an unknown token
        return vocab.unk_id is not None
    return all(f"<0x{byte:02X}>" in vocab.ids for byte in range(256))
