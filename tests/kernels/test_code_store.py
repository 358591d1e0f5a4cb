"""Files of compiled code: valid ones are read, others are refused."""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.matrix import parts
from trinity_kernels import code_files, code_store
from trinity_kernels.code_store import find, keep, pack, parse, path_of
from trinity_kernels.flat_code import FlatCode

KEY = "matmul Q4_0 avx2"
FLAT = FlatCode(bytes(range(256)) * 4, 16, 8, (("exp2", 1000), ("fmaf", 1016)))
OTHER = FlatCode(bytes(512), 0)
posix = pytest.mark.skipif(os.name == "nt", reason="owners and permissions are POSIX's")


def write(folder: Path) -> Path:
    keep(folder, "matmul", KEY, FLAT)
    return path_of(folder, "matmul", KEY)


def test_what_is_kept_is_found(tmp_path: Path) -> None:
    assert find(tmp_path, "matmul", KEY) is None
    path = write(tmp_path)
    assert find(tmp_path, "matmul", KEY) == FLAT
    assert os.listdir(tmp_path) == [path.name]
    keep(tmp_path, "matmul", "matmul Q4_0 avx512vnni", OTHER)
    assert find(tmp_path, "matmul", KEY) == FLAT
    keep(tmp_path, "matmul", KEY, OTHER)
    assert find(tmp_path, "matmul", KEY) == OTHER


def test_code_of_another_key_is_not_used(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.rename(path_of(tmp_path, "matmul", "another"))
    assert find(tmp_path, "matmul", "another") is None


def test_a_folder_that_is_missing_or_a_file(tmp_path: Path) -> None:
    assert find(tmp_path / "missing", "matmul", KEY) is None
    (tmp_path / "file").write_bytes(b"")
    assert find(tmp_path / "file", "matmul", KEY) is None


@posix
@pytest.mark.parametrize("mode", [0o646, 0o666, 0o622, 0o777])
def test_a_file_that_others_can_write_is_not_used(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path)
    path.chmod(mode)
    assert find(tmp_path, "matmul", KEY) is None
    write(tmp_path)  # takes its place, with permissions of its own
    assert find(tmp_path, "matmul", KEY) == FLAT


@posix
def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    write(tmp_path)
    for mode, found in ((0o777, None), (0o1777, None), (0o757, None), (0o755, FLAT), (0o700, FLAT)):
        tmp_path.chmod(mode)
        assert find(tmp_path, "matmul", KEY) == found


@posix
def test_no_umask_makes_a_file_that_others_can_write(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = write(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) & 0o022 == 0
    assert find(tmp_path, "matmul", KEY) == FLAT


@posix
def test_another_users_file_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path)
    if os.geteuid() == 0:
        os.chown(path, 54321, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert find(tmp_path, "matmul", KEY) is None


@posix
def test_links_and_pipes_are_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir(0o755)
    path = write(folder)
    moved = tmp_path / "moved"
    path.rename(moved)
    path.symlink_to(moved)
    assert find(folder, "matmul", KEY) is None
    content = moved.read_bytes()
    write(folder)
    assert not path.is_symlink()
    assert moved.read_bytes() == content
    path.unlink()
    os.mkfifo(path)
    assert find(folder, "matmul", KEY) is None
    path.unlink()
    path.mkdir()
    assert find(folder, "matmul", KEY) is None
    path.rmdir()
    write(folder)
    (tmp_path / "link").symlink_to(folder)
    assert find(tmp_path / "link", "matmul", KEY) is None


def test_words_that_are_no_numbers_or_out_of_range() -> None:
    for flat in (
        FlatCode(b"code", 4),
        FlatCode(b"code", -1),
        FlatCode(b"code", 0, -8),
        FlatCode(b"code", 0, 1 << 40),
        FlatCode(b"code", 0, 0, (("exp2", 0),)),
        FlatCode(bytes(16), 0, 0, (("exp2", -8),)),
    ):
        assert parse(pack(flat, KEY), KEY) is None
    flat = FlatCode(b"code", 0, 0, (("a b", 0),))
    assert parse(pack(flat, KEY), KEY) is None


def damaged(rng: random.Random, whole: bytes, other: bytes) -> bytes:
    """Yield a file's content cut, flipped, swapped or joined with another's."""
    content = bytearray(whole)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        kind = rng.randrange(6)
        at, to = sorted((rng.randrange(len(content) + 1), rng.randrange(len(content) + 1)))
        if kind == 0:
            del content[at:to]
        elif kind == 1 and content:
            content[at % len(content)] ^= 1 << rng.randrange(8)
        elif kind == 2:
            content[at:at] = rng.randbytes(rng.randrange(1, 40))
        elif kind == 3:
            content[at:to] = other[at:to]
        elif kind == 4:
            content = content[to:] + content[at:to] + content[:at]
        else:
            content = content[:at]
    return bytes(content)


def change_owner(place: Path) -> bool:
    """Give a file or folder to another user; False if that is not permitted."""
    if os.geteuid() != 0:
        return False
    os.chown(place, 54321, -1)
    return True


# What is done to a whole file or to its folder; False where it could not be done.
REFUSED: dict[str, Callable[[Path], bool | None]] = {
    "all write the file": lambda path: path.chmod(0o602),
    "all write the folder": lambda path: path.parent.chmod(0o1777),
    "another's file": change_owner,
    "another's folder": lambda path: change_owner(path.parent),
    "a link": lambda path: path.symlink_to(path.rename(path.parent / "target")),
    "a linked folder": lambda path: path.parent.symlink_to(path.parent.rename(f"{path.parent}-")),
}


@pytest.mark.parametrize("part", parts(10))
def test_damaged_files_are_never_used(tmp_path: Path, part: int) -> None:
    """1000 cases of each kind: contents, names, owners, permissions and links."""
    rng = random.Random(part)
    for case in range(1000):
        folder = tmp_path / str(case)
        folder.mkdir(0o755)
        path, other = write(folder), path_of(folder, "matmul", "another")
        other.write_bytes(pack(OTHER, "another"))
        whole = path.read_bytes()
        what = rng.choice([*3 * ["damaged"], "swapped", *(REFUSED if os.name != "nt" else ())])
        expected = None
        if what == "damaged":
            content = damaged(rng, whole, other.read_bytes())
            path.write_bytes(content)
            expected = FLAT if content == whole else None
            assert code_store.parse(content, KEY) == expected
        elif what == "swapped":
            other.replace(path)
        elif REFUSED[what](path) is False:
            continue
        assert find(folder, "matmul", KEY) == expected, f"part {part}, case {case}: {what}"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_folder_without_room_or_rights_is_a_problem_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    monkeypatch.setattr(code_files, "_problem", None)
    code_files.note_problem(tmp_path, OSError(number, os.strerror(number)))
    text = code_files.take_cache_problem()
    assert text is not None
    assert f"cannot be stored in {tmp_path} ({os.strerror(number)})" in text
    assert ("make room there, or set" in text) == (number == errno.ENOSPC)
    assert "set TRINITY_CACHE_DIR to a writable folder" in text
    assert code_files.take_cache_problem() is None
