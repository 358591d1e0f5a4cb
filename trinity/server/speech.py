"""The Whisper model of a server: loaded when it is asked for, one recording after the other."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from trinity.errors import FormatError, InputError, TrinityError, UnsupportedError
from trinity.server.errors import ApiError

if TYPE_CHECKING:
    from trinity.speech.model import SpeechModel
    from trinity.speech.transcript import Transcript

MOST_WAITING = 16
USUAL_NAME = "whisper-1"  # what OpenAI's clients ask for


class Speech:
    """A speech model by its ``name``; ``load`` makes it. Recordings wait for each other."""

    def __init__(self, name: str, load: Callable[[], SpeechModel]) -> None:
        self.name = name
        self._load = load
        self._model: SpeechModel | None = None
        self._worker = ThreadPoolExecutor(1, "trinity-speech")
        self._waiting = 0
        self._closing = threading.Event()

    def check_name(self, name: str | None, any_name: bool) -> None:
        """Raises: ApiError 404 for the name of another model."""
        if not any_name and name not in (None, self.name, USUAL_NAME):
            raise ApiError(
                404, f"there is no speech model {name!r:.200}; there is {self.name}", "model",
                "model_not_found",
            )  # fmt: skip

    async def transcribe(self, audio: bytes, **options: Any) -> Transcript:
        """What is said in a file of these bytes; options are those of SpeechOptions.

        Whoever is cancelled ends it. Raises: ApiError, for audio too that cannot be read.
        """
        if self._waiting >= MOST_WAITING:
            raise ApiError(
                429, f"{self._waiting} recordings wait; at most {MOST_WAITING} may",
                code="queue_full", headers={"Retry-After": "10"},
            )  # fmt: skip
        left = threading.Event()
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._worker, self._run, audio, left, options)
        finally:
            left.set()
            self._waiting -= 1
        if self._closing.is_set():
            raise ApiError(503, "the server is being stopped")
        return found

    async def load_now(self) -> None:
        """Load it. Raises: TrinityError."""
        await asyncio.get_running_loop().run_in_executor(self._worker, self._loaded)

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

    def _run(self, audio: bytes, left: threading.Event, options: dict[str, Any]) -> Transcript:
        try:
            model = self._loaded()
        except TrinityError as error:
            raise ApiError(503, f"the model {self.name} cannot be loaded: {error}") from error
        with tempfile.NamedTemporaryFile(prefix="trinity-audio-") as file:
            file.write(audio)
            file.flush()
            try:
                return model.transcribe(file.name, cancel=_Either(left, self._closing), **options)
            except (FormatError, UnsupportedError, InputError) as error:
                told = str(error)
                if file.name in told or told.startswith("the audio"):
                    told = told.replace(file.name, "file")
                    raise ApiError(400, told, "file", "invalid_audio") from error
                raise


class _Either:
    """Set where one of two events is."""

    def __init__(self, one: threading.Event, other: threading.Event) -> None:
        self._one, self._other = one, other

    def is_set(self) -> bool:
        return self._one.is_set() or self._other.is_set()
