"""How far ahead of its reads a product prefetches, and prefetches of more than one line."""

from __future__ import annotations

from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd

# Bytes from a dot product's loads to what it prefetches: the hardware stops at pages of 4 KiB.
AHEAD = 2048


@inline
def prefetch_bytes(address: int, nbytes: int) -> None:
    """Bring bytes as near as the second-level cache."""
    for line in range(0, nbytes, 64):
        simd.prefetch_l2(address + line)


@inline
def prefetch_near(address: int, nbytes: int) -> None:
    """Bring bytes as near as the first-level cache."""
    for line in range(0, nbytes, 64):
        simd.prefetch(address + line)
