"""Decompressing request bodies in small pieces, so that the limits count what they expand to."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable

from starlette.types import Message, Receive, Scope

from trinity.server.bodies import too_long
from trinity.server.errors import ApiError

# Content codings and zlib's names of them ("deflate" means the format of RFC 1950).
WINDOW_BITS = {b"gzip": zlib.MAX_WBITS + 16, b"x-gzip": zlib.MAX_WBITS + 16,
               b"deflate": zlib.MAX_WBITS}  # fmt: skip
# Bytes that are decompressed at once, in 0.1 ms.
PIECE = 64 << 10
Run = Callable[..., Awaitable[bytes]]


def coding_of(scope: Scope) -> bytes | None:
    """The name of the compression of a body. Raises: ApiError 415 for an unknown one."""
    values = [value for name, value in scope["headers"] if name == b"content-encoding"]
    names = [name.strip().lower() for name in b",".join(values).split(b",")]
    names = [name for name in names if name not in (b"", b"identity")]
    if not names:
        return None
    if len(names) > 1 or names[0] not in WINDOW_BITS:
        text = b", ".join(names).decode("latin-1")
        raise ApiError(
            415,
            f"the Content-Encoding {text!r:.80} is not supported; send gzip, deflate or no "
            "Content-Encoding",
            headers={"Accept-Encoding": "gzip, deflate"},
        )
    return names[0]


def decompressed(receive: Receive, coding: bytes, most: int, run: Run) -> Receive:
    """A ``receive`` whose chunks are decompressed; ``most`` limits the compressed bytes.

    ``run`` runs a function in a thread; the event loop decompresses one piece of each chunk.

    Raises, when it is called: ApiError 400 for a damaged or cut body, 413 for a long one.
    """
    messages = _messages(receive, coding, most, run)
    return messages.__anext__


async def _messages(
    receive: Receive, coding: bytes, most: int, run: Run
) -> AsyncGenerator[Message]:
    size, more = 0, True
    decoder = None
    while more:
        message = await receive()
        if message["type"] != "http.request":
            yield message
            return
        data, more = message.get("body", b""), message.get("more_body", False)
        size += len(data)
        if size > most:
            raise too_long(most)
        if data and decoder is None:
            decoder = zlib.decompressobj(_window_bits(coding, data[0]))
        has_more, is_first = bool(data), True
        while decoder is not None and has_more:
            if decoder.eof:
                raise ApiError(400, "the compressed body is followed by other data")
            try:
                if is_first:
                    piece = decoder.decompress(data, PIECE)
                else:
                    piece = await run(decoder.decompress, data, PIECE)
            except zlib.error as error:
                raise ApiError(400, f"the compressed body is damaged: {error}") from None
            is_first = False
            data = decoder.unconsumed_tail or decoder.unused_data
            # A full piece may leave output in zlib's state although all input is consumed.
            has_more = bool(data) or (len(piece) == PIECE and not decoder.eof)
            yield {"type": "http.request", "body": piece, "more_body": True}
    if decoder is not None and not decoder.eof:
        raise ApiError(400, "the compressed body is cut: its end is missing")
    yield {"type": "http.request", "body": b"", "more_body": False}


def _window_bits(coding: bytes, first: int) -> int:
    """zlib's name of the format of a body, given its first byte.

    Some clients send the bare data of RFC 1951 as "deflate"; every header of RFC 1950 ends with 8.
    """
    bits = WINDOW_BITS[coding]
    return -bits if coding == b"deflate" and first & 15 != 8 else bits
