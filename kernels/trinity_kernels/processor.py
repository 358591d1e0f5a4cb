"""The features of the processor, and the name and features that the compiler gets.

On x86 LLVM queries the processor, and its list is complete. On ARM it is not: on Linux LLVM derives
a name from the part number in /proc/cpuinfo, "generic" if unknown, reports a few features (without
dot products), and infers the rest from the name. Both can be wrong: a new processor has more than
"generic", and a kernel or a virtual machine may disable what the name implies (SVE on many phones),
which causes illegal instructions. So trinity asks the operating system; on Linux the auxiliary
vector, which has the features that all cores share. Numba gets the whole answer, present
(``+dotprod``) and absent features (``-sve``), before it compiles anything.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trinity_kernels.code_files import cache_folder
from trinity_kernels.code_store import read_private, write_private

# LLVM's feature, and the bits of AT_HWCAP and of AT_HWCAP2 that Linux sets for it. All that LLVM
# reports itself, and what it may use unasked. bf16 is for a level to come.
# Source: Linux's arch/arm64/include/uapi/asm/hwcap.h; LLVM's AArch64Features.td.
_LINUX: dict[str, tuple[int, int]] = {
    "fp-armv8": (1 << 0, 0),
    "neon": (1 << 1, 0),
    "aes": (1 << 3 | 1 << 4, 0),  # and pmull
    "sha2": (1 << 5 | 1 << 6, 0),  # and sha1
    "crc": (1 << 7, 0),
    "lse": (1 << 8, 0),
    "fullfp16": (1 << 9 | 1 << 10, 0),
    "rdm": (1 << 12, 0),
    "complxnum": (1 << 14, 0),
    "rcpc": (1 << 15, 0),
    "sha3": (1 << 17 | 1 << 21, 0),  # and sha512
    "sm4": (1 << 18 | 1 << 19, 0),  # and sm3
    "dotprod": (1 << 20, 0),
    "sve": (1 << 22, 0),
    "fp16fml": (1 << 23, 0),
    "lse2": (1 << 25, 0),
    "rcpc-immo": (1 << 26, 0),
    "sve2": (0, 1 << 1),
    "i8mm": (0, 1 << 13),
    "bf16": (0, 1 << 14),
    "rand": (0, 1 << 16),
    "cssc": (0, 1 << 34),
    "sve2p1": (0, 1 << 36),
    "mops": (0, 1 << 43),
    "rcpc3": (0, 1 << 46),
    "lse128": (0, 1 << 47),
}
# Source: Apple's page "Determining instruction set characteristics".
_MACOS = {"dotprod": "hw.optional.arm.FEAT_DotProd", "i8mm": "hw.optional.arm.FEAT_I8MM"}
# Source: winnt.h, PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE, PF_ARM_SVE_INSTRUCTIONS_AVAILABLE and
# PF_ARM_V82_I8MM_INSTRUCTIONS_AVAILABLE, which older systems answer with no.
_WINDOWS = {"dotprod": 43, "sve": 46, "i8mm": 66}
# Names for which LLVM cannot compile kernels: their scheduling model is incomplete, which ends the
# process. The features are listed, so "generic" only loses the schedule.
_NO_NAMES = frozenset({"ampere1b", "oryon-1"})
# Processors for which Numba disables AVX.
_SLOW_AVX = frozenset({"corei7-avx", "core-avx-i", "sandybridge", "ivybridge", "nocona"})
# Lines of /proc/cpuinfo that are the same at each start.
_STABLE = frozenset({
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features",
})  # fmt: skip


def arm_features(hwcap: int, hwcap2: int) -> dict[str, bool]:
    """LLVM's features of an ARM processor, by Linux's AT_HWCAP and AT_HWCAP2.

    Empty if the bits of floating point and NEON are not set: every AArch64 that runs Python has
    these features, so the words are meaningless.
    """
    if hwcap & 3 != 3:
        return {}
    return {
        name: hwcap & first == first and hwcap2 & second == second
        for name, (first, second) in _LINUX.items()
    }


def feature_text(features: dict[str, bool]) -> str:
    """Features as text for LLVM. Absent ones come last: they also disable dependent features."""
    names = sorted(features, key=lambda name: (not features[name], name))
    return ",".join(f"{'+' if features[name] else '-'}{name}" for name in names)


def listed(text: str) -> frozenset[str]:
    """The features that LLVM's text enables; of two words about a feature the later counts."""
    features: dict[str, bool] = {}
    for word in text.split(","):
        features[word.strip()[1:]] = word.strip().startswith("+")
    return frozenset(name for name, on in features.items() if on and name)


