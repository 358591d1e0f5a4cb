"""Stored responses as files of a folder, so that they outlive the server's process."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from trinity.server.schemas import decoder, encode
from trinity.server.state_folder import make_folder
from trinity_kernels.whole_file import whole_file

log = logging.getLogger("trinity.server")
_FILE = re.compile(r"(resp_[0-9a-f]{32})\.json")
ENDED = "the server ended before the response was complete"


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """A response as JSON, the items of the conversation before it, of its request, and its own.

    ``size``: bytes of all these, those of earlier responses in the conversation included.
    """

    body: bytes
    input: Sequence[dict[str, Any]]
    earlier: Sequence[dict[str, Any]]
    output: Sequence[dict[str, Any]]
    size: int

    @property
    def conversation(self) -> list[dict[str, Any]]:
        """All items until the end of the response."""
        return [*self.earlier, *self.input, *self.output]


class SavedResponse(msgspec.Struct):
    """A response as its file has it."""

    body: msgspec.Raw
    input: list[dict[str, Any]]
    earlier: list[dict[str, Any]]


class ResponseFiles:
    """The files of one owner's responses. Raises: InputError for a folder that cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        make_folder(folder)

    def read(self, most: int, most_bytes: int) -> Iterator[tuple[str, KeptResponse]]:
        """Yield the newest responses, oldest first; remove all other files of responses."""
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                named = _FILE.fullmatch(entry.name)
                if named and entry.is_file(follow_symlinks=False):
                    status = entry.stat()
                    found.append((status.st_mtime_ns, str(named[1]), status.st_size))
        newest: list[str] = []
        for _, name, size in sorted(found, reverse=True):
            most_bytes -= size
            if most_bytes < 0:
                break
            newest.append(name)
        newest = newest[:most]
        self.remove({name for _, name, _ in found}.difference(newest))
        for name in reversed(newest):
            try:
                yield name, self._read(name)
            except (OSError, msgspec.MsgspecError, LookupError, TypeError, RecursionError) as error:
                log.warning("the stored response %s is damaged and removed: %s", name, error)
                self.remove([name])

    def write(self, name: str, response: KeptResponse) -> None:
        """Write a response. Raises: OSError."""
        saved = SavedResponse(
            msgspec.Raw(response.body), list(response.input), list(response.earlier)
        )
        with whole_file(str(self._path(name)), durable=False) as file:
            file.write(encode(saved))

    def remove(self, names: Iterable[str]) -> None:
        """Remove the files of responses; some may be gone."""
        for name in names:
            with suppress(OSError):
                self._path(name).unlink(missing_ok=True)

    def _read(self, name: str) -> KeptResponse:
        content = self._path(name).read_bytes()
        saved: SavedResponse = decoder(SavedResponse).decode(content)
        body = msgspec.json.decode(saved.body)
        if body["id"] != name:
            raise LookupError("it is another response")
        if body["status"] == "in_progress":
            body["status"], body["error"] = "failed", {"code": "server_error", "message": ENDED}
        return KeptResponse(
            msgspec.json.encode(body), saved.input, saved.earlier, body["output"], len(content)
        )

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"
