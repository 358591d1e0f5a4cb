"""What a slot holds, in a file: tokens, and their keys and values, to go on from in another run.

A slot is a number that requests give; its texts share pages among themselves alone. All integers
are of 32 bits, little-endian. Functions take the domain of a slot:

    magic "TSLT", version
    number of words, words: -1, 1, number of tokens, tokens; or the tokens alone
    length of the header, header (JSON): whose keys and values these are
    of each page its full part, then its windowed part where the token after the last one sees it
    CRC-32 of tokens, header and pages

The words are those of the files of sequences that llama.cpp's server writes. Numbers have this
machine's byte order in pages, as kernels have them there.
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
from trinity.runtime.interface import Engine
from trinity.runtime.kv_cache import KVCache
from trinity.runtime.page import Domain
from trinity.runtime.page_search import find
from trinity_kernels.ops.kv_layout import KV_TYPES, PAGE
from trinity_kernels.whole_file import whole_file

MAGIC, VERSION = b"TSLT", 2
OWN = 0o600  # the mode of a file: it has what somebody asked
PACKED = (-1, 1)  # what the words begin with where the number of tokens comes next
LARGEST_HEADER = 1 << 16
STEP = 1 << 20
T = TypeVar("T")


class Between(Protocol):
    """Calls a function while nobody else uses the engine, such as between two of its steps."""

    def __call__(self, function: Callable[[], T]) -> T:
        """What the function returns."""
        ...


def at_once(function: Callable[[], T]) -> T:
    """For callers that nobody else uses the engine beside."""
    return function()


@dataclass(frozen=True, slots=True)
class Header:
    """Whose keys and values they are: everything must be the same where they are read.

    ``model``: the engine's fingerprint; ``rounding``: how it rounds prompts. ``part_bytes``: of a
    page's full and windowed part. ``window``: the positions that windowed layers see, 0 without
    any.
    """

    model: str
    rounding: str
    kv_type: str
    layers: int
    adapters: tuple[float, ...]
    part_bytes: tuple[int, int]
    window: int


def erase(engine: Engine, slot: Domain) -> int:
    """Forget what a slot holds; how many tokens those were."""
    held = engine.pool.held.get(slot)
    engine.pool.erase(slot)
    return 0 if held is None else len(held.tokens)


def save(engine: Engine, slot: Domain, path: str, between: Between = at_once) -> tuple[int, int]:
    """Write what a slot's last sequence left, as far as it is there; numbers of tokens and bytes.

    The file appears whole or not at all. ``between`` calls what needs the engine for itself, which
    is short; meanwhile the pages are in use, so that nobody writes into them.
    Raises: InputError where the slot holds nothing; TrinityError where it cannot be written, or
    where requests have all pages.
    """
    cache, tokens = between(partial(_taken, engine, slot))
    try:
        return _written(engine, cache, tokens, path)
    except OSError as error:
        raise TrinityError(f"{path}: the slot cannot be saved: {error}") from error
    finally:
        between(cache.release)


def restore(engine: Engine, slot: Domain, path: str, between: Between = at_once) -> tuple[int, int]:
    """Let a slot hold what a file has, in place of what it holds; numbers of tokens and bytes.

    The file is checked before anything is forgotten. ``between`` is as in ``save``; no sequence of
    the slot begins meanwhile.
    Raises: InputError where the file is not there, is damaged or of another model; TrinityError
    where there is no room.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            return _restored(engine, slot, _SlotReader(file, path, size), between), size
    except OSError as error:
        raise InputError(f"{path}: no saved slot can be read: {error}") from error


def _taken(engine: Engine, slot: Domain) -> tuple[KVCache, list[int]]:
    """A cache of what is there of a slot's last sequence, and its tokens."""
    pool = engine.pool
    held = pool.held.get(slot)
    if held is not None:
        root = pool.root(held.kv_type, held.adapters, slot)
        # One token more, for a sequence never begins with all of its own.
        pages, length, _ = find(root, [*held.tokens, -1], pool.window)
        if length:
            cache = engine.new_cache(held.kv_type, held.adapters, slot)
            if not cache.enter(pages, length):
                raise TrinityError(
                    f"slot {slot.slot} cannot be saved now: requests that run need all of the "
                    f"{pool.limit} bytes for keys and values; try again"
                )
            return cache, held.tokens[:length]
    raise InputError(f"slot {slot.slot} holds nothing that could be saved: use it first")


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
    os.chmod(path, OWN)  # a file that is replaced had its mode
    return len(tokens), size


