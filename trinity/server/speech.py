"""The Whisper model of a server: loaded when it is asked for, one recording after the other."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from trinity.errors import FormatError, InputError, TrinityError, UnsupportedError
from trinity.server.errors import ApiError
from trinity.speech.transcript import Segment, Transcript, collected

if TYPE_CHECKING:
    from trinity.speech.model import SpeechModel

log = logging.getLogger("trinity.server")

MOST_WAITING = 16
# The names that OpenAI's clients know and send by default; each means the server's one model.
BUILT_IN_NAMES = frozenset(
    {
        "whisper-1", "gpt-transcribe", "gpt-4o-transcribe", "gpt-4o-mini-transcribe",
        "gpt-4o-mini-transcribe-2025-12-15", "gpt-4o-transcribe-diarize",
    }
)  # fmt: skip


class Speech:
    """A speech model by its ``name``; ``load`` makes it. Recordings wait for each other.

    ``notice`` takes a line if the model cannot be loaded at the start.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], SpeechModel],
        notice: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.name = name
        self._load, self._notice = load, notice
        self._model: SpeechModel | None = None
        self._worker = ThreadPoolExecutor(1, "trinity-speech")
        self._waiting = 0
        self._closing = threading.Event()

    def check_name(self, name: str | None, any_name: bool) -> None:
        """Raises: ApiError 404 for the name of another model."""
        if not any_name and name not in (None, self.name, *BUILT_IN_NAMES):
            raise ApiError(
                404,
                f"there is no speech model {name!r:.200}; there is {self.name}",
                "model",
                "model_not_found",
            )

    def start(self, audio: bytes, **options: Any) -> Transcribing:
        """Begin the transcription of a file of these bytes; options are those of SpeechOptions.

        Raises: ApiError 429 if too many recordings wait.
        """
        if self._waiting >= MOST_WAITING:
            raise ApiError(
                429,
                f"{self._waiting} recordings wait; at most {MOST_WAITING} may",
                code="queue_full",
                headers={"Retry-After": "10"},
            )
        loop, left = asyncio.get_running_loop(), threading.Event()
        segments = asyncio.Queue[Segment | None]()

        def told(segment: Segment) -> None:
            loop.call_soon_threadsafe(segments.put_nowait, segment)

        def ended(running: asyncio.Future[Transcript]) -> None:
            self._waiting -= 1
            segments.put_nowait(None)
            if not running.cancelled():
                running.exception()  # seen, even if nobody waits for it any more

        self._waiting += 1
        running = loop.run_in_executor(self._worker, self._run, audio, left, options, told)
        running.add_done_callback(ended)
        return Transcribing(running, segments, left)

    async def transcribe(self, audio: bytes, **options: Any) -> Transcript:
        """What is said in a file of these bytes; options are those of SpeechOptions.

        Cancelling the caller ends it. Raises: ApiError, also if the audio cannot be read.
        """
        transcribing = self.start(audio, **options)
        try:
            return await transcribing.transcript()
        finally:
            transcribing.close()

    def pieces(self, segment: Segment) -> list[tuple[bytes, float]]:
        """The bytes and the log-probability of each token of text in a segment."""
        assert self._model is not None
        return self._model.pieces(segment)

    async def load_now(self) -> None:
        """Load it. A model that cannot be loaded is reported, and requests for it get 503."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._worker, self._loaded)
        except TrinityError as error:
            self._notice(
                f"warning: the speech model {self.name} cannot be loaded, so requests for "
                f"transcripts get status 503: {error}"
            )

    def close(self) -> None:
        """Begin nothing more, and end what runs."""
        self._closing.set()
        self._worker.shutdown(wait=True, cancel_futures=True)
        if self._model is not None:
            self._model.close()

    def _loaded(self) -> SpeechModel:
        if self._model is None:
            self._model = self._load()
        return self._model

    def _run(
        self, audio: bytes, left: threading.Event, options: dict[str, Any],
        told: Callable[[Segment], None],
    ) -> Transcript:  # fmt: skip
        try:
            model = self._loaded()
        except TrinityError as error:
            log.error("the model %s cannot be loaded: %s", self.name, error)
            raise ApiError(
                503, f"the model {self.name} cannot be loaded; the server's log says why"
            ) from error
        with tempfile.NamedTemporaryFile(prefix="trinity-audio-") as file:
            file.write(audio)
            file.flush()
            cancel = _Either(left, self._closing)
            try:
                found = collected(model.stream(file.name, cancel=cancel, **options), told)
            except (FormatError, UnsupportedError, InputError) as error:
                message = str(error)
                if file.name in message or message.startswith("the audio"):
                    message = message.replace(file.name, "file")
                    raise ApiError(400, message, "file", "invalid_audio") from error
                raise
        if self._closing.is_set():
            raise ApiError(503, "the server is being stopped")
        return found


class Transcribing:
    """A transcription in progress; ``close`` ends it."""

    predicted = None  # seconds to the first token are not forecast

    def __init__(
        self,
        running: asyncio.Future[Transcript],
        segments: asyncio.Queue[Segment | None],
        left: threading.Event,
    ) -> None:
        self._running, self._segments, self._left = running, segments, left

    async def transcript(self) -> Transcript:
        """Wait for the whole transcript. Raises: ApiError, TrinityError."""
        return await self._running

    async def begun(self) -> Transcribing:
        """Wait for the first segment or the end. Raises: what ``transcript`` raises."""
        try:
            self._first = await self._segments.get()
            if self._first is None:
                await self._running
        except BaseException:
            self.close()
            raise
        return self

    async def segments(self) -> AsyncGenerator[Segment, None]:
        """Segments as they are found, after ``begun``; the transcript is then known."""
        segment = self._first
        while segment is not None:
            yield segment
            segment = await self._segments.get()

    def close(self) -> None:
        """End it, and forget what it finds; again is harmless."""
        self._left.set()
        self._running.cancel()


class _Either:
    """Set if one of two events is."""

    def __init__(self, one: threading.Event, other: threading.Event) -> None:
        self._one, self._other = one, other

    def is_set(self) -> bool:
        return self._one.is_set() or self._other.is_set()
