"""The tokens of a Whisper model that have a meaning of their own, and texts of the others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from trinity.errors import ConfigError, InputError
from trinity.formats.huggingface.files import (
    GENERATION_CONFIG,
    files_of_directory,
    optional_object,
)
from trinity.speech.config import SpeechConfig
from trinity.tokenizers import tokenizer_from_metadata
from trinity.tokenizers.huggingface.metadata import tokenizer_metadata

TASKS = ("transcribe", "translate")
SECONDS = 0.02  # from one time's token to the next
_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")


class SpeechTokens:
    """Ids by meaning. ``languages``: code to id, empty for a model of English alone.

    ``first_time``: the id of 0.00 s, from which on all are times, SECONDS apart.
    Raises: ConfigError where the vocabulary lacks what every such model has.
    """

    def __init__(self, directory: str, config: SpeechConfig) -> None:
        files = files_of_directory(directory)
        keys = tokenizer_metadata(files, directory, config.vocab_size)
        self._tokenizer = tokenizer_from_metadata(keys)
        tokens = keys["tokenizer.ggml.tokens"]
        assert isinstance(tokens, Sequence)
        ids = {str(token): number for number, token in enumerate(tokens)}
        self.start, self.end = config.start_id, config.end_id
        self.without_times = self._required(ids, "<|notimestamps|>", directory)
        self.first_time = self.without_times + 1
        self.tasks = {task: ids[f"<|{task}|>"] for task in TASKS if f"<|{task}|>" in ids}
        self.no_speech = ids.get("<|nospeech|>", ids.get("<|nocaptions|>"))
        self.before = ids.get("<|startofprev|>")
        self.languages = self._languages(ids, optional_object(files, GENERATION_CONFIG), config)
        if self.first_time >= config.vocab_size:
            raise ConfigError(
                f"{directory}: the vocabulary of {config.vocab_size} tokens has no times after "
                "<|notimestamps|>; the files belong to different models: download them again"
            )

    def text(self, ids: Sequence[int]) -> str:
        """The text of those ids that are text."""
        return self._tokenizer.decode([one for one in ids if one < self.end])

    def encode(self, text: str) -> list[int]:
        """The ids of a text, which has no special tokens."""
        return [one for one in self._tokenizer.encode(text) if one < self.end]

    def prompt(self, language: str | None, task: str, times: bool) -> list[int]:
        """The ids that a text begins with."""
        ids = [self.start]
        if self.languages:
            ids += [self.language(language or "en"), self.tasks[task]]
        return ids if times else [*ids, self.without_times]

    def language(self, code: str) -> int:
        """The id of a language. Raises InputError where the model does not know it."""
        if code in self.languages:
            return self.languages[code]
        known = ", ".join(self.languages) or "none: it is of English alone"
        raise InputError(f"language is {code!r:.40}; this model knows {known}")

    @staticmethod
    def _required(ids: Mapping[str, int], name: str, directory: str) -> int:
        if name in ids:
            return ids[name]
        raise ConfigError(
            f"{directory}: the vocabulary has no token {name}, which Whisper's models have; "
            "download tokenizer.json again"
        )

    def _languages(
        self, ids: Mapping[str, int], generation: Mapping[str, object], config: SpeechConfig
    ) -> dict[str, int]:
        if generation.get("is_multilingual") is False or len(self.tasks) < len(TASKS):
            return {}
        listed = generation.get("lang_to_id")
        names = list(listed) if isinstance(listed, dict) and listed else list(ids)
        found = {}
        for name in names:
            match = _LANGUAGE.fullmatch(name)
            if match and name in ids and self.start < ids[name] < self.tasks["translate"]:
                found[match[1]] = ids[name]
        if not found and generation.get("is_multilingual"):
            raise ConfigError(
                f"{config.source}: the model is of several languages, but its vocabulary has no "
                "tokens for them; download tokenizer.json again"
            )
        return dict(sorted(found.items(), key=lambda item: item[1]))
