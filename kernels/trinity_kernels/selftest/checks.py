"""The self-test of one kernel: which code to run, and how to judge its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trinity_kernels._jit import Kernel

NO_TAG = ("none",)


class Check(NamedTuple):
    """A kernel and the comparison of its results with a NumPy formula."""

    kernel: Kernel
    # The quantization types, KV types or activations that the kernel is compiled for.
    tags: tuple[str, ...]
    # Runs a kernel at a level for a tag: None if it agrees, else a sentence that says what differs.
    compare: Callable[[Kernel, str, str], str | None]
