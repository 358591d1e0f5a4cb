"""The prefetch distance of products, and prefetches of several cache lines."""

from __future__ import annotations

from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd

# Bytes from a dot product's loads to its prefetches; hardware prefetching stops at 4 KiB pages.
AHEAD = 2048


@inline
def prefetch_bytes(address: int, nbytes: int) -> None:
    """Prefetch bytes into the second-level cache."""
    for line in range(0, nbytes, 64):
        simd.prefetch_l2(address + line)


@inline
def prefetch_near(address: int, nbytes: int) -> None:
    """Prefetch bytes into the first-level cache."""
    for line in range(0, nbytes, 64):
        simd.prefetch(address + line)
