"""Compressed request bodies: accepted within the limits of what they expand to."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable, Iterator

import pytest
from starlette.testclient import TestClient
from starlette.types import Message, Receive

from tests.server.conftest import MakeApp
from trinity.server.errors import ApiError
from trinity.server.transport import compressed
from trinity.server.transport.compressed import LARGE_PIECE, PIECE, WINDOW_LOG, decompressed

CHAT = "/v1/chat/completions"
TEXT = json.dumps({"content": "Who was Prince Andrew?"}).encode()
# Without a time, so that every process collects the same cases.
GZIPPED = gzip.compress(TEXT, mtime=0)


def bare(data: bytes) -> bytes:
    """Compress as some clients do for "deflate": without a header."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


zstd = compressed.zstd_library()
CODINGS = {
    "zstd": zstd.compress, "gzip": gzip.compress, "X-GZIP": gzip.compress,
    "deflate": zlib.compress, "Deflate": bare, "gzip, identity": gzip.compress,
}  # fmt: skip


@pytest.mark.parametrize("name", CODINGS)
def test_a_compressed_body_is_read(client: TestClient, name: str) -> None:
    expected = client.post("/tokenize", content=TEXT)
    found = client.post(
        "/tokenize", content=CODINGS[name](TEXT), headers={"Content-Encoding": name}
    )
    assert found.status_code == 200, found.text
    assert found.json() == expected.json()


@pytest.mark.parametrize("name", ["br", "dcz", "compress", "gzip, gzip", "é"])
def test_other_codings_are_refused(client: TestClient, name: str) -> None:
    headers = {"Content-Encoding": name.encode("latin-1")}
    found = client.post("/tokenize", content=TEXT, headers=headers)
    assert found.status_code == 415
    assert found.headers["Accept-Encoding"] == "gzip, deflate, zstd"
    assert "Content-Encoding" in found.json()["error"]["message"]


