"""Instruction-set levels: what this CPU has, and which level is in use.

A level names the widest instructions a kernel may use. Levels are tried best first; each computes
the same integers for ternary weights, and the same floats wherever a result reaches a logit.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import sys
from functools import cache

LEVELS = ("amx", "avx512vnni", "avx2", "neon", "portable")

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
    "neon": ("neon", "dotprod"),
    "portable": (),
}


class IsaError(ValueError):
    """A level is unknown, or this CPU does not have it."""


@cache
def cpu_features() -> frozenset[str]:
    """LLVM's feature names that code compiled in this process may use.

    ``NUMBA_CPU_FEATURES`` replaces the host's list, as Numba itself does it.
    """
    override = os.environ.get("NUMBA_CPU_FEATURES")
    if override is not None:
        return frozenset(f[1:] for f in override.split(",") if f.startswith("+"))
    import llvmlite.binding as llvm

    if os.environ.get("NUMBA_CPU_NAME") == "generic":
        return frozenset()
    features: dict[str, bool] = dict(llvm.get_host_cpu_features())
    found = {name for name, present in features.items() if present}
    if platform.machine().lower() in ("arm64", "aarch64") and sys.platform == "darwin":
        found |= {"neon", "dotprod"}
    return frozenset(found)


@cache
def cpu_name() -> str:
    """LLVM's name of the processor that code is compiled for, with a digest of its features."""
    import llvmlite.binding as llvm

    name = os.environ.get("NUMBA_CPU_NAME") or str(llvm.get_host_cpu_name())
    digest = hashlib.sha256(",".join(sorted(cpu_features())).encode()).hexdigest()
    return f"{name}-{digest[:8]}"


@cache
def _amx_permitted() -> bool:
    """Ask the kernel for the tile registers, once per process.

    Source: Linux's arch_prctl(ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18).
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return int(libc.syscall(ctypes.c_long(158), ctypes.c_long(0x1023), ctypes.c_long(18))) == 0
    except (OSError, AttributeError):
        return False


def jit_disabled() -> bool:
    """True where NUMBA_DISABLE_JIT makes every kernel run as plain Python."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


@cache
def available_levels() -> tuple[str, ...]:
    """The levels this process can run, best first; ``portable`` is always among them."""
    if jit_disabled():
        return ("portable",)
    features = cpu_features()
    found = [level for level in LEVELS if all(f in features for f in _NEEDED[level])]
    if "amx" in found and not _amx_permitted():
        found.remove("amx")
    return tuple(found)


def missing_features(level: str) -> tuple[str, ...]:
    """What this CPU lacks for ``level``."""
    return tuple(f for f in _NEEDED[level] if f not in cpu_features())


def select_level(requested: str | None = None) -> str:
    """The level to use: ``requested``, else ``TRINITY_ISA``, else the best one there is.

    Raises:
        IsaError: for a name that is no level, or a level that this CPU cannot run.
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
        lacking = ", ".join(missing_features(name)) or "the operating system's permission"
        raise IsaError(
            f"instruction-set level {name!r} cannot run here: missing {lacking}; "
            f"available are {', '.join(levels)}"
        )
    return name
