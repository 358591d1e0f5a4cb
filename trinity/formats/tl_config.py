"""bitnet.cpp's kernel_config.ini: how TL1 and TL2 cut a matrix of each shape into tiles."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping

from trinity.errors import FormatError, InputError
from trinity.formats.mapping import path_text

_KEYS = ("m", "k", "bm", "bk", "bmm")


def read_tl_config(path: str | os.PathLike[str]) -> Mapping[tuple[int, int], tuple[int, int, int]]:
    """(M, K) to (BM, BY, bm), one for each section.

    Raises: InputError where the file cannot be read, FormatError where it is not such a file.
    """
    name = path_text(path)
    parser = configparser.ConfigParser()
    try:
        with open(name, encoding="utf-8") as file:
            parser.read_file(file)
    except OSError as error:
        raise InputError(f"{name}: cannot be opened: {error.strerror or error}") from error
    except (configparser.Error, UnicodeDecodeError) as error:
        raise FormatError(f"{name}: not a kernel_config.ini of bitnet.cpp: {error}") from error
    found = {}
    for section in parser.sections():
        try:
            m, k, bm, bk, bmm = (parser.getint(section, key) for key in _KEYS)
        except (configparser.Error, ValueError) as error:
            raise FormatError(
                f"{name}: section [{section}] needs whole numbers for {', '.join(_KEYS)}: {error}"
            ) from error
        if min(m, k, bm, bk, bmm) < 1:
            raise FormatError(f"{name}: section [{section}] has a number below 1")
        found[m, k] = bm, bk, bmm
    if not found:
        raise FormatError(f"{name}: no section with a matrix's shape and tiles")
    return found
