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
from trinity.server.compressed import PIECE, decompressed
from trinity.server.errors import ApiError

CHAT = "/v1/chat/completions"
TEXT = json.dumps({"content": "Who was Prince Andrew?"}).encode()


def bare(data: bytes) -> bytes:
    """Compress as some clients do for "deflate": without a header."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


CODINGS = {
    "gzip": gzip.compress, "X-GZIP": gzip.compress, "deflate": zlib.compress, "Deflate": bare,
    "gzip, identity": gzip.compress,
}  # fmt: skip


@pytest.mark.parametrize("name", CODINGS)
def test_a_compressed_body_is_read(client: TestClient, name: str) -> None:
    expected = client.post("/tokenize", content=TEXT)
    found = client.post(
        "/tokenize", content=CODINGS[name](TEXT), headers={"Content-Encoding": name}
    )
    assert found.status_code == 200, found.text
    assert found.json() == expected.json()


@pytest.mark.parametrize("name", ["br", "zstd", "compress", "gzip, gzip", "é"])
def test_other_codings_are_refused(client: TestClient, name: str) -> None:
    headers = {"Content-Encoding": name.encode("latin-1")}
    found = client.post("/tokenize", content=TEXT, headers=headers)
    assert found.status_code == 415
    assert found.headers["Accept-Encoding"] == "gzip, deflate"
    assert "Content-Encoding" in found.json()["error"]["message"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TEXT, "damaged"),
        (gzip.compress(TEXT)[:-1], "cut"),
        (gzip.compress(TEXT)[:10], "cut"),
        (gzip.compress(TEXT)[:-8] + bytes(8), "damaged"),
        (gzip.compress(TEXT) + b"x", "followed by other data"),
    ],
)
def test_damaged_bodies(client: TestClient, content: bytes, message: str) -> None:
    found = client.post("/tokenize", content=content, headers={"Content-Encoding": "gzip"})
    assert (found.status_code, message in found.json()["error"]["message"]) == (400, True)


def test_no_body_is_read_as_none(client: TestClient) -> None:
    assert client.get("/v1/models", headers={"Content-Encoding": "gzip"}).status_code == 200
    found = client.post("/tokenize", headers={"Content-Encoding": "gzip"})
    assert found.status_code == client.post("/tokenize").status_code == 400


def test_the_limit_counts_what_a_body_expands_to(make: MakeApp) -> None:
    client = TestClient(make(max_body=100_000), base_url="http://localhost")
    headers = {"Content-Encoding": "gzip"}
    spaces = TEXT + b" " * (100_000 - len(TEXT))
    assert client.post("/tokenize", content=gzip.compress(spaces), headers=headers).is_success
    found = client.post("/tokenize", content=gzip.compress(spaces + b" "), headers=headers)
    assert (found.status_code, found.json()["error"]["code"]) == (413, "body_too_long")


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize(("coding", "pack"), [
    (b"gzip", gzip.compress), (b"deflate", zlib.compress), (b"deflate", bare)
])  # fmt: skip
def test_pieces_join_to_the_text(
    size: int, step: int, coding: bytes, pack: Callable[[bytes], bytes]
) -> None:
    text = b"word " * (size // 5) + b"x" * (size % 5)
    packed = pack(text)
    chunks = [packed[at : at + step] for at in range(0, len(packed), step)]
    pieces = asyncio.run(read(iter(chunks), coding, len(packed)))
    assert b"".join(pieces) == text
    assert max(map(len, pieces)) <= PIECE


def test_a_bomb_is_read_no_further_than_its_pieces_are_taken() -> None:
    """A reader that stops after some pieces has decompressed only those."""
    bomb = gzip.compress(bytes(64 << 20))

    async def first() -> int:
        receive = decompressed(source(iter([bomb])), b"gzip", len(bomb), at_once)
        return sum([len((await receive())["body"]) for _ in range(3)])

    assert asyncio.run(first()) == 3 * PIECE


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


def test_threads_decompress_all_but_a_piece_of_each_chunk() -> None:
    async def pieces() -> tuple[int, int]:
        in_threads = 0

        async def run(function: Callable[..., bytes], *given: object) -> bytes:
            nonlocal in_threads
            in_threads += 1
            return function(*given)

        bomb = gzip.compress(bytes(10 * PIECE))
        receive = decompressed(source(iter([bomb[:30], bomb[30:]])), b"gzip", len(bomb), run)
        count = 0
        while (await receive())["more_body"]:
            count += 1
        return count, in_threads

    count, in_threads = asyncio.run(pieces())
    assert count - in_threads == 2
    assert count >= 10
