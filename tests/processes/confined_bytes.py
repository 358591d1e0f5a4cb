"""A function of bytes that tests/processes/test_confined.py runs in a confined process."""

from __future__ import annotations


def answer(request: bytes) -> bytes:
    """Return the request reversed; a zero byte fails, a one takes memory."""
    if request == b"\0":
        raise ValueError("a zero")
    return request[::-1] if request != b"\1" else bytes(1 << 30)
