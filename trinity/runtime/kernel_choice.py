"""Selects the compiled kernel of each record: one that passed its check on this machine.

A kernel is compared with its formula once, when it is first compiled; the result is stored with the
compiled code. A kernel that fails is not used: the next lower level is used instead, with a
warning.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

from trinity.errors import KernelError
from trinity_kernels._jit import Kernel
from trinity_kernels.code_files import cache_folder, take_cache_problem
from trinity_kernels.isa import available_levels, cpu_name, interpreted


class KernelChoice:
    """The kernels of one instruction-set level, compiled on demand."""

    def __init__(self, level: str, progress: Callable[[str], None] | None) -> None:
        self.level = level
        self._progress = progress
        self._chosen: dict[tuple[str, str], int] = {}
        folder = cache_folder()
        self._file: Path | None = None if folder is None else folder / f"checked-{cpu_name()}"
        self._outcomes = _read(self._file)

    def address(self, kernel: Kernel, tag: str) -> int:
        """The machine code for a quantization type, KV type or activation, at the best working
        level.
        """
        key = (kernel.name, tag)
        if key not in self._chosen:
            levels = available_levels()
            for level in levels[levels.index(self.level) :]:
                if self._works(kernel, level, tag):
                    self._chosen[key] = _loaded(kernel, level, tag)
                    break
            else:
                raise KernelError(
                    f"kernel {kernel.name} {tag} fails its check on this machine at every "
                    "level; run `trinity selftest` and report its output"
                )
        return self._chosen[key]

    def prepare(self, kernel: Kernel, tag: str) -> None:
        """Compile and check a kernel that may be needed later; does nothing if that was done."""
        self._works(kernel, self.level, tag)

    def names(self) -> dict[int, tuple[str, str]]:
        """The kernel and tag of every address that was returned."""
        return {address: key for key, address in self._chosen.items()}

    def work(self, kernel: Kernel, tags: Iterable[str]) -> bool:
        """Whether a kernel passes for all these tags at the level itself, not just a lower one."""
        return all(self._works(kernel, self.level, tag) for tag in tags)

    def _works(self, kernel: Kernel, level: str, tag: str) -> bool:
        if interpreted():
            return True
        line = f"{kernel.name} {tag} {kernel.level_of(level, tag)}"
        key = f"{line} {kernel.sources}"
        if key not in self._outcomes:
            from trinity_kernels.selftest import check

            _loaded(kernel, level, tag, lambda: self._tell(f"compiling kernels: {line}"))
            problem = take_cache_problem()
            if problem is not None:
                self._warn(problem)
            error = check(kernel.name, level, tag)
            self._outcomes[key] = error is None
            self._write(f"{key} {'ok' if error is None else 'wrong'}\n")
            if error:
                self._warn(f"kernel {line} computes wrong results on this machine: {error}")
        if not self._outcomes[key]:
            self._warn(f"kernel {line} is not used, a lower instruction-set level serves instead")
        return self._outcomes[key]

    def _tell(self, line: str) -> None:
        if self._progress:
            self._progress(line)

    def _warn(self, message: str) -> None:
        if self._progress:
            self._progress(f"warning: {message}")
        else:
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _write(self, line: str) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError), open(self._file, "ab", buffering=0) as file:
                # A single write of a whole line, so that lines of processes that compile at once do
                # not mix.
                os.write(file.fileno(), line.encode())


def _loaded(
    kernel: Kernel, level: str, tag: str, compiling: Callable[[], None] | None = None
) -> int:
    """The address of a kernel's code. Raises KernelError if the system refuses memory for code."""
    try:
        return kernel.address(level, tag, compiling)
    except OSError as error:
        raise KernelError(
            f"kernel {kernel.name} {tag} cannot be loaded: {error}; let the process make memory "
            "executable (SELinux: execmem, systemd: MemoryDenyWriteExecute=no), or give it more "
            "memory (ulimit -v)"
        ) from error


def _read(file: Path | None) -> dict[str, bool]:
    outcomes: dict[str, bool] = {}
    if file is not None:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            for line in file.read_text().splitlines():
                name, _, outcome = line.rpartition(" ")
                if outcome in ("ok", "wrong"):
                    outcomes[name] = outcome == "ok"
    return outcomes
