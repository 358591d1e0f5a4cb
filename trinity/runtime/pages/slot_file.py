"""Saves the tokens of a slot with their keys and values, to restore them in another run.

Requests with the same slot number share KV pages only among themselves. The functions take the
domain of a slot. The file consists of little-endian int32 and bytes:

    magic "TSLT", version
    number of words, words: -1, 1, number of tokens, tokens; or only the tokens
    length of the header, header (JSON): the identity of the model
    each page's full part, then its windowed part if the token after the last one attends to it
    CRC-32 of tokens, header and pages

The words are the same as in the sequence files of llama.cpp's server. Pages have the byte order of
this machine.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import BinaryIO, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError, TrinityError
from trinity.runtime.image_rows import FIRST_ID
from trinity.runtime.interface import Engine
from trinity.runtime.pages.kv_cache import KVCache
from trinity.runtime.pages.page import Domain
from trinity.runtime.pages.page_search import find
from trinity_kernels.ops.kv_layout import KV_TYPES, PAGE
from trinity_kernels.whole_file import whole_file

MAGIC, VERSION = b"TSLT", 2
OWN = 0o600  # the mode of a new file: it contains a user's text
PACKED = (-1, 1)  # the words begin with these if the number of tokens follows
LARGEST_HEADER = 1 << 16
STEP = 1 << 20
T = TypeVar("T")


class Between(Protocol):
    """Calls a function while no other thread uses the engine, for example between two steps."""

    def __call__(self, function: Callable[[], T]) -> T:
        """Return the result of the function."""
        ...


def at_once(function: Callable[[], T]) -> T:
    """Call the function; a `Between` for callers that are the only users of the engine."""
    return function()


@dataclass(frozen=True, slots=True)
class Header:
    """Identifies the keys and values; all fields must be equal in the engine that reads them."""

    model: str  # the engine's fingerprint
    rounding: str  # the engine's: it names the kernels that compute prompts
    kv_type: str
    layers: int
    adapters: tuple[float, ...]
    part_bytes: tuple[int, int]  # bytes of a page's full part and of its windowed part
    window: int  # the number of positions that windowed layers attend to; 0 without such layers


def erase(engine: Engine, slot: Domain) -> int:
    """Forget what a slot holds; return its number of tokens."""
    held = engine.pool.held.get(slot)
    engine.pool.erase(slot)
    return 0 if held is None else len(held.tokens)


def save(engine: Engine, slot: Domain, path: str, between: Between = at_once) -> tuple[int, int]:
    """Write what still exists of a slot's last sequence; return the numbers of tokens and bytes.

    The file is complete or does not appear. ``between`` calls the short functions that need the
    engine alone. Meanwhile the pages are in use, so nothing overwrites them.
    Raises: InputError if the slot holds nothing; TrinityError if the file cannot be written, or if
    requests have all pages.
    """
    cache, tokens = between(partial(_taken, engine, slot))
    try:
        return _written(engine, cache, tokens, path)
    except OSError as error:
        raise TrinityError(f"{path}: the slot cannot be saved: {error}") from error
    finally:
        between(cache.release)


def restore(
    engine: Engine, slot: Domain, path: str, between: Between = at_once, *, images: bool = True
) -> tuple[int, int]:
    """Replace what a slot holds by the content of a file; return the numbers of tokens and bytes.

    The file is checked before anything is forgotten. ``between`` is as in ``save``; no sequence of
    the slot may begin meanwhile. ``images``: whether the model reads images.
    Raises: InputError if the file does not exist, is damaged or belongs to another model;
    TrinityError if there is no room.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            reader = _SlotReader(file, path, size)
            return _restored(engine, slot, reader, between, images=images), size
    except OSError as error:
        raise InputError(f"{path}: the saved slot cannot be read: {error}") from error


