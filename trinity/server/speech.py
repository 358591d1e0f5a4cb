"""The Whisper model of a server. It transcribes one recording at a time; clients take turns."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from trinity.errors import FormatError, InputError, TrinityError, UnsupportedError
from trinity.server.errors import ApiError
from trinity.server.threads import Shares
from trinity.speech.audio import open_audio
from trinity.speech.resampling import RATE
from trinity.speech.transcript import Segment, Transcript, collected

if TYPE_CHECKING:
    from trinity.speech.model import SpeechModel

log = logging.getLogger("trinity.server")
T = TypeVar("T")

# Most waiting recordings, of all clients and of one; more get 429.
MOST_WAITING, MOST_WAITING_OF_ONE = 16, 8
LONGEST = 7200.0  # seconds of a recording
# The names that OpenAI's clients know and send by default; each means the server's one model.
BUILT_IN_NAMES = frozenset(
    {
        "whisper-1", "gpt-transcribe", "gpt-4o-transcribe", "gpt-4o-mini-transcribe",
        "gpt-4o-mini-transcribe-2025-12-15", "gpt-4o-transcribe-diarize",
    }
)  # fmt: skip


class Speech:
    """A speech model by its ``name``; ``load`` makes it.

    ``notice`` takes a line if the model cannot be loaded at the start. Recordings of more than
    ``longest`` seconds are refused.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], SpeechModel],
        notice: Callable[[str], None] = lambda line: None,
        longest: float = LONGEST,
    ) -> None:
        self.name = name
        self._load, self._notice, self._longest = load, notice, longest
        self._model: SpeechModel | None = None
        self._shares = Shares("trinity-speech", 1, "recordings", MOST_WAITING, MOST_WAITING_OF_ONE)
        self._futures = set[Future[Any]]()
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

    def start(self, client: str, audio: bytes, **options: Any) -> Transcribing:
        """Begin the transcription of a file of these bytes; options are those of SpeechOptions.

        Raises: ApiError 429 if too many recordings wait.
        """
        loop, left = asyncio.get_running_loop(), threading.Event()
        segments = asyncio.Queue[Segment | None]()

        def told(segment: Segment) -> None:
            loop.call_soon_threadsafe(segments.put_nowait, segment)

        def ended(running: asyncio.Future[Transcript]) -> None:
            segments.put_nowait(None)
            if not running.cancelled():
                running.exception()  # retrieve the exception, even if no caller waits for it

        work = partial(self._run, audio, left, options, told)
        running = asyncio.wrap_future(self._submit(client, work))
        running.add_done_callback(ended)
        return Transcribing(running, segments, left)

    async def transcribe(self, client: str, audio: bytes, **options: Any) -> Transcript:
        """Transcribe a file of these bytes; options are those of SpeechOptions.

        Cancelling the caller ends it. Raises: ApiError, also if the audio cannot be read.
        """
        transcribing = self.start(client, audio, **options)
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
            await asyncio.wrap_future(self._submit("", self._loaded))
        except TrinityError as error:
            self._notice(
                f"warning: the speech model {self.name} cannot be loaded, so requests for "
                f"transcripts get status 503: {error}"
            )

    def close(self) -> None:
        """Accept nothing more, and end running transcriptions."""
        self._closing.set()
        self._shares.close()
        wait(list(self._futures))
        if self._model is not None:
            self._model.close()

    def _submit(self, client: str, work: Callable[[], T]) -> Future[T]:
        future = self._shares.submit(client, work)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

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
                self._check_length(file.name, cancel)
                transcript = collected(model.stream(file.name, cancel=cancel, **options), told)
            except (FormatError, UnsupportedError, InputError) as error:
                message = str(error)
                if file.name in message or message.startswith("the audio"):
                    message = message.replace(file.name, "file")
                    raise ApiError(400, message, "file", "invalid_audio") from error
                raise
        if self._closing.is_set():
            raise ApiError(503, "the server is stopping")
        return transcript

    def _check_length(self, path: str, cancel: _Either) -> None:
        """Decode a recording until its limit. Raises: ApiError 413 for a longer one."""
        left = self._longest * RATE
        for block in open_audio(path)():
            left -= len(block)
            if left < 0:
                raise ApiError(
                    413,
                    f"the recording has more than {self._longest:g} seconds; send it in parts, or "
                    "start the server with a larger --max-audio-seconds",
                    "file",
                    "audio_too_long",
                )
            if cancel.is_set():
                return


class Transcribing:
    """A transcription in progress; ``close`` ends it."""

    predicted = None  # seconds to the first token are not forecast
    has_next = False

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
        """Wait for the first segment or the end. Raises: as ``transcript``."""
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
        """End the transcription and discard its result; safe to repeat."""
        self._left.set()
        self._running.cancel()


class _Either:
    """Set if one of two events is."""

    def __init__(self, first: threading.Event, second: threading.Event) -> None:
        self._first, self._second = first, second

    def is_set(self) -> bool:
        return self._first.is_set() or self._second.is_set()
