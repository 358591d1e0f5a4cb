"""Chunks arrive from a replica; both sides know when the connection ends."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from trinity.ray import channel
from trinity.ray.channel import Address, IngressConnections, Listener, LostConnectionError, Sent
from trinity.runtime.generation import Chunk

SECONDS = 60  # after which a test that hangs fails
LAST = Chunk("!", (3,), finish_reason="length")


class Response:
    """What an ingress has received of a response."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.ended = asyncio.Event()
        self.is_lost = False

    def take(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        if chunk.finish_reason is not None:
            self.ended.set()

    def lost(self) -> None:
        self.is_lost = True
        self.ended.set()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, SECONDS))


async def exchange() -> None:
    """Send a response of two chunks, and one that waits for the other's end."""
    listener, connections = await Listener.opened("127.0.0.1"), IngressConnections()
    try:
        connection = await connections.to(listener.address)
        assert await connections.to(listener.address) is connection
        one, other = Response(), Response()
        slow = Sent(connection, listener.add(other), SECONDS)
        slow.put((0, Chunk("slow", (4,))))
        sent = Sent(connection, listener.add(one), 0)
        sent.put((0, Chunk("a", (1, 2))))
        await asyncio.to_thread(sent.put, (0, LAST))
        await sent.ended()
        await one.ended.wait()
        assert one.chunks == [Chunk("a", (1, 2)), LAST]
        assert other.chunks == [Chunk("slow", (4,))]  # came with the others
        connection.close()
        await other.ended.wait()
        assert other.is_lost
        assert not one.is_lost
        with pytest.raises(LostConnectionError):
            await slow.ended()
        assert await connections.to(listener.address) is not connection
    finally:
        connections.close()
        listener.close()


def test_chunks_arrive() -> None:
    run(exchange())


def test_an_ingress_that_ends_ends_responses() -> None:
    async def test() -> None:
        listener, connections = await Listener.opened("127.0.0.1"), IngressConnections()
        connection = await connections.to(listener.address)
        response = Response()
        sent = Sent(connection, listener.add(response), 0)
        sent.put((0, Chunk("a", (1,))))
        waiting = asyncio.create_task(sent.ended())
        while not response.chunks:
            await asyncio.sleep(0.001)
        listener.close()
        with pytest.raises(LostConnectionError):
            await waiting
        with pytest.raises(LostConnectionError, match=str(listener.address.port)):
            await connections.to(listener.address)

    run(test())


def test_an_error_ends_a_response() -> None:
    async def test() -> None:
        listener, connections = await Listener.opened("127.0.0.1"), IngressConnections()
        try:
            sent = Sent(await connections.to(listener.address), 0, 0)
            sent.put(ValueError("wrong"))
            with pytest.raises(ValueError, match="wrong"):
                await sent.ended()
        finally:
            connections.close()
            listener.close()

    run(test())


def test_only_replicas_can_connect() -> None:
    async def test() -> None:
        listener, connections = await Listener.opened("127.0.0.1"), IngressConnections()
        try:
            host, port = listener.address.host, listener.address.port
            response = Response()
            number = listener.add(response)
            connection = await connections.to(Address(host, port, bytes(32)))
            sent = Sent(connection, number, 0)
            sent.put((0, Chunk("a", (1,))))
            with pytest.raises(LostConnectionError):
                await sent.ended()
            assert not response.chunks
        finally:
            connections.close()
            listener.close()

    run(test())


def test_connections_are_encrypted_as_those_of_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    try:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out",
             certificate, "-days", "2", "-subj", "/CN=ray"],
            check=True, capture_output=True,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    monkeypatch.setenv("RAY_USE_TLS", "1")
    monkeypatch.setenv("RAY_TLS_CA_CERT", str(certificate))
    monkeypatch.setenv("RAY_TLS_SERVER_CERT", str(certificate))
    monkeypatch.setenv("RAY_TLS_SERVER_KEY", str(key))
    run(exchange())

    async def plain() -> None:
        listener, connections = await Listener.opened("127.0.0.1"), IngressConnections()
        try:
            monkeypatch.setattr(channel, "encryption", lambda purpose: None)
            monkeypatch.setenv("RAY_USE_TLS", "0")
            connection = await connections.to(listener.address)
            sent = Sent(connection, 0, 0)
            sent.put((0, Chunk("a", (1,))))
            with pytest.raises(LostConnectionError):
                await sent.ended()
        finally:
            connections.close()
            listener.close()

    run(plain())
