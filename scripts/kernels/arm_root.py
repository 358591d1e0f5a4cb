"""An ARM machine in emulation: Debian's Python for arm64 under QEMU's user mode.

The root is a folder that packages were unpacked into, nothing of it was started or installed, so
that no rights are needed, no chroot and no binfmt. The program that a process starts as ``python``
is a script that calls QEMU, and Python's own ``sys.executable`` is that script as well.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

# Debian's releases by their Python: code is kept for one minor version and read by the same.
RELEASES = {(3, 11): "bookworm", (3, 13): "trixie"}
# What the engine, its self-test and the tests of golden models import.
PACKAGES = (
    "numpy", "numba", "llvmlite", "sentencepiece", "tokenizers", "jinja2", "typer", "rich",
    "prompt_toolkit", "pytest", "hypothesis", "gguf", "safetensors",
)  # fmt: skip
PLATFORMS = [f"manylinux_2_{minor}_aarch64" for minor in (34, 31, 28, 27, 26, 17)]


class NoArmRootError(Exception):
    """This machine cannot create or run the root; the message says what to do."""


def qemu() -> str:
    """Return QEMU's program for aarch64. Raises: NoArmRootError."""
    for name in ("qemu-aarch64", "qemu-aarch64-static"):
        if found := shutil.which(name):
            return found
    raise NoArmRootError("there is no qemu-aarch64; install qemu-user or qemu-user-static")


def emulated(names: Sequence[str]) -> list[str]:
    """Return those of ``names`` that this QEMU emulates. Raises: NoArmRootError."""
    said = subprocess.run([qemu(), "-cpu", "help"], capture_output=True, text=True).stdout.split()
    return [name for name in names if name in said]


class ArmRoot:
    """A root in ``folder``, created at the first use: 0.5 GB, some minutes of downloads.

    Raises: NoArmRootError.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.python = self.folder / "python"
        self._emulator = qemu()
        if not self.python.exists():
            self._make()

    def run(
        self, cpu: str, arguments: Sequence[str], cache: Path, path: str, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments on the emulated processor, with its kernels in ``cache``.

        ``path`` is PYTHONPATH, ``options`` are for ``subprocess.run``.
        """
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("NUMBA_", "TRINITY_", "PYTHON"))
        }
        environment |= {"QEMU_CPU": cpu, "TRINITY_CACHE_DIR": str(cache), "PYTHONPATH": path}
        return subprocess.run([str(self.python), *arguments], env=environment, text=True, **options)

    def _make(self) -> None:
        release = RELEASES.get(sys.version_info[:2])
        if release is None:
            raise NoArmRootError(
                f"this is Python {platform.python_version()}; Debian has an arm64 Python for "
                + " and ".join(f"{major}.{minor}" for major, minor in RELEASES)
            )
        if platform.machine() != "x86_64" or sys.platform != "linux":
            raise NoArmRootError("kernels are compiled beforehand on Linux on x86_64 only")
        if shutil.which("mmdebstrap") is None:
            raise NoArmRootError("there is no mmdebstrap, which unpacks Debian's packages")
        made = self.folder.with_name(f"{self.folder.name}.new")
        shutil.rmtree(made, ignore_errors=True)
        made.parent.mkdir(parents=True, exist_ok=True)
        # Bytecode is the same everywhere, and making it in emulation takes long.
        compiled = [sys.executable, "-m", "compileall", "-q", str(made)]
        for command in (self._unpack(release, made), self._install(made), compiled):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise NoArmRootError(f"{command[0]} failed: {done.stderr.strip()[-500:]}")
        for name in ("tmp", "dev"):  # QEMU would prefer them to this machine's
            shutil.rmtree(made / name, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        made.rename(self.folder)
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        site = self.folder / "usr" / "lib" / version / "sitecustomize.py"
        site.unlink(missing_ok=True)
        site.write_text(
            f"import sys\n\nsys.executable = {str(self.python)!r}\n"
            f"sys.path.append({str(self.folder / 'site')!r})\n"
        )
        # Last, and at once: it says that the root is whole.
        script = self.folder / "python.new"
        script.write_text(
            f'#!/bin/sh\nexec "{self._emulator}" -L "{self.folder}" '
            f'"{self.folder}/usr/bin/{version}" "$@"\n'
        )
        script.chmod(0o755)
        script.rename(self.python)

    @staticmethod
    def _unpack(release: str, to: Path) -> list[str]:
        return [
            "mmdebstrap", "--variant=extract", "--architectures=arm64",
            "--include=python3,libgomp1,libstdc++6", release, str(to),
        ]  # fmt: skip

    @staticmethod
    def _install(to: Path) -> list[str]:
        """Install wheels for ARM of the versions that are installed here."""
        wanted = [f"{name}=={metadata.version(name)}" for name in PACKAGES]
        platforms = [word for name in PLATFORMS for word in ("--platform", name)]
        return [
            sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
            "--target", str(to / "site"), "--only-binary", ":all:", *platforms, *wanted,
        ]  # fmt: skip
