"""A loaded Whisper model: transcription, language detection."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from trinity.errors import InputError, KernelError, TrinityError
from trinity.formats.mapping_table import TABLE, faults
from trinity.formats.speech_config import check_tensors, speech_config
from trinity.options.load_options import LoadOptions
from trinity.providers import open_weights
from trinity.quantization.mixes import find_mix
from trinity.runtime.kernel_choice import KernelChoice
from trinity.runtime.options import Cancel
from trinity.runtime.paging import give_back_heap
from trinity.runtime.records.recorder import Recorder
from trinity.runtime.thread_count import usable_threads
from trinity.speech.alignment import Alignment
from trinity.speech.audio import AudioLike, open_audio
from trinity.speech.clip import Clip
from trinity.speech.decoder import SpeechDecoder
from trinity.speech.encoder import SpeechEncoder
from trinity.speech.options import SpeechOptions
from trinity.speech.resampling import RATE
from trinity.speech.rules import DecodingRules, log_softmax
from trinity.speech.search import Search
from trinity.speech.tokens import SpeechTokens
from trinity.speech.transcript import Segment, Transcript, collected
from trinity.speech.weights import SpeechWeights
from trinity.speech.windows import Windows
from trinity_kernels.bus_errors import catch_bus_errors
from trinity_kernels.isa import IsaError, select_level
from trinity_kernels.quantizers import WRITABLE
from trinity_kernels.team import Team, TeamError

Progress = Callable[[str], None]


class SpeechModel:
    """A Whisper model: encoder, decoder and vocabulary.

    - ``path``: a GGUF file, a Hugging Face directory, or "hf:USER/REPO".
    - ``threads``: by default the number of fast physical cores.
    - ``isa``: the instruction-set level; by default the best of this CPU.
    - ``quantize``: a block type such as "Q8_0" to which the weights of linear layers are
      quantized while loading; by default they keep the file's type.
    - ``progress`` receives lines such as "compiling kernels".

    Calls from several threads take turns, window by window. Close the model, or use it in a with
    statement.

    Raises: TrinityError, of which ``trinity.errors`` lists the subclasses.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, threads: int | None = None, isa: str | None = None,
        quantize: str | None = None, progress: Progress | None = None,
    ) -> None:  # fmt: skip
        options = LoadOptions(threads=threads, isa=isa, quantize=quantize)
        self._block_type = None if quantize is None else _block_type(quantize)
        self._provider = provider = open_weights(path, notice=progress or (lambda line: None))
        self.path = provider.path
        try:
            self.config = speech_config(provider.metadata, provider.path)
            names = frozenset(provider.tensor_names())
            check_tensors(self.config, names, lambda name: provider.tensor(name).shape)
            self._tokens = SpeechTokens(provider.metadata, self.config)
            self._bind(options, progress)
        except BaseException:
            provider.close()
            raise
        self._lock = threading.RLock()
        self._closed = False

    def _bind(self, options: LoadOptions, progress: Progress | None) -> None:
        catch_bus_errors(TABLE)
        try:
            choice = KernelChoice(select_level(options.isa), progress)
        except IsaError as error:
            raise KernelError(str(error)) from error
        self.isa = choice.level
        self.threads = threads = usable_threads(options.threads, progress)
        recorder, weights = Recorder(choice, threads), self._weights(progress)
        self._encoder = SpeechEncoder(self.config, weights, recorder)
        self._decoder = SpeechDecoder(self.config, weights, recorder, self._encoder.cross)
        self._check_files()
        try:
            self._team = Team(threads)
        except TeamError as error:
            raise TrinityError(str(error)) from error
        self._alignment = Alignment(
            self.config, self._encoder, self._decoder, weights, self._tokens, self._team
        )

    def _weights(self, progress: Progress | None) -> SpeechWeights:
        if progress and self._block_type:
            progress(f"quantizing to {self._block_type}")
        return SpeechWeights(self._provider, self._block_type)

    @property
    def languages(self) -> list[str]:
        """The codes of the languages that the model knows; empty for an English-only model."""
        return list(self._tokens.languages)

    def transcribe(
        self, audio: AudioLike, *, rate: int = RATE, cancel: Cancel | None = None, **options: Any
    ) -> Transcript:
        """Transcribe ``audio``: a file, or samples of shape (n,) or (n, channels).

        ``rate``: samples per second of an array. ``SpeechOptions`` lists the options. If ``cancel``
        is set meanwhile, the result so far is returned, marked as incomplete. Raises: InputError,
        FormatError, UnsupportedError.
        """
        return collected(self.stream(audio, rate=rate, cancel=cancel, **options))

    def stream(
        self, audio: AudioLike, *, rate: int = RATE, cancel: Cancel | None = None, **options: Any
    ) -> Generator[Segment, None, tuple[str, float, bool]]:
        """As ``transcribe``, segment by segment.

        The generator's return value is the language, the duration in seconds, and whether the
        transcript is complete.
        """
        wanted = checked_options(options)
        tokens = self._tokens
        if wanted.language is not None and (tokens.languages or wanted.language != "en"):
            tokens.language(wanted.language)
        if wanted.task == "translate" and not tokens.languages:
            raise InputError(f"{self.path}: an English-only model cannot translate")
        about = wanted.initial_prompt.strip()
        shown = tokens.encode(f" {about}") if about else []
        positions = self.config.decoder.positions
        most_shown = positions // 2 - 1
        if len(shown) > most_shown:
            raise InputError(
                f"initial_prompt has {len(shown)} tokens; it must have at most {most_shown}: "
                "shorten it"
            )
        blocks = open_audio(audio, rate)

        def cancelled() -> bool:
            return cancel is not None and cancel.is_set()

        with self._lock:
            self._check_open()
            clip = Clip(blocks, self.config.bands, self.config.frames)
            language = wanted.language or self._first_language(clip)
            prompt = tokens.prompt(language, wanted.task, wanted.times)
            room = positions - len(prompt) - (most_shown + 1)
            search = Search(self._decoder, self._team, tokens, min(positions // 2, room), cancelled)
            windows = Windows(
                clip,
                self._encoder,
                search,
                DecodingRules(self.config, tokens, wanted.times),
                self._team,
                tokens,
                wanted,
                prompt,
                shown,
                most_shown,
                self.config.frames,
                cancelled,
                self._alignment,
                language,
            )
        while not windows.done and not cancelled():
            with self._lock:  # other calls may run between windows
                self._check_open()
                segments = windows.next_window()
                self._check_files_if_needed()
            yield from segments
        return language, clip.seconds, windows.done

    def detect_language(self, audio: AudioLike, *, rate: int = RATE) -> dict[str, float]:
        """The probability of each language in the first 30 s, the most probable first.

        Raises: InputError for an English-only model.
        """
        if not self._tokens.languages:
            raise InputError(f"{self.path}: an English-only model cannot detect languages")
        blocks = open_audio(audio, rate)
        with self._lock:
            self._check_open()
            return self._languages(Clip(blocks, self.config.bands, self.config.frames))

    def pieces(self, segment: Segment) -> list[tuple[bytes, float]]:
        """The bytes and the log-probability of each text token of a segment."""
        ids = zip(segment.tokens, segment.logprobs, strict=True)
        spoken = [(token, logprob) for token, logprob in ids if token < self._tokens.end]
        pieces = self._tokens.pieces([token for token, _ in spoken])
        return [(piece, logprob) for piece, (_, logprob) in zip(pieces, spoken, strict=True)]

    @contextmanager
    def parts(self) -> Iterator[tuple[SpeechEncoder, SpeechDecoder, Team]]:
        """The encoder, the decoder and the threads, for exclusive use in the block.

        Raises: InputError if the model is closed.
        """
        with self._lock:
            self._check_open()
            yield self._encoder, self._decoder, self._team
            self._check_files_if_needed()

    def close(self) -> None:
        """Free threads, memory and files. Closing again does nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._team.close()
                del self._encoder, self._decoder, self._alignment
                self._provider.close()
                give_back_heap()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _first_language(self, clip: Clip) -> str:
        if not self._tokens.languages:
            return "en"
        return next(iter(self._languages(clip)))

    def _languages(self, clip: Clip) -> dict[str, float]:
        self._encoder.run(self._team, clip.features(0, silence=True))
        rows = [(self._tokens.start, self._decoder.begin())]
        logits = self._decoder.run(self._team, rows, [0])[0]
        codes = self._tokens.languages
        chances = np.exp(log_softmax(logits[list(codes.values())]))
        self._check_files_if_needed()
        languages = {code: float(p) for code, p in zip(codes, chances, strict=True)}
        return dict(sorted(languages.items(), key=lambda item: -item[1]))

    def _check_open(self) -> None:
        if self._closed:
            raise InputError(f"{self.path}: the model is closed")

    def _check_files(self) -> None:
        self._faults = faults()
        self._provider.check()

    def _check_files_if_needed(self) -> None:
        """Check the files after a page fault: zeros read from a truncated file must not become
        text.
        """
        if faults() != self._faults:
            self._check_files()


def checked_options(options: dict[str, Any]) -> SpeechOptions:
    """Check options by name. Raises: InputError for an unknown name or a wrong value."""
    known = SpeechOptions.__dataclass_fields__
    for name in options:
        if name not in known:
            raise InputError(f"unknown option {name!r:.40}; options are {', '.join(known)}")
    return SpeechOptions(**options)


def _block_type(name: str) -> str:
    """The block type of a quantization mix. Raises: InputError if its rows have no block type."""
    type_name = find_mix(name, "quantize").base
    if type_name in WRITABLE:
        return type_name
    raise InputError(
        f"quantize is {name!r:.40}, a type that weights cannot be quantized to while loading; "
        "take Q8_0, or Q4_K_M for less memory"
    )


def transcribe(
    audio: AudioLike, model: str | os.PathLike[str] | SpeechModel, *, rate: int = RATE,
    cancel: Cancel | None = None, **options: Any,
) -> Transcript:  # fmt: skip
    """Transcribe ``audio`` with a loaded model, or with one that is loaded for this call."""
    if isinstance(model, SpeechModel):
        return model.transcribe(audio, rate=rate, cancel=cancel, **options)
    checked_options(options)  # report a bad option before loading
    with SpeechModel(model) as loaded:
        return loaded.transcribe(audio, rate=rate, cancel=cancel, **options)
