"""Files that are written completely or not at all, and temporary files of killed processes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.process import KERNELS
from trinity_kernels.whole_file import check_writable, discard_unfinished, whole_file

posix = pytest.mark.skipif(os.name == "nt", reason="locks, modes and links of POSIX")
WRITER = """
import sys
from trinity_kernels.whole_file import whole_file
with whole_file(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    sys.stdin.read()
"""


def writer(path: Path) -> subprocess.Popen[bytes]:
    """A process that has written half a file and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(KERNELS)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    return process


def write(path: Path, content: bytes = b"new") -> None:
    with whole_file(str(path)) as file:
        file.write(content)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@posix
def test_the_next_writer_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    with writer(tmp_path / "a") as killed:
        killed.kill()
    (left,) = names(tmp_path)
    assert left.startswith(".trinity-")
    write(tmp_path / "b")
    assert names(tmp_path) == ["b"]


@posix
def test_a_living_writer_keeps_its_file(tmp_path: Path) -> None:
    with writer(tmp_path / "a") as alive:
        write(tmp_path / "b")
        check_writable(str(tmp_path))
        assert len(names(tmp_path)) == 2
        alive.communicate()
    assert (tmp_path / "a").read_bytes() == b"half"
    assert names(tmp_path) == ["a", "b"]


@posix
def test_what_may_belong_to_others_stays(tmp_path: Path) -> None:
    """Files of another machine, without locks, and special files stay; a pipe is not opened."""
    others = [".trinity-00000000-11.tmp", ".trinity-unlocked-11.tmp", "trinity-1.tmp"]
    for name in others:
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / ".trinity-2.tmp")
    (tmp_path / ".trinity-3.tmp").symlink_to(tmp_path / others[0])
    write(tmp_path / "b")
    assert names(tmp_path) == sorted([*others, ".trinity-2.tmp", ".trinity-3.tmp", "b"])


@posix
def test_modes(tmp_path: Path) -> None:
    """A new file follows the umask, a replaced file keeps its mode."""
    umask = os.umask(0o027)
    try:
        write(tmp_path / "new")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o600)
    with whole_file(str(tmp_path / "new")) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600


@posix
def test_a_link_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder / "file")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (folder / "file").read_bytes() == b"new"


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    write(tmp_path / "a", b"old")

    def fail() -> None:
        with whole_file(str(tmp_path / "a")) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


@posix
def test_a_process_that_ends_discards_what_it_writes(tmp_path: Path) -> None:
    def end() -> None:
        with whole_file(str(tmp_path / "a")):
            discard_unfinished()
            assert names(tmp_path) == []

    with pytest.raises(FileNotFoundError):
        end()


@posix
def test_a_child_has_nothing_to_discard(tmp_path: Path) -> None:
    """A separate process forks, because Python 3.12 warns of fork while threads run."""
    code = f"""
import os
from trinity_kernels.whole_file import discard_unfinished, whole_file
with whole_file({str(tmp_path / "a")!r}) as file:
    child = os.fork()
    if not child:
        discard_unfinished()
        os._exit(0)
    os.waitpid(child, 0)
    file.write(b"new")
"""
    environment = {**os.environ, "PYTHONPATH": str(KERNELS)}
    subprocess.run([sys.executable, "-c", code], env=environment, timeout=60, check=True)
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_trial_file_may_be_gone_before_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it is closed, another process may remove it as abandoned."""
    removed = []
    real = os.unlink

    def unlink(path: str) -> None:
        removed.append(path)
        real(path)  # the other process
        real(path)

    monkeypatch.setattr(os, "unlink", unlink)
    check_writable(str(tmp_path))
    assert len(removed) == 1
    assert not list(tmp_path.iterdir())
