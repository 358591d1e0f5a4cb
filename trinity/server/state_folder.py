"""Folders in the folder of --state."""

from __future__ import annotations

from pathlib import Path

from trinity.errors import InputError
from trinity_kernels.whole_file import check_writable


def make_folder(folder: Path) -> None:
    """Make a folder that only its owner can read. Raises: InputError if it is not writable."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_writable(str(folder))
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be written to ({error.strerror}); give another folder as --state"
        ) from error
