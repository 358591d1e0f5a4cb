"""check_arm.py without an emulator, and the code that it stores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite import binding

from scripts.kernels import arm_root, check_arm
from tests.kernels.process import ROOT, run_python
from trinity_kernels.isa import interpreted
from trinity_kernels.processor import target

LOADED = """
from trinity_kernels import code_store
from trinity_kernels.selftest import KERNELS, check
from trinity_kernels.team import Team
def compiling(*_):
    raise AssertionError("it is not in the cache")
code_store.keep = compiling
KERNELS["scale"].kernel.address("portable", "none", compiling)
Team(2).close()
print(check("scale", "portable", "none"))
"""


def write_emulator(folder: Path, text: str) -> None:
    """A program called qemu-aarch64 that prints ``text``."""
    path = folder / "qemu-aarch64"
    path.write_text(f"#!/bin/sh\necho '{text}'\n")
    path.chmod(0o755)


def test_without_an_emulator_it_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["check_arm.py"])
    assert check_arm.main() == 0
    assert "skipped: there is no qemu-aarch64; install qemu-user" in capsys.readouterr().out


@pytest.mark.skipif(os.name != "posix", reason="the pretended emulator is a shell script")
class TestWithAnEmulator:
    def test_processors_that_it_lacks_are_left_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_emulator(tmp_path, "Available CPUs:\n  cortex-a72\n  max")
        monkeypatch.setenv("PATH", str(tmp_path))
        assert arm_root.emulated(check_arm.PROCESSORS) == ["cortex-a72", "max"]

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"sys.version_info": (3, 12)}, "Debian has an arm64 Python for 3.11 and 3.13"),
            ({"sys.version_info": (3, 11), "platform.machine": lambda: "aarch64"}, "on x86_64"),
            (
                {"sys.version_info": (3, 13), "platform.machine": lambda: "x86_64",
                 "sys.platform": "linux"},
                "there is no mmdebstrap",
            ),
        ],
    )  # fmt: skip
    def test_a_root_that_cannot_be_made_says_why(
        self,
        changed: dict[str, object],
        said: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        write_emulator(tmp_path, "")
        monkeypatch.setenv("PATH", str(tmp_path))
        for name, value in changed.items():
            monkeypatch.setattr(f"scripts.kernels.arm_root.{name}", value)
        with pytest.raises(arm_root.NoArmRootError, match=said):
            arm_root.ArmRoot(tmp_path / "root")
        assert not (tmp_path / "root").exists()


@pytest.mark.full
@pytest.mark.skipif(interpreted(), reason="nothing is compiled")
def test_another_process_loads_what_was_compiled_for_it(tmp_path: Path) -> None:
    """This machine takes the role of the ARM machine: stored code is found and is right."""
    request = {
        "version": sys.version, "cache": str(tmp_path), "kernels": [["scale", "portable", "none"]],
        "target": (binding.get_process_triple(), target().name, target().features),
    }  # fmt: skip
    subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "kernels" / "arm_cache.py")],
        input=json.dumps(request), text=True, check=True, timeout=120,
    )  # fmt: skip
    assert run_python(LOADED, TRINITY_CACHE_DIR=str(tmp_path)).strip() == "None"
