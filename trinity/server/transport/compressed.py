"""Decompressing request bodies in small pieces, so that the limits count what they expand to."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Protocol

from starlette.types import Message, Receive, Scope

from trinity.server.errors import ApiError
from trinity.server.transport.bodies import Run, too_long

# Bytes that are decompressed at once: by the event loop in 0.1 ms, and by a thread in some 2 ms.
PIECE, LARGE_PIECE = 64 << 10, 1 << 20
# The largest window of a zstd body, as a power of two (RFC 9659, 3). It is memory in
# addition to the body; as much of it is used as the body has expanded to.
WINDOW_LOG = 23


class BodyDecoder(Protocol):
    """Decompresses a body. ``errors`` are the types that it raises for a damaged one."""

    errors: tuple[type[Exception], ...]

    @property
    def eof(self) -> bool:
        """Whether the end of the compressed form has come."""

    @property
    def has_more(self) -> bool:
        """Whether ``piece`` would return or refuse something without further bytes."""

    def piece(self, data: bytes, most: int) -> bytes:
        """At most ``most`` further bytes; ``data`` follows all that was given before."""


class Zlib:
    """Decompresses gzip, or deflate, whose clients send RFC 1950 or the bare data of RFC 1951."""

    errors: tuple[type[Exception], ...] = (zlib.error,)

    def __init__(self, coding: bytes) -> None:
        self._is_gzip = coding != b"deflate"
        self._decoder: zlib._Decompress | None = None
        self._left = b""
        self._was_full = False

    @property
    def eof(self) -> bool:
        """As BodyDecoder."""
        return self._decoder is not None and self._decoder.eof

    @property
    def has_more(self) -> bool:
        """As BodyDecoder. A full piece may leave output in zlib, although all is consumed."""
        return bool(self._left) or (self._was_full and not self.eof)

    def piece(self, data: bytes, most: int) -> bytes:
        """As BodyDecoder."""
        if self._decoder is None:
            # Every header of RFC 1950 ends with 8.
            bare = not self._is_gzip and data[0] & 15 != 8
            bits = zlib.MAX_WBITS + 16 if self._is_gzip else zlib.MAX_WBITS
            self._decoder = zlib.decompressobj(-bits if bare else bits)
        found = self._decoder.decompress(self._left or data, most)
        self._left = self._decoder.unconsumed_tail or self._decoder.unused_data
        self._was_full = len(found) == most
        return found


class Zstd:
    """Decompresses one frame of zstd."""

    def __init__(self, coding: bytes) -> None:
        library = zstd_library()
        self.errors: tuple[type[Exception], ...] = (library.ZstdError,)
        limits = {library.DecompressionParameter.window_log_max: WINDOW_LOG}
        self._decoder = library.ZstdDecompressor(options=limits)

    @property
    def eof(self) -> bool:
        """As BodyDecoder."""
        return bool(self._decoder.eof)

    @property
    def has_more(self) -> bool:
        """As BodyDecoder."""
        return bool(self._decoder.unused_data if self.eof else not self._decoder.needs_input)

    def piece(self, data: bytes, most: int) -> bytes:
        """As BodyDecoder."""
        found: bytes = self._decoder.decompress(data, most)
        return found


@cache
def zstd_library() -> Any:
    """Python's zstd module, since Python 3.14, or its backport. Raises: ImportError."""
    try:
        return import_module("compression.zstd")
    except ImportError:
        return import_module("backports.zstd")


@cache
def codings() -> Mapping[bytes, Callable[[bytes], BodyDecoder]]:
    """The decoders by content coding."""
    found: dict[bytes, Callable[[bytes], BodyDecoder]] = dict.fromkeys(
        (b"gzip", b"x-gzip", b"deflate"), Zlib
    )
    try:
        zstd_library()
    except ImportError:
        return found
    return {**found, b"zstd": Zstd}


def coding_of(scope: Scope) -> bytes | None:
    """The name of the compression of a body. Raises: ApiError 415 for an unknown one."""
    values = [value for name, value in scope["headers"] if name == b"content-encoding"]
    names = [name.strip().lower() for name in b",".join(values).split(b",")]
    names = [name for name in names if name not in (b"", b"identity")]
    if not names:
        return None
    if len(names) > 1 or names[0] not in codings():
        text = b", ".join(names).decode("latin-1")
        known = ", ".join(name.decode() for name in codings() if name != b"x-gzip")
        raise ApiError(
            415,
            f"the Content-Encoding {text!r:.80} is not supported; send {known} or no "
            "Content-Encoding",
            headers={"Accept-Encoding": known},
        )
    return names[0]


def decompressed(receive: Receive, coding: bytes, most: int, run: Run) -> Receive:
    """A ``receive`` whose chunks are decompressed; ``most`` limits the compressed bytes.

    ``run`` runs a function in a thread; the event loop decompresses one piece of each chunk.

    Raises, when it is called: ApiError 400 for a damaged or cut body, 413 for a long one.
    """
    messages = _messages(receive, codings()[coding](coding), most, run)
    return messages.__anext__


async def _messages(
    receive: Receive, decoder: BodyDecoder, most: int, run: Run
) -> AsyncGenerator[Message]:
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            yield message
            return
        data, more = message.get("body", b""), message.get("more_body", False)
        size += len(data)
        if size > most:
            raise too_long(most)
        is_first = True
        while data or decoder.has_more:
            if decoder.eof:
                raise ApiError(400, "the compressed body is followed by other data")
            try:
                if is_first:
                    piece = decoder.piece(data, PIECE)
                else:
                    piece = await run(decoder.piece, b"", LARGE_PIECE)
            except decoder.errors as error:
                raise ApiError(400, f"the compressed body is damaged: {error}") from None
            is_first, data = False, b""
            yield {"type": "http.request", "body": piece, "more_body": True}
    if size and not decoder.eof:
        raise ApiError(400, "the compressed body is cut: its end is missing")
    yield {"type": "http.request", "body": b"", "more_body": False}
