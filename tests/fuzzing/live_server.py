"""A server in this process for cases that are requests: its responses and its log."""

from __future__ import annotations

import atexit
import logging
import random
import shutil
import socket
import tempfile
import threading
import time
from contextlib import suppress
from functools import cache
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

import trinity
from scripts.models.make_synthetic import SHAPES, write_model
from tests.fuzzing.case import LONGEST_MESSAGE, Case, Finding
from tests.fuzzing.gguf_draft import ARRAY, STRING, Value
from tests.fuzzing.target_speech import whisper
from tests.images.small_vision_models import write_directory
from trinity.errors import TrinityError
from trinity.server.app import make_app
from trinity.server.errors import ApiError
from trinity.server.models import Models
from trinity.server.process import Server, config, listening
from trinity.server.served import Served
from trinity.server.settings import ServerOptions
from trinity.server.speech import Speech

ANSWER_SECONDS = 60.0
# What a server may say of its own state; any other status from 500 on is a finding.
FULL = (501, 503, 507)


class RefusedRequest(TrinityError):  # noqa: N818 - what it is
    """The server refused a request."""


class Log(logging.Handler):
    """Collects the server's log of failures."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Collect one record."""
        self.records.append(record)


class Live:
    """The server; ``slots`` is its folder of saved slots."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="trinity-fuzz-server-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.slots = self.folder / "slots"
        self.slots.mkdir()
        self.log = Log()
        for name in ("trinity.server", "uvicorn.error", "asyncio"):
            logger = logging.getLogger(name)
            logger.addHandler(self.log)
            logger.propagate = False
        path, speech = self.folder / "tiny.gguf", self.folder / "whisper.gguf"
        write_model(path, SHAPES["tiny"])
        speech.write_bytes(sound_whisper())
        model = trinity.load(path, threads=1)
        sees = trinity.load(write_directory("idefics3", self.folder / "vision"), threads=1)
        served = (("tiny", path.name, model), ("vision", "vision", sees))
        self.models = Models(
            [Served(name, file, lambda own=own: own, model=own) for name, file, own in served]
        )
        settings = ServerOptions(
            port=0,
            slot_save_path=str(self.slots),
            state=str(self.folder / "state"),
            max_audio=8 << 20,
            max_file=8 << 20,
        )
        spoken = Speech("whisper-1", lambda: trinity.SpeechModel(speech, threads=1))
        app = make_app(self.models, settings, speech=spoken)
        self._ready = threading.Event()
        threading.Thread(target=self._serve, args=(app, settings), daemon=True).start()
        self._ready.wait(ANSWER_SECONDS)

    def _serve(self, app: Any, settings: ServerOptions) -> None:
        with listening("127.0.0.1", 0) as listener:
            self.port = listener.getsockname()[1]
            server = Server(config(app, settings))
            threading.Thread(target=self._until_started, args=(server,), daemon=True).start()
            server.run(sockets=[listener])

    def _until_started(self, server: Server) -> None:
        while not server.started:
            time.sleep(0.001)
        self._ready.set()

    def exchange(
        self, case: Case, pieces: list[bytes], *, http: bool = True, may_fail: bytes = b""
    ) -> tuple[int, bytes]:
        """Send parts of a request; return status and body of the first response.

        Status 0: the connection ended without one. A status of 500 is not a finding if its body
        contains ``may_fail``. Raises: RefusedRequest for a status of 4xx, of ``FULL`` or such a
        500; Finding.
        """
        case.num_bytes += sum(map(len, pieces))
        self.log.records.clear()
        status, body = 0, b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_SECONDS) as client:
            with suppress(OSError):  # it may have answered and closed before
                for piece in pieces:
                    client.sendall(piece)
                if not http:
                    client.shutdown(socket.SHUT_WR)
            response = HTTPResponse(client)
            try:
                response.begin()
                status, body = response.status, response.read()
            except TimeoutError as error:
                raise Finding("hang", "no answer came") from error
            except (ConnectionError, HTTPException) as error:
                if http:
                    self._check_log()
                    raise Finding("connection", f"ended without an answer: {error!r}") from error
        self._check_log(may_fail)
        failed = bool(may_fail) and status == 500 and may_fail in body
        if status >= 500 and status not in FULL and not failed:
            raise Finding("status", f"{status}: {body[:500]!r}")
        if len(body) > LONGEST_MESSAGE and status >= 400:
            raise Finding("message", f"an error of {len(body)} bytes")
        if str(self.folder).encode() in body or str(case.folder).encode() in body:
            raise Finding("path", f"a path of the server: {body[:500]!r}")
        if status >= 400:
            raise RefusedRequest(f"{status} {body[:200].decode(errors='replace')}")
        return status, body

    def _check_log(self, may_fail: bytes = b"") -> None:
        for record in self.log.records:
            error = record.exc_info[1] if record.exc_info else None
            if may_fail and isinstance(error, ApiError | None):
                continue
            if error is not None:
                raise error
            raise Finding("log", record.getMessage())


@cache
def live() -> Live:
    """Return the only server of this process, started by the first case that needs it."""
    return Live()


def sound_whisper() -> bytes:
    """Return a random Whisper model with a valid tokenizer."""
    draft = whisper(random.Random(3), 0.0)
    draft.set("tokenizer.ggml.merges", Value(ARRAY, [], STRING))
    return bytes(draft.encode()[0])


def request(path: str, headers: dict[str, bytes | str], body: bytes, method: str = "POST") -> bytes:
    """Return a complete request that closes its connection."""
    given = {
        "Host": "localhost",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **headers,
    }
    lines = [f"{method} {path} HTTP/1.1".encode()]
    for name, value in given.items():
        raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
        lines.append(name.encode() + b": " + raw)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
