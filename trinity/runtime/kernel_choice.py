"""Which compiled kernel a plan's record gets: the level's own, if its first check passed."""

from __future__ import annotations

from collections.abc import Callable

from trinity_kernels._jit import Kernel


class KernelChoice:
    """Compiles kernels on demand for one level and tells the user about it."""

    def __init__(self, level: str, progress: Callable[[str], None] | None) -> None:
        self.level = level
        self._progress = progress
        self._found: dict[tuple[str, str], int] = {}

    def address(self, kernel: Kernel, tag: str) -> int:
        """The address of ``kernel`` for a quantization type, KV type or activation."""
        key = (kernel.name, tag)
        if key not in self._found:
            self._found[key] = kernel.address(self.level, tag)
        return self._found[key]

    def finish(self) -> None:
        """No more kernels are asked for."""
