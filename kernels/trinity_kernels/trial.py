"""Trials of levels: a child process compiles and runs small kernels, which might end the process.

LLVM ends the process (``LLVM ERROR: Cannot select``) if the processor that it compiles for lacks an
instruction, and a processor that lacks a claimed instruction ends it at the first use (SIGILL). No
check can predict either: a name like cortex-a76 implies instructions that no list contains, and a
list may disable what another entry needs. So a child process (selftest/trial_child.py) with the
same name and features compiles and runs kernels that use all instructions of a level. If it dies,
the level is unavailable.

Every level is tried on ARM, where LLVM's information comes from three sources (processor.py) and
LLVM cannot compile for every name that it reports. On other CPUs levels are tried if
NUMBA_CPU_NAME, NUMBA_CPU_FEATURES, NUMBA_ENABLE_AVX or the program chose the processor. Otherwise
x86 needs no trial: LLVM compiles with the same list of features by which levels are chosen.

A trial costs one start of Python and one or two small kernels, once for each processor, set of
features and version of this package. If the package came with machine code, the child loads that.
The outcome is stored next to the compiled kernels. If Python cannot be started again (a frozen
program), only ``portable`` is used, untested.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trinity_kernels.code_files import cache_folder, package_folder
from trinity_kernels.processor import Target, target
from trinity_kernels.sources import digest_of

# Small kernels that together use every instruction set of their level.
_DOTS = (("matmul", "IQ4_NL"),)
KERNELS: dict[str, tuple[tuple[str, str], ...]] = {
    "amx": (*_DOTS, ("matmul_tiles", "Q8_0")),
    "avx512vnni": _DOTS,
    "avx2": _DOTS,
    "neon-i8mm": (*_DOTS, ("matmul_panels", "Q4_0")),
    "neon": _DOTS,
    "portable": _DOTS,
}
SECONDS = 300.0
# Signals that the code itself causes; other signals say nothing about the level.
_OWN_SIGNALS = {
    getattr(signal, name, None)
    for name in ("SIGABRT", "SIGILL", "SIGSEGV", "SIGBUS", "SIGTRAP", "SIGFPE")
}
_START = """
import json, sys
request = json.loads(sys.argv[1])
sys.path[:] = request["path"]
from trinity_kernels.selftest.trial_child import answer
answer(request["levels"])
"""
_lock = threading.Lock()


def failures(levels: Sequence[str]) -> dict[str, str]:
    """The levels of ``levels`` that do not work here, with reasons; tries those not yet known."""
    here = target()
    if not here.doubtful:
        return {}
    with _lock:
        file = _file(here)
        known = _read(file)
        while left := [level for level in levels if level not in known]:
            found, lasting = _try(here, left)
            known |= found
            if file is not None and lasting:
                _write(file, found)
    return {level: known[level] for level in levels if known[level]}


def _try(here: Target, levels: Sequence[str]) -> tuple[dict[str, str], bool]:
    """Try levels in one child: the reason by level, empty if it works; whether to store them.

    The result has at least one level: if the child dies, the one that it was trying.
    """
    code, output, said = _child(here, levels)
    found = {level: why for level, why in _lines(output) if level in levels}
    left = [level for level in levels if level not in found]
    if not left:
        return found, True
    ended, own = _end(code)
    detail = f" ({said})" if said else ""
    reason = f"a trial of it for the processor {here.name!r} {ended}{detail}"
    if own:
        return found | {left[0]: reason}, True
    # Nothing is known. portable has no special instructions, so it is used untested.
    return found | {level: "" if level == "portable" else reason for level in left}, False


def _child(here: Target, levels: Sequence[str]) -> tuple[int | None, str, str]:
    """Exit code (None: not started, or out of time), standard output, and LLVM's message."""
    if getattr(sys, "frozen", False) or not sys.executable:
        return None, "", "Python cannot be started again from this program"
    request = json.dumps({"path": sys.path, "levels": list(levels)})
    named = {"NUMBA_CPU_NAME": here.name, "NUMBA_CPU_FEATURES": here.features}
    if _packaged(here):
        named = {}  # with a chosen processor the package's code would not be used
    options: dict[str, Any] = {}
    if sys.platform == "win32":
        options["creationflags"] = subprocess.CREATE_NO_WINDOW
    try:
        # -I ignores the current folder and PYTHON* variables; the path is that of this process.
        done = subprocess.run(
            [sys.executable, "-I", "-B", "-W", "ignore", "-c", _START, request],
            env={**os.environ, **named}, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=SECONDS, **options,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, "", f"no end after {SECONDS:.0f} seconds"
    except OSError as error:
        return None, "", str(error)
    said = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    chosen = next((line for line in said if "LLVM ERROR" in line), said[-1] if said else "")
    return done.returncode, done.stdout.decode(errors="replace"), chosen.strip()[:200]


def _end(code: int | None) -> tuple[str, bool]:
    """How the child ended, in words, and whether the code caused it."""
    if code is None:
        return "could not be made", False
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"died by {signal.Signals(-code).name}", -code in _OWN_SIGNALS
        return f"died by signal {-code}", False
    # Windows: abort() and illegal instructions end with 3, or with an exception's number.
    windows = sys.platform == "win32" and (code == 3 or code >= 0xC0000000)
    return f"ended with status {code}", windows


def _lines(text: str) -> list[tuple[str, str]]:
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            level, why = json.loads(line)
            found.append((str(level), str(why)))
    return found


def _packaged(here: Target) -> bool:
    """Whether kernels come with the package, so that they are loaded and not compiled."""
    return not here.chosen and package_folder(here.architecture) is not None


def _file(here: Target) -> Path | None:
    folder = cache_folder()
    sources = digest_of("trinity_kernels.selftest.trial_child")
    packaged = " packaged" if _packaged(here) else ""
    tried = f"{here.architecture} {here.name} {here.features} {sources}{packaged}"
    digest = hashlib.sha256(tried.encode()).hexdigest()
    return None if folder is None else folder / f"tried-{digest[:16]}"


def _read(file: Path | None) -> dict[str, str]:
    """The outcomes of earlier processes; malformed lines are ignored."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if file is not None:
            return {level: why for level, why in _lines(file.read_text()) if level in KERNELS}
    return {}


def _write(file: Path, found: dict[str, str]) -> None:
    with contextlib.suppress(OSError), open(file, "ab", buffering=0) as lines:
        # One write of whole lines, so that concurrent processes do not mix.
        os.write(
            lines.fileno(), "".join(f"{json.dumps(pair)}\n" for pair in found.items()).encode()
        )
