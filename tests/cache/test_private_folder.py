"""Cache folders that other users own or may write to, and their contents."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trinity.cache.private_folder import distrusted, make_private
from trinity.errors import InputError
from trinity.runtime.pages.prefix_store import PrefixStore

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs owners of files")

ROOT = Path(__file__).resolve().parents[2]
OTHER = 12345
FOLDER = (
    "import trinity; from trinity_kernels.code_files import cache_folder; print(cache_folder())"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two levels below, which others could reach: that of the test is open."""
    tmp_path.chmod(0o755)
    found = tmp_path / "cache"
    (found / "version" / "package").mkdir(parents=True)
    for place in (found, found / "version", found / "version" / "package"):
        place.chmod(0o755)
    return found


@pytest.fixture
def open_above(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no folder above those of tests count as closed."""
    from trinity.cache import private_folder

    closed = private_folder._is_closed
    monkeypatch.setattr(
        private_folder, "_is_closed", lambda place: "cache" in Path(place).parts and closed(place)
    )


def give_away(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a folder belong to another user than the one who looks."""
    if os.geteuid() == 0:
        os.lchown(place, OTHER, -1)
        return
    lstat = os.lstat

    def other(path: str) -> os.stat_result:
        found = lstat(path)
        changed = (*found[:4], OTHER, *found[5:])
        return os.stat_result(changed) if str(path) == str(place) else found

    monkeypatch.setattr(os, "lstat", other)


BELOW = ["", "version", "version/package"]


@pytest.mark.usefixtures("open_above")
@pytest.mark.parametrize("below", BELOW)
def test_folders_that_others_may_write_into(folder: Path, below: str) -> None:
    assert distrusted(str(folder)) is None
    place = folder / below
    place.chmod(0o757)
    found = distrusted(str(folder))
    assert found is not None
    assert f"chmod -R go-rwx {place}" in found
    place.chmod(0o775)
    os.chown(place, -1, os.getegid())
    is_own_group = os.getegid() == os.geteuid()
    assert (distrusted(str(folder)) is None) == is_own_group
    if os.geteuid() == 0:
        os.chown(place, -1, OTHER)
        assert distrusted(str(folder)) is not None
    folder.chmod(0o700)  # below it nobody else can write, whatever is allowed there
    assert distrusted(str(folder)) is None


@pytest.mark.usefixtures("open_above")
def test_the_sticky_bit_counts_above_alone(folder: Path) -> None:
    folder.chmod(0o1777)
    assert distrusted(str(folder / "mine")) is None  # others cannot rename it
    found = distrusted(str(folder))
    assert found is not None
    assert "use a folder of your own in it" in found


@pytest.mark.parametrize("below", BELOW)
def test_folders_of_others(folder: Path, below: str, monkeypatch: pytest.MonkeyPatch) -> None:
    give_away(folder / below, monkeypatch)
    found = distrusted(str(folder))
    assert found is not None
    assert f"belongs to another user (number {OTHER})" in found


def test_folders_above_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_away(folder, monkeypatch)
    for name in ("version", "not/there"):
        assert "belongs to another user" in str(distrusted(str(folder / name)))


def test_links_of_others_count(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert distrusted(str(link / "version")) is None
    give_away(link, monkeypatch)
    assert "belongs to another user" in str(distrusted(str(link / "version")))


def test_what_is_made_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private(str(tmp_path / "a" / "b"))
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")]
    assert modes == [0o700, 0o700]


def kernels_in(folder: Path, **more: str) -> tuple[Path, str]:
    """The folder of compiled kernels of a process, and what it writes to standard error."""
    paths = os.pathsep.join((str(ROOT), str(ROOT / "kernels")))
    environment = {**os.environ, "TRINITY_CACHE_DIR": str(folder), "PYTHONPATH": paths, **more}
    done = subprocess.run(
        [sys.executable, "-c", FOLDER], env=environment, capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip()), done.stderr


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that other users can reach; that of a test is closed to them."""
    with tempfile.TemporaryDirectory() as name:
        found = Path(name)
        found.chmod(0o755)
        (found / "open").mkdir()
        (found / "open").chmod(0o777)
        if distrusted(str(found / "open")) is None:
            pytest.skip(f"{tempfile.gettempdir()} is closed to other users")
        yield found


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_kernels_are_kept_elsewhere(reachable: Path, mode: int) -> None:
    theirs, temporary = reachable / "theirs", reachable / "temporary"
    temporary.mkdir()
    theirs.mkdir()
    theirs.chmod(mode)
    found, told = kernels_in(theirs, TMPDIR=str(temporary))
    assert found.parent == temporary / f"trinity-kernels-{os.geteuid()}"
    assert found.parent.stat().st_mode & 0o777 == 0o700
    assert f"not read from {theirs}: other users can write into {theirs}" in told
    assert str(found.parent) in told
    assert not list(theirs.iterdir())
    again, _ = kernels_in(theirs, TMPDIR=str(temporary))
    assert again == found


@pytest.mark.skipif(os.name == "posix" and os.geteuid() != 0, reason="needs to give folders away")
def test_folders_of_others_are_no_refuge(tmp_path: Path) -> None:
    """The folder is not used even if another user guessed the name of the private folder."""
    theirs, temporary = tmp_path / "theirs", tmp_path / "temporary"
    refuge = temporary / f"trinity-kernels-{os.geteuid()}"
    for place in (theirs, refuge):
        place.mkdir(parents=True)
        os.chown(place, OTHER, OTHER)
    found, told = kernels_in(theirs, TMPDIR=str(temporary))
    assert "belongs to another user" in told
    assert not found.is_relative_to(theirs)
    assert not found.is_relative_to(refuge)
    assert found.is_relative_to(temporary)
    assert not found.exists()  # it ended with the process


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such users")
def test_without_a_home_directory_kernels_are_kept_in_a_temporary_folder(tmp_path: Path) -> None:
    """As in a container whose user is not in /etc/passwd; no folder called ~ is made."""
    unknown = "import os, pwd; os.environ.pop('HOME', 0); pwd.getpwuid = {}.__getitem__; "
    more = "from trinity.cache.kernel_cache import cache_root; print(cache_root())"
    environment = {k: v for k, v in os.environ.items() if k != "TRINITY_CACHE_DIR"}
    paths = os.pathsep.join((str(ROOT), str(ROOT / "kernels")))
    environment |= {"TMPDIR": str(tmp_path), "PYTHONPATH": paths, "XDG_CACHE_HOME": ""}
    done = subprocess.run(
        [sys.executable, "-c", f"{unknown}{FOLDER}; {more}"], env=environment, cwd=tmp_path,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    temporary = tmp_path / f"trinity-kernels-{os.geteuid()}"
    kernels, root = map(Path, done.stdout.split())
    assert (kernels.parent, root) == (temporary, temporary)
    assert "set HOME" in done.stderr
    assert os.listdir(tmp_path) == [temporary.name]


def test_a_good_folder_is_used_in_silence(tmp_path: Path) -> None:
    found, told = kernels_in(tmp_path / "mine")
    assert (found.parent, told) == (tmp_path / "mine", "")
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700


def test_evaluated_texts_are_not_kept_in_folders_of_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_away(folder, monkeypatch)
    with pytest.raises(InputError, match=r"not stored there: .* belongs to another user"):
        PrefixStore(folder, 1 << 20, "model")


def test_quantized_weights_are_not_kept_in_folders_of_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import trinity

    give_away(folder, monkeypatch)
    monkeypatch.setattr("trinity.quantization.cached.cache_folder", lambda kind: folder / kind)
    load: Callable[..., object] = trinity.load
    with pytest.raises(InputError, match=r"cannot be cached there: .* belongs to another user"):
        load(trinity.demo_model(), quantize="Q4_0")
