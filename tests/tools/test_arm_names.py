"""Names of ARM machines, from their /proc/cpuinfo."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.arm_processors import PROCESSORS
from trinity.tools import machine
from trinity.tools.arm_names import arm_processor

# As lscpu of util-linux names the same numbers.
EXPECTED = {
    "pi3": "4 x ARM Cortex-A53",
    "pi4": "4 x ARM Cortex-A72",
    "pi5": "4 x ARM Cortex-A76",
    "graviton2": "4 x ARM Neoverse-N1",
    "graviton3": "4 x ARM Neoverse-V1",
    "graviton4": "4 x ARM Neoverse-V2",
    "altra": "4 x ARM Neoverse-N1",
    "ampereone": "4 x Ampere Ampere-1",
    "ampereone-a": "4 x Ampere Ampere-1a",
    "m1": "2 x Apple M1 Pro Icestorm, 8 x Apple M1 Pro Firestorm",
    "m1-virtual": "2 x Apple design 0x0",
    "orin": "8 x ARM Cortex-A78AE",
    "phone": "4 x ARM Cortex-A55, 4 x ARM Cortex-A78",
    "phone-no-sve": "3 x ARM Cortex-A510, 2 x ARM Cortex-A715, 2 x ARM Cortex-A710, "
    "1 x ARM Cortex-X3",
    "snapdragon-x": "12 x Qualcomm Oryon",
    "altra-masked": "2 x ARM Neoverse-N1",
}


@pytest.mark.parametrize("key", EXPECTED)
def test_names(key: str, tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(PROCESSORS[key].cpuinfo())
    assert arm_processor(str(path)) == EXPECTED[key]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("processor : 0\nmodel name : some x86\n", None),
        ("CPU implementer : 0x99\nCPU part : 0x123\n", "1 x maker 0x99 design 0x123"),
        ("CPU implementer : ?\nCPU part : ?\n", None),
    ],
)
def test_unknown_numbers(text: str, expected: str | None, tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    assert arm_processor(str(path)) == expected


def test_no_such_file(tmp_path: Path) -> None:
    assert arm_processor(str(tmp_path / "none")) is None


def test_the_machine_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "first_value", lambda path, key: None)
    monkeypatch.setattr(machine, "arm_processor", lambda path: "4 x ARM Cortex-A76")
    assert machine.machine()["cpu"] == "4 x ARM Cortex-A76"
