"""How threads share the values of rows that they take one after the other.

Tokens are whole where every thread gets one; of fewer, each token's values are shared out, at the
same places as quantize_q8 shares those of one token.
"""

from __future__ import annotations

from trinity_kernels._jit import inline


@inline
def first_token(tokens: int, thread: int, threads: int) -> int:
    """The first token that a thread takes."""
    return 0 if tokens < threads else thread


@inline
def token_step(tokens: int, threads: int) -> int:
    """From one token that a thread takes to its next."""
    return 1 if tokens < threads else threads


@inline
def first_value(tokens: int, k: int, thread: int, threads: int) -> int:
    """Where a thread's part of a row of ``k`` values begins, and that of the one before it ends."""
    if tokens >= threads:
        return 0
    return min(k, (k + 511) // 512 * 8 * thread // threads * 64)


@inline
def last_value(tokens: int, k: int, thread: int, threads: int) -> int:
    """Where a thread's part of a row of ``k`` values ends."""
    return k if tokens >= threads else first_value(tokens, k, thread + 1, threads)
