"""Tokens to text, one token at a time, never half a character."""

from __future__ import annotations

import codecs
from collections.abc import Callable

# A token's bytes and whether it is special (control or unknown) or otherwise not plain text.
Piece = Callable[[int], tuple[bytes, bool]]
IsSkipped = Callable[[int], bool]


class StreamDecoder:
    """Text of a growing list of tokens. For one thread at a time.

    ``push`` gives what the new token completes, perhaps nothing; ``finish`` the rest. All pieces
    together are the text of ``Tokenizer.decode`` with the same options. Bytes that can no longer
    become a character give U+FFFD, as does a character that ``finish`` finds incomplete.
    """

    def __init__(
        self, piece: Piece, is_skipped: IsSkipped, *, drop_space: bool, drop_first: bool
    ) -> None:
        self._piece = piece
        self._is_skipped = is_skipped
        self._drop_space = drop_space  # after a special token
        self._drop_now = drop_first
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that ``token_id`` completes. Raises TokenizerError for an unknown id."""
        return self._utf8.decode(self.bytes_of(token_id))

    def finish(self) -> str:
        """U+FFFD where the last character is incomplete, else nothing; ready for a new text."""
        return self._utf8.decode(b"", final=True)

    def bytes_of(self, token_id: int) -> bytes:
        """The bytes that ``token_id`` adds to the text, UTF-8 only as a whole text."""
        data, is_plain = self._piece(token_id)
        drop, self._drop_now = self._drop_now, self._drop_space and not is_plain
        if not is_plain:
            skipped = self._is_skipped(token_id)
            self._drop_now = self._drop_space or (drop and skipped)
            return b"" if skipped else data
        return data[1:] if drop and data.startswith(b" ") else data
