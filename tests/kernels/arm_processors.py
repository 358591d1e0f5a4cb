"""ARM machines as Linux shows them, for tests and scripts that have none at hand.

``flags`` are the words behind "Features" in /proc/cpuinfo. Those of Neoverse N1, Apple M1,
Ampere-1 and Ampere-1a, Orin and Snapdragon 8 Gen 2 were published by owners of such machines; the
others are put together from what Arm documents of their cores. The kernel prints a word for each
bit of AT_HWCAP and AT_HWCAP2, so the two numbers follow.
``llvm_name`` is what LLVM makes of implementer and parts.
Sources: Linux's arch/arm64/include/uapi/asm/hwcap.h and arch/arm64/kernel/cpuinfo.c; LLVM's
llvm/lib/TargetParser/Host.cpp, getHostCPUNameForARM.
"""

from __future__ import annotations

from dataclasses import dataclass

# The words in the order of their bits.
HWCAP = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt "
    "fcma lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb "
    "paca pacg"
)
HWCAP2 = (
    "dcpodp sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svef32mm "
    "svef64mm svebf16 i8mm bf16 dgh rng bti mte ecv afp rpres"
)

_V82 = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc "
    "dcpop asimddp"
)
_M1 = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt "
    "fcma lrcpc dcpop sha3 asimddp sha512 asimdfhm dit uscat ilrcpc flagm ssbs sb paca pacg "
    "dcpodp flagm2 frint"
)
_V86 = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt "
    "fcma lrcpc dcpop sha3 sm3 sm4 asimddp sha512 asimdfhm dit uscat ilrcpc flagm ssbs sb "
    "paca pacg dcpodp flagm2 frint i8mm bf16 rng bti ecv"
)
_GRAVITON3 = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt "
    "fcma lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs "
    "paca pacg dcpodp svei8mm svebf16 i8mm bf16 dgh rng"
)
_GRAVITON4 = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt "
    "fcma lrcpc dcpop sha3 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm sb paca pacg "
    "dcpodp sve2 sveaes svepmull svebitperm svesha3 flagm2 frint svei8mm svebf16 i8mm bf16 "
    "dgh rng bti"
)


@dataclass(frozen=True)
class Processor:
    """A machine, the level that it should get, and LLVM's features that must be off."""

    machine: str
    implementer: str
    parts: tuple[str, ...]
    flags: str
    llvm_name: str
    level: str
    withheld: tuple[str, ...] = ()
    numba_name: str = ""

    @property
    def compiled_for(self) -> str:
        """The name that Numba gets: LLVM's, unless LLVM cannot compile for it."""
        return self.numba_name or self.llvm_name

    def hwcaps(self) -> tuple[int, int]:
        """Return AT_HWCAP and AT_HWCAP2."""
        words = self.flags.split()
        assert set(words) <= {*HWCAP.split(), *HWCAP2.split()}
        first, second = (
            sum(1 << bit for bit, word in enumerate(order.split()) if word in words)
            for order in (HWCAP, HWCAP2)
        )
        return first, second

    def cpuinfo(self) -> str:
        """Return /proc/cpuinfo."""
        return "".join(
            f"processor\t: {number}\nBogoMIPS\t: 108.00\nFeatures\t: {self.flags}\n"
            f"CPU implementer\t: {self.implementer}\nCPU architecture: 8\nCPU variant\t: 0x1\n"
            f"CPU part\t: {part}\nCPU revision\t: 1\n\n"
            for number, part in enumerate(self.parts)
        )


PROCESSORS = {
    "pi3": Processor(
        "Raspberry Pi 3, Cortex-A53", "0x41", ("0xd03",) * 4,
        "fp asimd evtstrm crc32 cpuid", "cortex-a53", "portable", ("dotprod", "lse"),
    ),
    "pi4": Processor(
        "Raspberry Pi 4, Cortex-A72", "0x41", ("0xd08",) * 4,
        "fp asimd evtstrm crc32 cpuid", "cortex-a72", "portable", ("dotprod", "lse", "aes"),
    ),
    "pi5": Processor(
        "Raspberry Pi 5, Cortex-A76", "0x41", ("0xd0b",) * 4, _V82, "cortex-a76", "neon",
    ),
    "graviton2": Processor(
        "AWS Graviton 2, Neoverse N1", "0x41", ("0xd0c",) * 4, f"{_V82} ssbs",
        "neoverse-n1", "neon",
    ),
    "graviton3": Processor(
        "AWS Graviton 3, Neoverse V1", "0x41", ("0xd40",) * 4, _GRAVITON3, "neoverse-v1",
        "neon-i8mm",
    ),
    "graviton4": Processor(
        "AWS Graviton 4, Neoverse V2", "0x41", ("0xd4f",) * 4, _GRAVITON4, "neoverse-v2",
        "neon-i8mm",
    ),
    "altra": Processor(
        "Ampere Altra, Neoverse N1", "0x41", ("0xd0c",) * 4, f"{_V82} ssbs", "neoverse-n1", "neon",
    ),
    "ampereone": Processor(
        "AmpereOne", "0xc0", ("0xac3",) * 4, _V86.replace(" sm3 sm4", ""), "ampere1",
        "neon-i8mm", ("sm4", "sve"),
    ),
    "ampereone-a": Processor(
        "AmpereOne, second design", "0xc0", ("0xac4",) * 4, _V86, "ampere1a", "neon-i8mm",
        ("sve",),
    ),
    "m1": Processor(
        "Apple M1 Pro under Asahi Linux", "0x61", ("0x024",) * 2 + ("0x025",) * 8, _M1,
        "apple-m1", "neon", ("i8mm", "bf16", "sve"),
    ),
    "m2": Processor(
        "Apple M2 under Asahi Linux", "0x61", ("0x032",) * 4 + ("0x033",) * 4,
        f"{_M1} i8mm bf16 bti ecv", "apple-m2", "neon-i8mm", ("sve",),
    ),
    "m1-virtual": Processor(
        "virtual machine on an Apple M1", "0x61", ("0x000",) * 2, _M1, "generic", "neon", ("sve",),
    ),
    "orin": Processor(
        "Jetson Orin, Cortex-A78AE", "0x41", ("0xd42",) * 8,
        f"{_V82} uscat ilrcpc flagm paca pacg", "cortex-a78ae", "neon", ("i8mm",),
    ),
    "phone": Processor(
        "phone, 4 Cortex-A55 and 4 Cortex-A78", "0x41", ("0xd05",) * 4 + ("0xd41",) * 4, _V82,
        "cortex-a78", "neon",
    ),
    # A kernel without SVE on cores whose name implies it; the auxiliary vector has the last word.
    "phone-no-sve": Processor(
        "Snapdragon 8 Gen 2", "0x41",
        ("0xd46",) * 3 + ("0xd4d",) * 2 + ("0xd47",) * 2 + ("0xd4e",),
        _V86.replace(" rng bti ecv", " bti"), "cortex-x3", "neon-i8mm", ("sve", "sve2"),
    ),
    "snapdragon-x": Processor(
        "Snapdragon X Elite", "0x51", ("0x001",) * 12, f"{_V86} afp", "oryon-1", "neon-i8mm",
        ("sve",), "generic",
    ),
    # A hypervisor that hides dot products from a processor that has them.
    "altra-masked": Processor(
        "Neoverse N1 behind a mask", "0x41", ("0xd0c",) * 2,
        f"{_V82} ssbs".replace(" asimddp", ""), "neoverse-n1", "portable", ("dotprod",),
    ),
}  # fmt: skip
