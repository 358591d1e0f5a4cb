"""The shares of threads in rows of values.

If every thread gets a token, threads share whole tokens. Otherwise they share the values of each
token, with the same boundaries as quantize_q8.
"""

from __future__ import annotations

from trinity_kernels._jit import inline


@inline
def shares(tokens: int, k: int, thread: int, threads: int) -> tuple[int, int, int, int]:
    """The first token of a thread, the distance between its tokens, and its part of a row.

    The part is a start and an end in a row of ``k`` values.
    """
    if tokens >= threads:
        return thread, threads, 0, k
    return 0, 1, _boundary(k, thread, threads), _boundary(k, thread + 1, threads)


@inline
def _boundary(k: int, thread: int, threads: int) -> int:
    return min(k, (k + 511) // 512 * 8 * thread // threads * 64)
