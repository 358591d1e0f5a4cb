"""The messages between an ingress and a replica."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from trinity.ray.channel import Address
from trinity.runtime.generation import Chunk
from trinity.runtime.options import Request

BLOCK = 32  # tokens; prefixes that are compared have a multiple of it
MOST_BLOCKS = 512  # of a prompt


@dataclass(frozen=True, slots=True)
class Generation:
    """A response to generate. ``whole``: the client gets no stream."""

    ids: list[int]  # those of a prompt with images are PromptIds
    request: Request
    client: str
    whole: bool
    prefixes: tuple[bytes, ...]  # of ``prefixes_of``, which the router compares
    address: Address  # of the ingress, which gets the chunks
    number: int  # of the response there

    @property
    def prompt(self) -> str:
        """A character for each token, for Ray's PrefixCacheAffinityRouter."""
        return "".join(chr(number % sys.maxunicode) for number in self.ids)


def prefixes_of(ids: Sequence[int], salt: str) -> tuple[bytes, ...]:
    """Hashes of the first block of a prompt, of its first two blocks, and so on."""
    found, digest = [], blake2b(salt.encode(), digest_size=8)
    tokens = np.asarray(ids[: BLOCK * MOST_BLOCKS], "<u4")
    for end in range(BLOCK, len(tokens) + 1, BLOCK):
        digest.update(tokens[end - BLOCK : end].tobytes())
        found.append(digest.digest())
    return tuple(found)


class Resumption:
    """The tokens of a response that its client has, and how another replica continues it.

    The other replica sends the text of these tokens again, which is dropped here. Its random
    numbers follow from the seed and the count of tokens, so most samplers need no further state.
    For the others, the response is generated again from its start.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._ids: list[int] = []
        self._characters = 0
        self._skipped_ids = self._skipped_characters = 0  # the part that the replica sends again

    @property
    def begun(self) -> bool:
        """Whether the client has a part of the response."""
        return bool(self._ids or self._characters)

    def again(self, resumable: Callable[[Request], bool]) -> Request:
        """Return the request for the next replica."""
        self._skipped_ids, self._skipped_characters = len(self._ids), self._characters
        if not self._ids or not resumable(self._request):
            return self._request
        return replace(self._request, resumed=tuple(self._ids))

    def new(self, chunk: Chunk) -> Chunk | None:
        """Return the part of a chunk that the client does not have yet; None if there is none."""
        if self._skipped_ids or self._skipped_characters:
            ids, text = chunk.token_ids[self._skipped_ids :], chunk.text[self._skipped_characters :]
            changed: Mapping[str, Any] = {"token_ids": ids, "text": text, "evaluated": None}
            if chunk.logprobs is not None:
                changed = {**changed, "logprobs": chunk.logprobs[self._skipped_ids :]}
            self._skipped_ids -= len(chunk.token_ids) - len(ids)
            self._skipped_characters -= len(chunk.text) - len(text)
            if not (ids or text or chunk.finish_reason):
                return None
            chunk = replace(chunk, **changed)
        self._ids += chunk.token_ids
        self._characters += len(chunk.text)
        return chunk
