"""The keys of a GGUF file, read from its beginning alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from trinity.formats.defaults import Defaults
from trinity.formats.gguf_layout import MAX_METADATA_BYTES
from trinity.formats.gguf_metadata import GGUFMetadata
from trinity.formats.gguf_reader import KeyLocation, read_keys
from trinity.formats.sampling_keys import sampling_of

# Bytes of the first piece: the keys of most models with up to 50,000 tokens. Each further piece
# makes the beginning four times as long; vocabularies of 260,000 tokens end within 16 MB.
_FIRST, _GROWTH = 1 << 20, 4
# All keys, and the limit for the number of tensors.
_MOST = MAX_METADATA_BYTES + (4 << 20)


class GGUFHead:
    """Metadata and defaults of a GGUF file, without its tensors.

    ``read(first, end)`` returns those bytes of the file, whose size is ``size``. Only as much is
    read as the keys need, in a few pieces, and never more than the limit for any file's keys.
    Raises FormatError or UnsupportedError as GGUFProvider does.
    """

    def __init__(self, path: str, size: int, read: Callable[[int, int], bytes]) -> None:
        self.path = path
        self._head = b""
        self.metadata = GGUFMetadata(path, self._entries(size, read), lambda: self._head)

    @property
    def nbytes(self) -> int:
        """The number of bytes that were read."""
        return len(self._head)

    @cached_property
    def defaults(self) -> Defaults:
        """The sampling options in the metadata. Raises ConfigError if one is not a number."""
        return Defaults(options=sampling_of(self.metadata, self.path), source=self.path)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _entries(self, size: int, read: Callable[[int, int], bytes]) -> dict[str, KeyLocation]:
        most = min(size, _MOST)
        while True:
            have = len(self._head)
            self._head += read(have, min(most, max(_FIRST, _GROWTH * have)))
            whole = len(self._head) in (have, most)
            entries = read_keys(self._head, self.path, whole=whole)
            if entries is not None:
                return entries