def _taken(engine: Engine, slot: Domain) -> tuple[KVCache, list[int]]:
    """A KV cache with what exists of a slot's last sequence, and its tokens."""
    pool = engine.pool
    held = pool.held.get(slot)
    if held is not None:
        root = pool.root(held.kv_type, held.adapters, slot)
        # One token more, because a sequence never reuses all of its tokens.
        pages, length, _ = find(root, [*held.tokens, -1], pool.window)
        if length:
            cache = engine.new_cache(held.kv_type, held.adapters, slot)
            if not cache.enter(pages, length):
                raise TrinityError(
                    f"slot {slot.slot} cannot be saved now: running requests need the whole "
                    f"KV cache of {pool.limit} bytes; try again"
                )
            return cache, held.tokens[:length]
    raise InputError(f"slot {slot.slot} is empty: there is nothing to save")


def _written(
    engine: Engine, cache: KVCache, token_ids: Sequence[int], path: str
) -> tuple[int, int]:
    """Write the file."""
    tokens = np.asarray(token_ids, "<i4")
    text = json.dumps(asdict(_header(engine, cache.kv_type, cache.adapters))).encode()
    with whole_file(path) as file:
        if hasattr(os, "fchmod"):
            os.fchmod(file.fileno(), OWN)
        file.write(struct.pack("<4sIIiiI", MAGIC, VERSION, 3 + len(tokens), *PACKED, len(tokens)))
        file.write(tokens.tobytes())
        file.write(struct.pack("<I", len(text)) + text)
        check = zlib.crc32(text, zlib.crc32(tokens.tobytes()))
        for data in _parts(engine, cache):
            file.write(data.data)
            check = zlib.crc32(data.data, check)
        file.write(struct.pack("<I", check))
        size = file.tell()
    os.chmod(path, OWN)  # as the file that is replaced
    return len(tokens), size


class _SlotReader:
    """Reads a saved slot of ``left`` bytes; an early end is reported as damage."""

    def __init__(self, file: BinaryIO, path: str, left: int) -> None:
        self.path = path
        self.left = left
        self.check = 0
        self._file = file

    def take(self, count: int) -> bytes:
        """Read ``count`` bytes."""
        data = self._file.read(count) if count <= self.left else b""
        if len(data) != count:
            raise self.wrong(f"{count} bytes were expected, but {self.left} are left")
        self.left -= count
        return data

    def fill(self, data: NDArray[np.uint8]) -> None:
        """Read bytes into ``data``."""
        if self._file.readinto(data.data) != len(data):  # type: ignore[attr-defined]
            raise self.wrong("it is truncated")
        self.left -= len(data)

    def rewind(self, start: int, size: int) -> None:
        """Go back to ``start``, from which ``size`` bytes will be read."""
        self._file.seek(start)
        self.left = size

    def place(self) -> int:
        """The position in the file."""
        return self._file.tell()

    def counted(self, count: int) -> bytes:
        """Read ``count`` bytes that are part of the checksum."""
        data = self.take(count)
        self.check = zlib.crc32(data, self.check)
        return data

    def number(self) -> int:
        """Read an integer."""
        return int(struct.unpack("<I", self.take(4))[0])

    def wrong(self, what: str) -> InputError:
        """An error about this file."""
        return InputError(f"{self.path}: not a saved slot that can be used here: {what}")


