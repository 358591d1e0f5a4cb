"""Files of streams, from which a server goes on with an answer that another process began.

A file is named after the stream. It has a line of JSON with its CRC-32 before it, the request and
its prompt, then 8 bytes for each token of the answer: the token, and the CRC-32 of all tokens so
far, both little-endian. Where that is not right the file ends. Tokens are written before anything
of them is sent, so a client never has more than the file tells. Where they cannot be written, as on
a full disk, the file is removed and the stream goes on without one.

The process that writes a file holds a lock on it (flock), which the system drops however the
process ends.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from io import FileIO
from pathlib import Path

from trinity.errors import InputError
from trinity.server.errors import ApiError
from trinity_kernels.whole_file import check_writable

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("trinity.server")

SUFFIX = ".stream"
TOKEN = struct.Struct("<II")
MOST_FILES = 64
KEPT_SECONDS = 3600.0  # after the last token


@dataclass(frozen=True, slots=True)
class Begun:
    """What a stream was begun with.

    ``model`` is the fingerprint of the model called ``model_name``, ``created`` the answer's time
    in seconds since the epoch, ``names`` the seed of the names in it, ``lora`` pairs of adapters
    and weights. ``seed`` is that of the sampler, ``defaults`` are the server's options of answers.
    """

    name: str
    path: str
    body: str
    model: str
    model_name: str
    prompt: Sequence[int]
    seed: int
    names: int
    created: int
    lora: Sequence[tuple[int, float]] | None
    defaults: str


class StreamLog:
    """The tokens of one stream: those that are known, and the file that further ones go into."""

    def __init__(
        self, path: Path, file: FileIO, begun: Begun, tokens: Sequence[int], check: int
    ) -> None:
        self.begun = begun
        self.tokens = list(tokens)
        self._path = path
        self._file = file
        self._check = check
        self._repeated = 0
        self._lost = False

    def add(self, tokens: Sequence[int]) -> None:
        """Write tokens of the answer; those that it had before come first, and once more."""
        known = min(len(tokens), len(self.tokens) - self._repeated)
        self._repeated += known
        packed = bytearray()
        for token in tokens[known:]:
            self._check = zlib.crc32(struct.pack("<I", token), self._check)
            packed += TOKEN.pack(token, self._check)
        if packed and not self._lost:
            try:
                write(self._file, packed)
            except OSError as error:
                self._lose(error)

    def close(self) -> None:
        """Let another process have the file; again is harmless."""
        with suppress(OSError):
            self._file.close()

    def _lose(self, error: OSError) -> None:
        """Go on without the file: a part of the answer would be missing in it."""
        self._lost = True
        log.warning("a stream is kept in memory alone: %s", error)
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._file.fileno()), self._path.stat()):
                self._path.unlink()


class StreamLogs:
    """The folder of such files, ``MOST_FILES`` at most."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_writable(str(folder))
        except OSError as error:
            raise InputError(f"{folder}: no streams can be kept there: {error}") from error

    def create(self, begun: Begun) -> StreamLog | None:
        """A new file, in place of an older one of the name; None where none can be written."""
        self._make_room()
        text = json.dumps(asdict(begun)).encode()
        path = self._path(begun.name)
        file = None
        try:
            path.unlink(missing_ok=True)
            made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
            file = FileIO(made, "r+")
            lock(file)
            write(file, b"%08x %b\n" % (zlib.crc32(text), text))
        except OSError as error:
            log.warning("a stream is kept in memory alone: %s", error)
            if file is not None:
                file.close()
                with suppress(OSError):
                    path.unlink()
            return None
        return StreamLog(path, file, replace(begun, body=""), (), 0)

    def open(self, name: str) -> StreamLog | None:
        """The file of a stream that no process writes; None where there is none that is whole.

        Raises: ApiError 409 where another process writes it.
        """
        path = self._path(name)
        try:
            file = FileIO(path, "r+")
        except OSError:
            return None
        try:
            lock(file)
            head, _, rest = file.read().partition(b"\n")
            begun = read_head(head, name)
            if begun is None:
                file.close()
                return None
            tokens, check = read_tokens(rest)
            file.truncate(len(head) + 1 + TOKEN.size * len(tokens))
            file.seek(0, os.SEEK_END)
            return StreamLog(path, file, begun, tokens, check)
        except BlockingIOError:
            file.close()
            raise ApiError(
                409, f"another process writes the stream {name!r:.80}", "conv_id",
                headers={"Retry-After": "1"},
            ) from None  # fmt: skip
        except BaseException:
            file.close()
            raise

    def remove(self, name: str, names: int | None = None) -> None:
        """Forget a stream, if there is one of the name.

        ``names`` is the seed of the names in it: another process may have begun another one.
        """
        path = self._path(name)
        with suppress(OSError):
            if names is not None:
                with path.open("rb") as file:
                    begun = read_head(file.readline().removesuffix(b"\n"), name)
                if begun is None or begun.names != names:
                    return
            path.unlink()

    def _path(self, name: str) -> Path:
        return self._folder / (hashlib.sha256(name.encode()).hexdigest()[:32] + SUFFIX)

    def _make_room(self) -> None:
        """Remove what is too old, and the oldest where there are too many."""
        found = []
        for path in self._folder.glob(f"*{SUFFIX}"):
            with suppress(OSError):
                found.append((path.stat().st_mtime, path))
        found.sort()
        late = time.time() - KEPT_SECONDS
        for place, (changed, path) in enumerate(found):
            if changed < late or len(found) - place >= MOST_FILES:
                with suppress(OSError), FileIO(path, "r+") as file:
                    lock(file)
                    path.unlink()


