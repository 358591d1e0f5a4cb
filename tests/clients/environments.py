"""Install the packages of client scripts, each script's in an environment of its own.

    python tests/clients/environments.py                # of every script in this folder
    python tests/clients/environments.py ollama_python  # of this one

Environments are stored in the folder TRINITY_CLIENTS, by default ``build/clients``. Their name has
a digest of the packages, so changed packages make a new one. pip and npm install by name.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
_PACKAGES = re.compile(r"^(?:#|//) packages: (.+)$", re.MULTILINE)


def scripts() -> dict[str, Path]:
    """Client scripts by name: the files here that name packages."""
    found = [one for one in sorted(HERE.iterdir()) if one.suffix in (".py", ".mjs")]
    return {one.stem: one for one in found if packages_of(one)}


def packages_of(script: Path) -> tuple[str, ...]:
    """The packages that a script names; () if it is not a client script."""
    lines = _PACKAGES.findall(script.read_text(encoding="utf-8"))
    if script.name in ("rows.mjs", "rows.py", Path(__file__).name):
        return ()
    return tuple(package for line in lines for package in line.split())


def base_folder() -> Path:
    """Where environments and results are stored."""
    return Path(os.environ.get("TRINITY_CLIENTS") or ROOT / "build" / "clients")


def rows_file(name: str) -> Path:
    """Where the tests write the rows of a client."""
    return base_folder() / "rows" / f"{name}.json"


def folder_of(script: Path) -> Path:
    """Where the environment of a script is, or will be."""
    packages = packages_of(script)
    digest = hashlib.sha256(" ".join((script.suffix, *packages)).encode()).hexdigest()[:12]
    return base_folder() / f"{script.stem}-{digest}"


def is_installed(script: Path) -> bool:
    """Whether the environment of a script is complete."""
    return (folder_of(script) / "complete").exists()


def command_of(script: Path) -> list[str]:
    """The command that runs an installed script."""
    folder = folder_of(script)
    if script.suffix == ".py":
        return [str(folder / "bin" / "python"), str(script)]
    # Node looks for packages beside the file that imports them.
    return ["node", str(folder / script.name)]


def install(script: Path) -> None:
    """Install what a script needs. Raises: CalledProcessError."""
    folder = folder_of(script)
    if not is_installed(script):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        packages = packages_of(script)
        if script.suffix == ".py":
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
            subprocess.run([*pip, "install", "--quiet", *packages], check=True)
        else:
            (folder / "package.json").write_text(json.dumps({"type": "module", "private": True}))
            npm = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]
            subprocess.run([*npm, *packages], cwd=folder, check=True)
        (folder / "complete").touch()
    if script.suffix == ".mjs":
        for name in ("rows.mjs", script.name):
            shutil.copyfile(HERE / name, folder / name)


def main() -> int:
    """Install environments; the exit code is 1 if a script could not be served."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="scripts, without ending")
    parser.add_argument("--allow-missing", action="store_true", help="exit with 0 all the same")
    options = parser.parse_args()
    known = scripts()
    unknown = set(options.names) - set(known)
    if unknown:
        parser.error(f"{min(unknown)} is not a client script; there are: {', '.join(known)}")
    missing = []
    for name in options.names or known:
        try:
            install(known[name])
        except (subprocess.CalledProcessError, OSError) as error:
            missing.append(name)
            print(f"{name}: not installed: {error}", file=sys.stderr)
    return int(bool(missing) and not options.allow_missing)


if __name__ == "__main__":
    sys.exit(main())