def test_without_its_library_zstd_is_refused(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> object:
        raise ImportError

    monkeypatch.setattr(compressed, "zstd_library", missing)
    compressed.codings.cache_clear()
    try:
        headers = {"Content-Encoding": "zstd"}
        found = client.post("/tokenize", content=zstd.compress(TEXT), headers=headers)
    finally:
        compressed.codings.cache_clear()
    assert (found.status_code, found.headers["Accept-Encoding"]) == (415, "gzip, deflate")


def streamed(log: int) -> bytes:
    """Compress with a header that states a window of 2^log bytes and not the size."""
    options = {zstd.CompressionParameter.window_log: log}
    packer = zstd.ZstdCompressor(options=options)
    return bytes(packer.compress(TEXT) + packer.flush())


@pytest.mark.parametrize(
    ("coding", "content", "message"),
    [
        ("gzip", TEXT, "damaged"),
        ("gzip", GZIPPED[:-1], "cut"),
        ("gzip", GZIPPED[:10], "cut"),
        ("gzip", GZIPPED[:-8] + bytes(8), "damaged"),
        ("gzip", GZIPPED + b"x", "followed by other data"),
        ("zstd", TEXT, "damaged"),
        ("zstd", zstd.compress(TEXT)[:-1], "cut"),
        ("zstd", zstd.compress(TEXT)[:5], "cut"),
        ("zstd", zstd.compress(TEXT) + b"x", "followed by other data"),
        ("zstd", streamed(WINDOW_LOG + 1), "damaged"),
    ],
)
def test_damaged_bodies(client: TestClient, coding: str, content: bytes, message: str) -> None:
    found = client.post("/tokenize", content=content, headers={"Content-Encoding": coding})
    assert (found.status_code, message in found.json()["error"]["message"]) == (400, True)


def test_the_largest_window_is_read(client: TestClient) -> None:
    headers = {"Content-Encoding": "zstd"}
    found = client.post("/tokenize", content=streamed(WINDOW_LOG), headers=headers)
    assert found.status_code == 200


def test_no_body_is_read_as_none(client: TestClient) -> None:
    assert client.get("/v1/models", headers={"Content-Encoding": "gzip"}).status_code == 200
    found = client.post("/tokenize", headers={"Content-Encoding": "gzip"})
    assert found.status_code == client.post("/tokenize").status_code == 400


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_the_limit_counts_what_a_body_expands_to(make: MakeApp, coding: str) -> None:
    client, pack = TestClient(make(max_body=100_000), base_url="http://localhost"), CODINGS[coding]
    headers = {"Content-Encoding": coding}
    spaces = TEXT + b" " * (100_000 - len(TEXT))
    assert client.post("/tokenize", content=pack(spaces), headers=headers).is_success
    found = client.post("/tokenize", content=pack(spaces + b" "), headers=headers)
    assert (found.status_code, found.json()["error"]["code"]) == (413, 413)


@pytest.mark.parametrize(
    "size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, PIECE + 2 * LARGE_PIECE]
)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize(("coding", "pack"), [
    (b"gzip", gzip.compress), (b"deflate", zlib.compress), (b"deflate", bare),
    (b"zstd", zstd.compress),
])  # fmt: skip
def test_pieces_join_to_the_text(
    size: int, step: int, coding: bytes, pack: Callable[[bytes], bytes]
) -> None:
    text = b"word " * (size // 5) + b"x" * (size % 5)
    packed = pack(text)
    chunks = [packed[at : at + step] for at in range(0, len(packed), step)]
    pieces = asyncio.run(read(iter(chunks), coding, len(packed)))
    assert b"".join(pieces) == text
    assert len(pieces[0]) <= PIECE
    assert max(map(len, pieces)) <= LARGE_PIECE


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_bomb_is_read_no_further_than_its_pieces_are_taken(coding: str) -> None:
    """A reader that stops after some pieces has decompressed only those."""
    bomb = CODINGS[coding](bytes(64 << 20))

    async def first() -> int:
        receive = decompressed(source(iter([bomb])), coding.encode(), len(bomb), at_once)
        return sum([len((await receive())["body"]) for _ in range(3)])

    assert asyncio.run(first()) == PIECE + 2 * LARGE_PIECE


def test_a_body_that_expands_to_nothing_ends_at_the_limit() -> None:
    """Empty blocks of deflate expand to nothing, however many are sent."""
    header = gzip.compress(b"")[:10]
    empty = b"\x00\x00\x00\xff\xff" * 1000
    chunks = iter([header, *[empty] * 1000])
    with pytest.raises(ApiError) as refused:
        asyncio.run(read(chunks, b"gzip", 100_000))
    assert refused.value.status == 413
    assert next(chunks) == empty


def test_a_client_that_leaves_is_noticed() -> None:
    async def last() -> Message:
        receive = decompressed(
            source(iter([gzip.compress(TEXT)[:9]]), whole=False), b"gzip", 100, at_once
        )
        await receive()
        return await receive()

    assert asyncio.run(last()) == {"type": "http.disconnect"}


async def read(chunks: Iterator[bytes], coding: bytes, most: int) -> list[bytes]:
    """The pieces of a body that arrives in chunks."""
    receive = decompressed(source(chunks), coding, most, at_once)
    pieces, more = list[bytes](), True
    while more:
        message = await receive()
        pieces.append(message["body"])
        more = message["more_body"]
    return pieces


def source(chunks: Iterator[bytes], *, whole: bool = True) -> Receive:
    """A ``receive`` of these chunks, after which the body ends, or the client leaves."""

    async def receive() -> Message:
        chunk = next(chunks, None)
        if chunk is not None:
            return {"type": "http.request", "body": chunk, "more_body": True}
        if whole:
            return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.disconnect"}

    return receive


async def at_once(function: Callable[..., bytes], *given: object) -> bytes:
    """Run a function in this thread."""
    return function(*given)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_threads_decompress_all_but_a_piece_of_each_chunk(coding: str) -> None:
    async def pieces() -> tuple[int, int]:
        in_threads = 0

        async def run(function: Callable[..., bytes], *given: object) -> bytes:
            nonlocal in_threads
            in_threads += 1
            return function(*given)

        bomb = CODINGS[coding](bytes(10 * LARGE_PIECE))
        half = len(bomb) // 2
        chunks = iter([bomb[:half], bomb[half:]])
        receive = decompressed(source(chunks), coding.encode(), len(bomb), run)
        count = 0
        while (await receive())["more_body"]:
            count += 1
        return count, in_threads

    count, in_threads = asyncio.run(pieces())
    assert count - in_threads == 2
    assert count >= 10