def _restored(
    engine: Engine, slot: Domain, file: _SlotReader, between: Between, *, images: bool
) -> int:
    """Check and read a file; return the number of tokens."""
    if file.take(4) != MAGIC:
        raise file.wrong(f"it does not begin with {MAGIC.decode()}")
    if (version := file.number()) != VERSION:
        raise file.wrong(f"its version is {version}; {VERSION} was expected")
    tokens = _tokens(engine, file)
    if not images and max(tokens) >= FIRST_ID:
        raise file.wrong(
            "it has images. Cannot restore media tokens without an mmproj (a vision tower)"
        )
    header = _read_header(engine, file)
    window = engine.pool.window
    count, full_bytes = -(-len(tokens) // PAGE), header.part_bytes[0]
    first = 0 if window is None else window.first_page(len(tokens))
    size = count * full_bytes + (count - first) * header.part_bytes[1]
    if file.left != size + 4:
        raise file.wrong(f"{len(tokens)} tokens take {size + 4} bytes at its end, not {file.left}")
    start = file.place()
    while file.left > 4:
        file.counted(min(STEP, file.left - 4))
    if file.number() != file.check:
        raise file.wrong("its checksum is wrong: it is damaged")
    file.rewind(start, size)
    cache = between(partial(_room, engine, slot, header, tokens, file.path))
    try:
        for data in _parts(engine, cache):
            file.fill(data)
    except BaseException:
        between(partial(cache.release, discard=True))
        raise
    between(partial(_keep, cache))
    return len(tokens)


def _room(engine: Engine, slot: Domain, header: Header, tokens: list[int], path: str) -> KVCache:
    """A KV cache with unfilled pages for these tokens, in place of what the slot holds."""
    erase(engine, slot)
    cache = engine.new_cache(header.kv_type, header.adapters, slot)
    try:
        for start in range(0, len(tokens), PAGE):
            if not cache.reserve(min(start + PAGE, len(tokens))):
                raise TrinityError(
                    f"{path}: {len(tokens)} tokens do not fit into the KV cache of "
                    f"{cache.pool.limit} bytes: give more kv_memory (--kv-memory)"
                )
            cache.append(tokens[start : start + PAGE])
        cache.reserve(len(tokens))  # gives back windowed parts that hold nothing
    except BaseException:
        cache.release(discard=True)
        raise
    return cache


def _keep(cache: KVCache) -> None:
    """Let the slot's next sequence find what a KV cache holds."""
    cache.remember()
    cache.release()


def _tokens(engine: Engine, file: _SlotReader) -> list[int]:
    most = engine.context_length
    words = file.number()
    if not 0 < words <= most + 3:
        raise file.wrong(f"its tokens take {words} words, and the context holds {most} tokens")
    data = file.take(4 * words)
    ids: NDArray[np.int32] = np.frombuffer(data, "<i4")
    if tuple(ids[:2].tolist()) == PACKED and words >= 3:
        if ids[2] != words - 3:
            raise file.wrong(f"its header says {ids[2]} tokens, but it has {words - 3}")
        ids = ids[3:]
    if not 0 < len(ids) <= most:
        raise file.wrong(f"it has {len(ids)} tokens, and the context holds {most}")
    unknown = (ids < 0) | ((ids >= engine.config.vocab_size) & (ids < FIRST_ID))
    if unknown.any():
        raise file.wrong("it has tokens that the model does not have")
    file.check = zlib.crc32(ids.tobytes(), file.check)
    return [int(token) for token in ids]


def _read_header(engine: Engine, file: _SlotReader) -> Header:
    """Read the header; it must match this engine."""
    length = file.number()
    if length > LARGEST_HEADER:
        raise file.wrong(f"its header has {length} bytes; at most {LARGEST_HEADER} are allowed")
    try:
        given = json.loads(file.counted(length))
        kv_type, adapters = given["kv_type"], tuple(float(scale) for scale in given["adapters"])
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise file.wrong(f"its header cannot be read: {error!r:.80}") from error
    if kv_type not in KV_TYPES:
        raise file.wrong(f"its keys and values are {kv_type!r:.20}")
    wanted = _header(engine, kv_type, adapters)
    for name, value in json.loads(json.dumps(asdict(wanted))).items():
        if given.get(name) != value:
            raise file.wrong(f"its {name} is {given.get(name)!r:.80}, here it is {value!r:.80}")
    if len(adapters) not in (0, len(engine.adapters)):
        raise file.wrong(f"it has weights of {len(adapters)} adapters, not {len(engine.adapters)}")
    return wanted


def _header(engine: Engine, kv_type: str, adapters: Sequence[float]) -> Header:
    sizes, window = engine.pool.sizes[kv_type], engine.pool.window
    return Header(
        engine.fingerprint, engine.rounding, kv_type, engine.config.num_layers, tuple(adapters),
        (sizes.full, sizes.windowed),
        0 if window is None else window.positions,
    )  # fmt: skip


def _parts(engine: Engine, cache: KVCache) -> Iterator[NDArray[np.uint8]]:
    """The memory of a KV cache, as far as the next token attends to it."""
    window = engine.pool.window
    first = 0 if window is None else window.first_page(cache.length)
    for index in range(-(-cache.length // PAGE)):
        page = cache.page(index)
        for part in (page.full, page.windowed if index >= first else None):
            if part is not None:
                yield part.data
