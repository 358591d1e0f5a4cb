"""Reads images of file URLs, from one folder only."""

from __future__ import annotations

import os
import stat
from urllib.parse import unquote

from trinity.errors import InputError

SCHEME = "file://"


def read_media(url: str, where: str, folder: str, most: int) -> bytes:
    """Return the content of a file in ``folder``, ``most`` bytes at most.

    The path of the URL is one in the folder, as in llama.cpp's server, or the whole path, as in
    vLLM. Links are followed within the folder. ``where`` names the image in errors.
    Raises: InputError for anything else; it does not tell whether a file exists elsewhere.
    """
    path = unquote(url.removeprefix(SCHEME)).removeprefix("localhost")
    root = os.path.realpath(folder)
    refused = InputError(f"{where}: {url!r:.200} is not a file that can be read in --media-path")
    if "\0" in path:
        raise refused
    try:
        found = os.path.realpath(path)
        if not os.path.isabs(path) or os.path.commonpath((root, found)) != root:
            found = os.path.realpath(os.path.join(root, path.lstrip("/\\")))
        if os.path.commonpath((root, found)) != root:
            raise refused
        # O_NONBLOCK: opening a named pipe does not wait for a writer.
        number = os.open(
            found, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        )
        with open(number, "rb") as file:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise refused
            data = file.read(most + 1)
    except (OSError, ValueError) as error:  # ValueError: other drives of Windows
        raise refused from error
    if len(data) > most:
        raise InputError(f"{where}: the file has more than {most} bytes (--max-audio)")
    return data
