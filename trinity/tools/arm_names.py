"""Names of ARM processors, which /proc/cpuinfo lists as numbers of implementer and part."""

from __future__ import annotations

from collections import Counter

# Source: Linux, arch/arm64/include/asm/cputype.h, and util-linux, sys-utils/lscpu-arm.c.
_MAKERS = {
    0x41: "ARM", 0x42: "Broadcom", 0x43: "Cavium", 0x46: "Fujitsu", 0x48: "HiSilicon",
    0x4E: "NVIDIA", 0x50: "APM", 0x51: "Qualcomm", 0x53: "Samsung", 0x61: "Apple",
    0x6D: "Microsoft", 0x70: "Phytium", 0xC0: "Ampere",
}  # fmt: skip
_DESIGNS = {
    0x41: {
        0xD03: "Cortex-A53", 0xD04: "Cortex-A35", 0xD05: "Cortex-A55", 0xD07: "Cortex-A57",
        0xD08: "Cortex-A72", 0xD09: "Cortex-A73", 0xD0A: "Cortex-A75", 0xD0B: "Cortex-A76",
        0xD0C: "Neoverse-N1", 0xD0D: "Cortex-A77", 0xD40: "Neoverse-V1", 0xD41: "Cortex-A78",
        0xD42: "Cortex-A78AE", 0xD44: "Cortex-X1", 0xD46: "Cortex-A510", 0xD47: "Cortex-A710",
        0xD48: "Cortex-X2", 0xD49: "Neoverse-N2", 0xD4A: "Neoverse-E1", 0xD4B: "Cortex-A78C",
        0xD4C: "Cortex-X1C", 0xD4D: "Cortex-A715", 0xD4E: "Cortex-X3", 0xD4F: "Neoverse-V2",
        0xD80: "Cortex-A520", 0xD81: "Cortex-A720", 0xD82: "Cortex-X4", 0xD83: "Neoverse-V3AE",
        0xD84: "Neoverse-V3", 0xD85: "Cortex-X925", 0xD87: "Cortex-A725", 0xD8E: "Neoverse-N3",
    },
    0x46: {0x001: "A64FX"},
    0x48: {0xD01: "Kunpeng-920"},
    0x51: {0x001: "Oryon"},
    0x61: {
        0x022: "M1 Icestorm", 0x023: "M1 Firestorm", 0x024: "M1 Pro Icestorm",
        0x025: "M1 Pro Firestorm", 0x028: "M1 Max Icestorm", 0x029: "M1 Max Firestorm",
        0x032: "M2 Blizzard", 0x033: "M2 Avalanche",
    },
    0x6D: {0xD49: "Azure-Cobalt-100"},
    0xC0: {0xAC3: "Ampere-1", 0xAC4: "Ampere-1a", 0xAC5: "Ampere-1b"},
}  # fmt: skip


def arm_processor(path: str = "/proc/cpuinfo") -> str | None:
    """Return the kinds of cores that Linux lists: "4 x ARM Cortex-A55, 4 x ARM Cortex-A78".

    An unknown part is given by its number. None if the file lists none.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.partition(":")[::2] for line in file]
    except OSError:
        return None
    kinds: Counter[str] = Counter()
    maker = 0
    for name, value in lines:
        key = name.strip()
        if key in ("CPU implementer", "CPU part"):
            try:
                number = int(value, 16)
            except ValueError:
                continue
            if key == "CPU implementer":
                maker = number
            else:
                kinds[_name(maker, number)] += 1
    return ", ".join(f"{count} x {kind}" for kind, count in kinds.items()) or None


def _name(maker: int, design: int) -> str:
    known = _DESIGNS.get(maker, {}).get(design, f"design {design:#x}")
    return f"{_MAKERS.get(maker, f'maker {maker:#x}')} {known}"