@dataclass(slots=True)
class Recording:
    """A stream that shall be kept: how it was asked for, and its file once it has begun.

    ``logs`` is None where it has no file. ``names`` is the seed of the names in it. ``log`` is
    there from the beginning where it is ``resumed``.
    """

    logs: StreamLogs | None
    name: str
    path: str
    body: bytes
    names: int
    log: StreamLog | None = None
    resumed: bool = False

    @classmethod
    def again(cls, logs: StreamLogs, log: StreamLog) -> Recording:
        """Of a stream that goes on."""
        begun = log.begun
        return cls(logs, begun.name, begun.path, begun.body.encode(), begun.names, log, True)

    def begin(
        self, model: str, model_name: str, prompt: Sequence[int], seed: int | None,
        lora: Mapping[int, float] | None, defaults: str,
    ) -> StreamLog | None:  # fmt: skip
        """The file, if it has one, now that it is known what is answered.

        Raises: ApiError.
        """
        if self.logs is None:
            return None
        if self.log is None:
            if seed is None:
                seed = secrets.randbits(32)
            begun = Begun(
                self.name, self.path, self.body.decode(), model, model_name, list(prompt), seed,
                self.names, int(time.time()), None if lora is None else list(lora.items()),
                defaults,
            )  # fmt: skip
            self.log, self.body = self.logs.create(begun), b""
        elif self.log.begun.model != model:
            raise ApiError(
                409, f"the stream was begun by another model that was called {model_name}",
                "conv_id",
            )  # fmt: skip
        elif self.log.begun.defaults != defaults:
            raise ApiError(
                409, "the stream was begun by a server with other options for answers: start it "
                "with the same ones, or ask anew", "conv_id",
            )  # fmt: skip
        return self.log

    def end(self) -> None:
        """Nothing more will be written."""
        self.body = b""
        if self.log is not None:
            self.log.close()

    def forget(self) -> None:
        """Remove the file, if it is still this stream's."""
        if self.logs is not None:
            self.logs.remove(self.name, self.names)


# What the answer of this task is written to.
recording: ContextVar[Recording | None] = ContextVar("recording", default=None)


def lock(file: FileIO) -> None:
    """Raises: BlockingIOError where another process has the lock."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def write(file: FileIO, data: bytes | bytearray) -> None:
    """Write all of it. Raises: OSError."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def read_head(head: bytes, name: str) -> Begun | None:
    """What a file says of its stream; None where it is damaged or another stream's."""
    check, _, text = head.partition(b" ")
    if check != b"%08x" % zlib.crc32(text):
        return None
    try:
        begun = Begun(**json.loads(text))
    except (ValueError, TypeError):
        return None
    return begun if begun.name == name else None


def read_tokens(data: bytes) -> tuple[list[int], int]:
    """The tokens up to the first place that is damaged, and their sum."""
    tokens, check = [], 0
    whole = len(data) // TOKEN.size * TOKEN.size
    for token, expected in TOKEN.iter_unpack(data[:whole]):
        found = zlib.crc32(struct.pack("<I", token), check)
        if found != expected:
            break
        tokens.append(token)
        check = found
    return tokens, check
