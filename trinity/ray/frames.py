"""The form of the chunks that a replica sends to an ingress.

A frame is the length of its content, 4 bytes, and the content: JSON of the chunks of one step, each
with the number of its response.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from trinity.runtime.generation import Chunk, Timings
from trinity.runtime.sampling.logprobs import TokenLogprob

LENGTH_BYTES = 4
LARGEST = 256 << 20  # bytes of a frame
TIMINGS = tuple(field.name for field in fields(Timings))
Numbered = tuple[int, Chunk]
encode_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def frame(chunks: Iterable[Numbered]) -> bytes:
    """Return the frame of chunks."""
    content = encode_json([_plain(number, chunk) for number, chunk in chunks]).encode()
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


class Frames:
    """Takes frames from bytes that arrive in any pieces."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def read(self, data: bytes) -> list[Numbered]:
        """Return the chunks of the frames that are complete. Raises: ValueError."""
        self._bytes += data
        found, start = list[Numbered](), 0
        while len(self._bytes) - start >= LENGTH_BYTES:
            content = start + LENGTH_BYTES
            end = content + int.from_bytes(self._bytes[start:content], "big")
            if end - content > LARGEST:
                raise ValueError(f"a frame of {end - content} bytes")
            if end > len(self._bytes):
                break
            found += map(_chunk, json.loads(self._bytes[content:end]))
            start = end
        del self._bytes[:start]
        return found


def _plain(number: int, chunk: Chunk) -> list[Any]:
    if (
        chunk.finish_reason is None and chunk.logprobs is None and chunk.timings is None
        and chunk.evaluated is None
    ):  # fmt: skip
        return [number, chunk.text, chunk.token_ids]
    logprobs, timings = chunk.logprobs, chunk.timings
    return [
        number, chunk.text, chunk.token_ids,
        None if logprobs is None else [_plain_logprob(logprob) for logprob in logprobs],
        chunk.finish_reason,
        None if timings is None else [getattr(timings, name) for name in TIMINGS],
        chunk.stop, chunk.evaluated,
    ]  # fmt: skip


def _chunk(plain: list[Any]) -> Numbered:
    if len(plain) == 3:
        number, text, ids = plain
        return number, Chunk(text, tuple(ids))
    number, text, ids, logprobs, finish_reason, timings, stop, evaluated = plain
    return number, Chunk(
        text, tuple(ids), None if logprobs is None else tuple(map(_logprob, logprobs)),
        finish_reason, None if timings is None else Timings(*timings), stop, evaluated,
    )  # fmt: skip


def _plain_logprob(logprob: TokenLogprob) -> list[Any]:
    top = [_plain_logprob(other) for other in logprob.top]
    return [logprob.token_id, logprob.logprob, logprob.text, top]


def _logprob(plain: list[Any]) -> TokenLogprob:
    token_id, logprob, text, top = plain
    return TokenLogprob(token_id, logprob, text, tuple(map(_logprob, top)))
