"""Images that requests name by file URLs (`--media-path`)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from trinity.errors import InputError
from trinity.images.local_media import read_media

CONTENT = b"picture"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with images, links, and other files beside it."""
    root = tmp_path / "media"
    (root / "cats").mkdir(parents=True)
    (root / "cats" / "a b.png").write_bytes(CONTENT)
    (tmp_path / "media2").mkdir()
    (tmp_path / "media2" / "a.png").write_bytes(b"other")
    (tmp_path / "secret.png").write_bytes(b"secret")
    if sys.platform != "win32":
        (root / "inside.png").symlink_to(root / "cats" / "a b.png")
        (root / "outside.png").symlink_to(tmp_path / "secret.png")
        os.mkfifo(root / "pipe.png")
    return root


def urls(folder: Path) -> list[str]:
    """Different URLs of one file."""
    whole = folder / "cats" / "a b.png"
    return ["file://cats/a%20b.png", "file:///cats/a b.png", "file:////cats//a b.png",
            "file://cats/../cats/a b.png", "file://localhost/cats/a b.png",
            f"file://{quote(str(whole))}"]  # fmt: skip


@pytest.mark.parametrize("number", range(6))
def test_files_of_the_folder_are_read(folder: Path, number: int) -> None:
    assert read_media(urls(folder)[number], "here", str(folder), 100) == CONTENT


@pytest.mark.parametrize(
    "path",
    ["cats/none.png", "cats", "", "../secret.png", "cats/../../secret.png", "%2e%2e/secret.png",
     "{outside}/secret.png", "{outside}/media2/a.png", "/etc/passwd", "a%00b", "a" * 5000],
)  # fmt: skip
def test_other_files_are_not(folder: Path, path: str) -> None:
    url = "file://" + path.replace("{outside}", str(folder.parent))
    with pytest.raises(InputError, match=r"^here: .* is not a file that can be read in"):
        read_media(url, "here", str(folder), 100)


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes of Unix")
def test_links_and_pipes(folder: Path) -> None:
    assert read_media("file://inside.png", "here", str(folder), 100) == CONTENT
    for name in ("outside", "pipe"):
        with pytest.raises(InputError, match="is not a file"):
            read_media(f"file://{name}.png", "here", str(folder), 100)


def test_long_files_are_refused(folder: Path) -> None:
    url = urls(folder)[0]
    assert read_media(url, "here", str(folder), len(CONTENT)) == CONTENT
    with pytest.raises(InputError, match=r"more than 6 bytes"):
        read_media(url, "here", str(folder), len(CONTENT) - 1)