def auxiliary_words(auxv: Path = Path("/proc/self/auxv")) -> tuple[int, int]:
    """AT_HWCAP (16) and AT_HWCAP2 (26) of this process; zeros if the system has none."""
    with suppress(OSError, AttributeError):
        getauxval = ctypes.CDLL(None).getauxval
        getauxval.argtypes, getauxval.restype = [ctypes.c_ulong], ctypes.c_ulong
        return getauxval(16), getauxval(26)
    pairs: dict[int, int] = {}
    with suppress(OSError, struct.error):
        pairs = dict(struct.iter_unpack("LL", auxv.read_bytes()))
    return pairs.get(16, 0), pairs.get(26, 0)


def _sysctl(name: str) -> bool:
    value, size = ctypes.c_int(0), ctypes.c_size_t(4)
    sysctl = ctypes.CDLL(None).sysctlbyname
    done = sysctl(name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
    return done == 0 and value.value != 0


def host_arm_features() -> dict[str, bool]:
    """The features of this ARM processor by the operating system; empty if it does not tell."""
    with suppress(OSError, AttributeError):
        if sys.platform == "linux":
            return arm_features(*auxiliary_words())
        if sys.platform == "darwin":
            return {"neon": True} | {name: _sysctl(key) for name, key in _MACOS.items()}
        if sys.platform == "win32":
            present = ctypes.windll.kernel32.IsProcessorFeaturePresent
            return {"neon": True} | {name: bool(present(n)) for name, n in _WINDOWS.items()}
    return {}


@dataclass(frozen=True, slots=True)
class Target:
    """The processor for which this process compiles.

    ``name`` and ``features`` are for LLVM; ``has`` are the features that kernels may use.
    ``chosen``: NUMBA_CPU_NAME, NUMBA_CPU_FEATURES, NUMBA_ENABLE_AVX or the program replaced the
    host's.
    """

    architecture: str
    name: str
    features: str
    has: frozenset[str]
    chosen: bool

    @property
    def doubtful(self) -> bool:
        """Whether levels need a trial (trial.py): unless on x86 with the host's features."""
        return self.chosen or self.architecture == "aarch64"


@cache
def target() -> Target:
    """The processor to compile for: this one, or that of NUMBA_CPU_NAME and similar settings."""
    architecture, host_name, host_features = host()
    arm = architecture == "aarch64"
    name, features = _chosen("CPU_NAME"), _chosen("CPU_FEATURES")
    if features is None and str(name).lower() == "generic":
        features = ""  # as Numba takes it
    avx = _chosen("ENABLE_AVX") not in ("0", "False", 0)
    chosen = name is not None or features is not None or not avx
    if name is None:
        name = "generic" if arm and host_name in _NO_NAMES else host_name
    there: dict[str, bool] = {}
    if features is None:
        words = dict(host_features)
        if not avx or name in _SLOW_AVX:
            words |= {word: False for word in words if word.startswith("avx")}
        if arm:
            there = host_arm_features()
        features = feature_text(words | there)
    has = listed(features) | {feature for feature, found in there.items() if found}
    return Target(architecture, name, features, has, chosen)


def _chosen(setting: str) -> str | None:
    """Numba's setting, from its configuration if the program has imported Numba."""
    config = sys.modules.get("numba.core.config")
    if config is None:
        return os.environ.get(f"NUMBA_{setting}")
    value = getattr(config, setting)
    return None if value is None else str(value)


def host() -> tuple[str, str, dict[str, bool]]:
    """LLVM's words for this processor: architecture, name, and which features it has.

    Importing LLVM takes a tenth of a second, so they are kept in a file, by what Linux says of the
    processor.
    """
    folder, identity = cache_folder(), _identity()
    path = None
    if folder is not None and identity is not None:
        path = folder / f"host-{hashlib.sha256(identity.encode()).hexdigest()[:24]}"
        known = read_private(path)
        if known is not None:
            with suppress(ValueError, TypeError):
                architecture, name, features = json.loads(known)
                return architecture, name, dict(features)
    from llvmlite import binding

    found = (
        _architecture(binding.get_process_triple()),
        binding.get_host_cpu_name(),
        dict(binding.get_host_cpu_features()),
    )
    if path is not None:
        with suppress(OSError):
            write_private(path, json.dumps(found).encode())
    return found


def _identity(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """What Linux says of the first processor and does not change; None elsewhere."""
    try:
        with open(cpuinfo, "rb") as file:
            text = file.read(16384).decode(errors="replace")
    except OSError:
        return None
    first = text.partition("\n\n")[0]
    lines = [line for line in first.splitlines() if line.split(":")[0].strip() in _STABLE]
    if not any(line.startswith(("flags", "Features")) for line in lines):
        return None
    return "\n".join([platform.machine(), str(auxiliary_words()), *lines])


def _architecture(triple: str) -> str:
    first = triple.split("-")[0]
    return {"amd64": "x86_64", "arm64": "aarch64", "arm64e": "aarch64"}.get(first, first)
