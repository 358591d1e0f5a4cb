"""The special tokens of a Whisper model, and the text of the others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from trinity.errors import ConfigError, InputError
from trinity.formats.config_reader import shown
from trinity.formats.speech_config import SpeechConfig
from trinity.tokenizers import tokenizer_from_metadata

TASKS = ("transcribe", "translate")
SECONDS = 0.02  # seconds between the times of two timestamp tokens
_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")


class SpeechTokens:
    """The ids of special tokens. ``languages``: code to id, empty for an English-only model.

    ``first_time``: the id of 0.00 s; all ids from there on are timestamps, SECONDS apart.
    Raises: ConfigError if the vocabulary lacks tokens that every Whisper model has; TokenizerError.
    """

    def __init__(self, metadata: Mapping[str, object], config: SpeechConfig) -> None:
        self._source, self._vocab_size = config.source, config.vocab_size
        tokens = metadata.get("tokenizer.ggml.tokens")
        if not isinstance(tokens, Sequence) or len(tokens) != config.vocab_size:
            problem = f"has {len(tokens)}" if isinstance(tokens, Sequence) else "is missing"
            raise ConfigError(
                f"{config.source}: tokenizer.ggml.tokens {problem}; expected the "
                f"{config.vocab_size} tokens of the vocabulary: convert the model again"
            )
        self._tokenizer = tokenizer_from_metadata(metadata, source=config.source)
        ids = {str(token): number for number, token in enumerate(tokens)}
        start = ids.get("<|startoftranscript|>")
        self.start = self._id(metadata, "whisper.decoder_start_token_id", start)
        self.end = self._id(metadata, "tokenizer.ggml.eos_token_id", ids.get("<|endoftext|>"))
        self.without_times = self._required(ids, "<|notimestamps|>")
        self.first_time = self.without_times + 1
        self.tasks = {task: ids[f"<|{task}|>"] for task in TASKS if f"<|{task}|>" in ids}
        self.no_speech = ids.get("<|nospeech|>", ids.get("<|nocaptions|>"))
        self.before = ids.get("<|startofprev|>")
        self.languages = self._languages(ids, metadata)
        if self.first_time >= config.vocab_size:
            raise ConfigError(
                f"{config.source}: the vocabulary of {config.vocab_size} tokens has no times after "
                "<|notimestamps|>; the files belong to different models: download them again"
            )

    def text(self, ids: Sequence[int]) -> str:
        """The text of the ids that are text tokens."""
        return self._tokenizer.decode([token for token in ids if token < self.end])

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """The bytes of each text token; a character may be divided between two tokens."""
        stream = self._tokenizer.stream()
        return [stream.bytes_of(token) for token in ids]

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""
        return [token for token in self._tokenizer.encode(text) if token < self.end]

    def prompt(self, language: str | None, task: str, times: bool) -> list[int]:
        """The ids that precede a text."""
        ids = [self.start]
        if self.languages:
            ids += [self.language(language or "en"), self.tasks[task]]
        return ids if times else [*ids, self.without_times]

    def language(self, code: str) -> int:
        """The id of a language. Raises InputError if the model does not know it."""
        if code in self.languages:
            return self.languages[code]
        known = ", ".join(self.languages) or "none: it is of English alone"
        raise InputError(f"language is {code!r:.40}; this model knows {known}")

    def _id(self, metadata: Mapping[str, object], key: str, default: int | None) -> int:
        value = metadata.get(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < self._vocab_size:
            return value
        raise ConfigError(
            f"{self._source}: {key} is {'missing' if value is None else shown(value)}; it must be "
            f"a token's id, below {self._vocab_size}: convert the model again"
        )

    def _required(self, ids: Mapping[str, int], name: str) -> int:
        if name in ids:
            return ids[name]
        raise ConfigError(
            f"{self._source}: the vocabulary has no token {name}, which Whisper's models have; "
            "download or convert the model again"
        )

    def _languages(self, ids: Mapping[str, int], metadata: Mapping[str, object]) -> dict[str, int]:
        several = metadata.get("whisper.multilingual")
        if several is False or len(self.tasks) < len(TASKS):
            return {}
        listed = metadata.get("whisper.languages")
        names = [f"<|{code}|>" for code in listed] if isinstance(listed, list) else list(ids)
        languages = {}
        for name in names:
            match = _LANGUAGE.fullmatch(name)
            if match and name in ids and self.start < ids[name] < self.tasks["translate"]:
                languages[match[1]] = ids[name]
        if not languages and several:
            raise ConfigError(
                f"{self._source}: the model is multilingual, but its vocabulary has no language "
                "tokens; download or convert the model again"
            )
        return dict(sorted(languages.items(), key=lambda item: item[1]))
