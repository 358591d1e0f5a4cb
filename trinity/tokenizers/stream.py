"""Decode tokens one at a time, without splitting characters."""

from __future__ import annotations

import codecs
from collections.abc import Callable

# A token's bytes and whether it is special (control or unknown) or otherwise not plain text.
Piece = Callable[[int], tuple[bytes, bool]]
IsSkipped = Callable[[int], bool]


class StreamDecoder:
    """Decodes a growing list of tokens. For one thread at a time.

    ``push`` returns the text that the new token completes, which may be empty; ``finish`` returns
    the rest. Together they are the text of ``Tokenizer.decode`` with the same options. Invalid
    bytes become U+FFFD, and so does a character that is incomplete at ``finish``.
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
        """Return the text that ``token_id`` completes. Raises TokenizerError for an unknown id."""
        return self._utf8.decode(self.bytes_of(token_id))

    def finish(self) -> str:
        """Return U+FFFD if the last character is incomplete, else ""; start a new text."""
        return self._utf8.decode(b"", final=True)

    def bytes_of(self, token_id: int) -> bytes:
        """Return the bytes that ``token_id`` adds; only the whole text is valid UTF-8."""
        data, is_plain = self._piece(token_id)
        drop, self._drop_now = self._drop_now, self._drop_space and not is_plain
        if not is_plain:
            skipped = self._is_skipped(token_id)
            self._drop_now = self._drop_space or (drop and skipped)
            return b"" if skipped else data
        return data[1:] if drop and data.startswith(b" ") else data