class _SlotReader:
    """A saved slot of ``left`` bytes; an end before those is reported as damage."""

    def __init__(self, file: BinaryIO, path: str, left: int) -> None:
        self.path = path
        self.left = left
        self.check = 0
        self._file = file

    def take(self, count: int) -> bytes:
        """The next bytes."""
        data = self._file.read(count) if count <= self.left else b""
        if len(data) != count:
            raise self.wrong(f"{count} bytes were expected where {self.left} are left")
        self.left -= count
        return data

    def fill(self, data: NDArray[np.uint8]) -> None:
        """Put the next bytes into ``data``."""
        if self._file.readinto(data.data) != len(data):  # type: ignore[attr-defined]
            raise self.wrong("it was cut short")
        self.left -= len(data)

    def rewind(self, start: int, size: int) -> None:
        """Go back to ``start``, from which ``size`` bytes are wanted."""
        self._file.seek(start)
        self.left = size

    def place(self) -> int:
        """Where the next byte is."""
        return self._file.tell()

    def counted(self, count: int) -> bytes:
        """The next bytes, which the sum at the end is made of."""
        data = self.take(count)
        self.check = zlib.crc32(data, self.check)
        return data

    def number(self) -> int:
        """The next integer."""
        return int(struct.unpack("<I", self.take(4))[0])

    def wrong(self, what: str) -> InputError:
        """An error of this file."""
        return InputError(f"{self.path}: it is no saved slot that can be used here: {what}")


def _restored(engine: Engine, slot: Domain, file: _SlotReader, between: Between) -> int:
    """Check and read a file; the number of tokens."""
    if file.take(4) != MAGIC:
        raise file.wrong(f"it does not begin with {MAGIC.decode()}")
    if (version := file.number()) != VERSION:
        raise file.wrong(f"its version is {version}; {VERSION} was expected")
    tokens = _tokens(engine, file)
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
        raise file.wrong("its sum is another one, so it is damaged")
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
    """A cache with pages for these tokens, still to be filled, in place of what the slot holds."""
    erase(engine, slot)
    cache = engine.new_cache(header.kv_type, header.adapters, slot)
    try:
        for start in range(0, len(tokens), PAGE):
            if not cache.reserve(min(start + PAGE, len(tokens))):
                raise TrinityError(
                    f"{path}: {len(tokens)} tokens find no room in the {cache.pool.limit} bytes "
                    "that keys and values may have: give more kv_memory (--kv-memory)"
                )
            cache.append(tokens[start : start + PAGE])
        cache.reserve(len(tokens))  # lets go of windowed parts that hold nothing
    except BaseException:
        cache.release(discard=True)
        raise
    return cache


def _keep(cache: KVCache) -> None:
    """Let the slot's next sequence find what a cache holds."""
    cache.remember()
    cache.release()


def _tokens(engine: Engine, file: _SlotReader) -> list[int]:
    most = engine.context_length
    words = file.number()
    if not 0 < words <= most + 3:
        raise file.wrong(f"it has {words} words of tokens, and the context holds {most}")
    data = file.take(4 * words)
    ids: NDArray[np.int32] = np.frombuffer(data, "<i4")
    if tuple(ids[:2].tolist()) == PACKED and words >= 3:
        if ids[2] != words - 3:
            raise file.wrong(f"it says that it has {ids[2]} tokens, where {words - 3} are")
        ids = ids[3:]
    if not 0 < len(ids) <= most:
        raise file.wrong(f"it has {len(ids)} tokens, and the context holds {most}")
    if ids.min() < 0 or ids.max() >= engine.config.vocab_size:
        raise file.wrong("it has tokens that the model does not have")
    file.check = zlib.crc32(ids.tobytes(), file.check)
    return [int(token) for token in ids]


def _read_header(engine: Engine, file: _SlotReader) -> Header:
    """The header, which must be that of this engine."""
    length = file.number()
    if length > LARGEST_HEADER:
        raise file.wrong(f"its header has {length} bytes; {LARGEST_HEADER} are the most")
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
    """The memory of what a cache holds, as far as the next token sees it."""
    window = engine.pool.window
    first = 0 if window is None else window.first_page(cache.length)
    for index in range(-(-cache.length // PAGE)):
        page = cache.page(index)
        for part in (page.full, page.windowed if index >= first else None):
            if part is not None:
                yield part.data
