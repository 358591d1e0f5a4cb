"""Read bitnet.cpp's kernel_config.ini: the tiles of TL1 and TL2 for each shape of a matrix."""

from __future__ import annotations

import os
from collections.abc import Mapping

from trinity.errors import FormatError
from trinity.formats.mapping import path_text, read_whole

MAX_CONFIG_BYTES = 1 << 20  # bitnet.cpp's own files have some hundred bytes
_LARGEST = 1 << 31
_KEYS = ("m", "k", "bm", "bk", "bmm")


def read_tl_config(path: str | os.PathLike[str]) -> Mapping[tuple[int, int], tuple[int, int, int]]:
    """Map (M, K) to (BM, BY, bm) for each section.

    Raises InputError if the file cannot be read, FormatError if it is malformed.
    """
    import configparser

    name = path_text(path)
    # Interpolation could expand a short text to a very long one.
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(read_whole(name, MAX_CONFIG_BYTES).decode())
    except (configparser.Error, UnicodeDecodeError) as error:
        raise FormatError(
            f"{name}: not a kernel_config.ini of bitnet.cpp: {str(error)[:200]}"
        ) from error
    tiles = {}
    for section in parser.sections():
        try:
            m, k, bm, bk, bmm = (parser.getint(section, key) for key in _KEYS)
        except (configparser.Error, ValueError) as error:
            raise FormatError(
                f"{name}: section [{section:.80}] needs whole numbers for {', '.join(_KEYS)}: "
                f"{str(error)[:200]}"
            ) from error
        if not all(1 <= number <= _LARGEST for number in (m, k, bm, bk, bmm)):
            raise FormatError(
                f"{name}: section [{section:.80}] has a number outside of 1 to {_LARGEST}"
            )
        tiles[m, k] = bm, bk, bmm
    if not tiles:
        raise FormatError(f"{name}: no section has a matrix's shape and tiles")
    return tiles
