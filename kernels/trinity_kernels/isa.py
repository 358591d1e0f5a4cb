"""Instruction-set levels: the CPU features that each requires, and the choice of a level.

A level names the widest instructions that a kernel may use. The best available level is the
default. docs/kernels.md says which results are bit-identical between levels.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import sys
import warnings
from functools import cache

from trinity_kernels.compiled_copy import COPY
from trinity_kernels.processor import target

LEVELS = ("amx", "avx512vnni", "avx2", "neon-i8mm", "neon", "portable")
# A level and its base, whose code it shares for kernels that do not use what the level adds.
BASES = {"amx": "avx512vnni", "neon-i8mm": "neon"}

_NEEDED: dict[str, tuple[str, ...]] = {
    "amx": (
        "amx-tile",
        "amx-int8",
        "amx-bf16",
        "avx512f",
        "avx512bw",
        "avx512vl",
        "avx512vnni",
        "avx512bf16",
    ),
    "avx512vnni": ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"),
    "avx2": ("avx2", "fma", "f16c"),
    "neon-i8mm": ("neon", "dotprod", "i8mm"),
    "neon": ("neon", "dotprod"),
    "portable": (),
}
_ARCHITECTURES = {
    "amx": "x86_64",
    "avx512vnni": "x86_64",
    "avx2": "x86_64",
    "neon-i8mm": "aarch64",
    "neon": "aarch64",
}


class IsaError(ValueError):
    """A level is unknown, or cannot run on this CPU."""


def cpu_features() -> frozenset[str]:
    """LLVM's names of the features that code compiled in this process may use.

    ``NUMBA_CPU_FEATURES`` replaces the host's list, as in Numba.
    """
    return target().has


@cache
def cpu_name() -> str:
    """LLVM's name of the processor that code is compiled for, and a digest of its features."""
    digest = hashlib.sha256(target().features.encode()).hexdigest()
    return f"{target().name}-{digest[:8]}"


@cache
def amx_permitted() -> bool:
    """Ask the operating system for the tile registers, once per process.

    Source: Linux's arch_prctl(ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18).
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return int(libc.syscall(ctypes.c_long(158), ctypes.c_long(0x1023), ctypes.c_long(18))) == 0
    except (OSError, AttributeError):
        return False


def is_compiled_copy() -> bool:
    """Whether this is the compiler's copy of the module (compiled_copy.py), whose functions Numba
    compiles; in the engine's modules functions stay Python.
    """
    return __name__.startswith(COPY)


def interpreted() -> bool:
    """Whether kernels run as plain Python, because NUMBA_DISABLE_JIT is set."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


@cache
def possible_levels() -> tuple[str, ...]:
    """The levels whose features this process may use, best first, without trials (trial.py)."""
    if interpreted():
        return ("portable",)
    here = target()
    found = [
        level
        for level in LEVELS
        if _ARCHITECTURES.get(level, here.architecture) == here.architecture
        and here.has.issuperset(_NEEDED[level])
    ]
    if "amx" in found and not amx_permitted():
        found.remove("amx")
    return tuple(found)


@cache
def available_levels() -> tuple[str, ...]:
    """The levels that this process can run, best first.

    Raises: IsaError if not even ``portable`` can be compiled, for instance because of
    NUMBA_CPU_NAME or NUMBA_CPU_FEATURES.
    """
    levels = possible_levels()
    lost = _lost()
    if set(levels) <= set(lost):
        chosen = "unset NUMBA_CPU_NAME and NUMBA_CPU_FEATURES"
        remedy = chosen if target().chosen else "set NUMBA_CPU_NAME=generic"
        raise IsaError(
            f"nothing that is compiled for {target().name!r} runs here: {lost['portable']}; "
            f"{remedy}"
        )
    for level in levels:
        if level in lost:
            warnings.warn(
                f"instruction-set level {level!r} is not used: {lost[level]}",
                RuntimeWarning,
                stacklevel=2,
            )
    return tuple(level for level in levels if level not in lost)


@cache
def _lost() -> dict[str, str]:
    """The possible levels that failed their trial, and why."""
    if interpreted() or not target().doubtful:
        return {}
    from trinity_kernels import trial

    return trial.failures(possible_levels())


def missing_features(level: str) -> tuple[str, ...]:
    """The features of ``level`` that this CPU lacks."""
    return tuple(f for f in _NEEDED[level] if f not in cpu_features())


def _obstacle(level: str) -> str:
    """The reason why ``level`` is not available."""
    if interpreted():
        return "NUMBA_DISABLE_JIT runs kernels as plain Python"
    architecture = _ARCHITECTURES.get(level, target().architecture)
    if architecture != target().architecture:
        return f"it is for {architecture} processors"
    lacking = ", ".join(missing_features(level))
    if lacking:
        return f"missing {lacking}"
    return _lost().get(level) or "missing the operating system's permission"


def select_level(requested: str | None = None) -> str:
    """The level to use: ``requested``, else ``TRINITY_ISA``, else the best available one.

    Raises: IsaError for an unknown level, or one that this CPU cannot run.
    """
    name = requested or os.environ.get("TRINITY_ISA") or ""
    levels = available_levels()
    if not name:
        return levels[0]
    if name not in LEVELS:
        raise IsaError(
            f"unknown instruction-set level {name!r}; the levels are {', '.join(LEVELS)}"
        )
    if name not in levels:
        raise IsaError(
            f"instruction-set level {name!r} cannot run here: {_obstacle(name)}; "
            f"available are {', '.join(levels)}"
        )
    return name
