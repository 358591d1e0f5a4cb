"""The shares of threads in rows of values.

If every thread gets a token, threads share whole tokens. Otherwise they share the values of each
token, with the same boundaries as quantize_q8.
"""

from __future__ import annotations

from trinity_kernels._jit import inline


@inline
def first_token(tokens: int, thread: int, threads: int) -> int:
    """The first token of a thread."""
    return 0 if tokens < threads else thread


@inline
def token_step(tokens: int, threads: int) -> int:
    """The distance between the tokens of a thread."""
    return 1 if tokens < threads else threads


@inline
def first_value(tokens: int, k: int, thread: int, threads: int) -> int:
    """The start of a thread's part of a row of ``k`` values."""
    if tokens >= threads:
        return 0
    return min(k, (k + 511) // 512 * 8 * thread // threads * 64)


@inline
def last_value(tokens: int, k: int, thread: int, threads: int) -> int:
    """The end of a thread's part of a row of ``k`` values."""
    return k if tokens >= threads else first_value(tokens, k, thread + 1, threads)
