"""The description of a model in Hugging Face's format, from all files but the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial

from trinity.config import POOLING_RANK
from trinity.conversation.pair_prompt import prompt_of_roles
from trinity.errors import InputError, UnsupportedError
from trinity.formats.defaults import ChatTemplate, Defaults
from trinity.formats.huggingface.classifier import CLASSIFIES
from trinity.formats.huggingface.config import class_name_of
from trinity.formats.huggingface.files import CONFIG
from trinity.formats.huggingface.generation import generation_defaults
from trinity.formats.huggingface.logit_score import logit_score_keys
from trinity.formats.huggingface.metadata import model_metadata
from trinity.formats.huggingface.packed.modelopt import with_own_file
from trinity.formats.huggingface.sentence_settings import lowers_case, setting_keys
from trinity.formats.huggingface.sentence_transformers import (
    activation_keys,
    includes_prompt,
    module_kinds,
    pooling_keys,
    template_names,
)
from trinity.formats.json_object import read_json_object
from trinity.formats.text_rules import INCLUDE_PROMPT
from trinity.models import read_model
from trinity.providers.kept_keys import kept_keys
from trinity.tokenizers.huggingface.metadata import tokenizer_metadata

_RERANK = "tokenizer.chat_template.rerank"


class HuggingFaceDescription:
    """Metadata and defaults of a model, which need no weights.

    Arguments and errors are those of HuggingFaceProvider. ``described`` comes from config.json;
    ``model`` has all keys except the tokenizer's.
    """

    def __init__(self, path: str, files: Mapping[str, str], *, name: str) -> None:
        self.path = path
        self.files = files
        if CONFIG not in files:
            raise InputError(f"{path}: there is no {CONFIG}; give the directory of a whole model")
        values = with_own_file(read_json_object(files[CONFIG]), files)
        self.described = read_model(values, files[CONFIG])
        self.model: dict[str, object] = model_metadata(self.described, name)
        architecture = self.model["general.architecture"]
        beside = {**pooling_keys(files), **logit_score_keys(files)}
        self.model |= {f"{architecture}.{k}": v for k, v in beside.items()}
        self.model |= self._text_keys()

    @property
    def metadata(self) -> Mapping[str, object]:
        """The model's keys and the tokenizer's, which are read once when one is needed."""
        return LazyKeys(self.model, lambda: self._tokenizer_keys)

    @cached_property
    def defaults(self) -> Defaults:
        """The end tokens and sampling options of generation_config.json."""
        return generation_defaults(self.files)

    def add(self, keys: Mapping[str, object]) -> None:
        """Add keys that follow from the model's tensors."""
        self.model |= keys

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _text_keys(self) -> Mapping[str, object]:
        """Return how texts are prepared, for encoders and models of sentence-transformers."""
        kinds, architecture = module_kinds(self.files), self.model["general.architecture"]
        if not kinds and self.model.get(f"{architecture}.attention.causal") is not False:
            return {}
        ranks = "LogitScore" in kinds or class_name_of(self.described.values).endswith(CLASSIFIES)
        keys = setting_keys(self.files, embeds=not ranks, unit="Normalize" in kinds)
        if not includes_prompt(self.files):
            keys[INCLUDE_PROMPT] = False
        return {**keys, **activation_keys(self.files)}

    @cached_property
    def _tokenizer_keys(self) -> Mapping[str, object]:
        rows, kind = self.described.config.vocab_size, self.described.family.tokenizer
        make = partial(tokenizer_metadata, self.files, self.path, rows, kind)
        keys = kept_keys(self.files, [rows, kind], make)
        if lowers_case(self.files):
            keys = {**keys, **self._lowered(keys)}
        if self.model.get(f"{self.model['general.architecture']}.pooling_type") == POOLING_RANK:
            return {**keys, **self._pair_keys(keys)}
        return keys

    def _lowered(self, keys: Mapping[str, object]) -> Mapping[str, object]:
        """Return the keys that make a vocabulary lowercase texts.

        Raises UnsupportedError if there are none for the vocabulary.
        """
        if keys.get("tokenizer.ggml.model") != "bert":
            raise UnsupportedError(
                f"{self.path}: do_lower_case is true in sentence-transformers' settings, which is "
                "only supported for WordPiece vocabularies"
            )
        lowercase = "tokenizer.ggml.normalizer.lowercase"
        if keys.get(lowercase, True):
            return {}
        return {lowercase: True, "tokenizer.ggml.normalizer.strip_accents": False}

    def _pair_keys(self, keys: Mapping[str, object]) -> Mapping[str, object]:
        """Return a reranker's prompt in llama.cpp's form, if the chat template has one."""
        own = keys.get("tokenizer.chat_template")
        if not isinstance(own, str) or _RERANK in keys:
            return {}
        tokens: dict[object, str] = dict(enumerate(_texts(keys.get("tokenizer.ggml.tokens"))))
        names = template_names(self.files)
        for name in ("bos", "eos"):
            names[f"{name}_token"] = tokens.get(keys.get(f"tokenizer.ggml.{name}_token_id"), "")
        prompt = prompt_of_roles([ChatTemplate(own)], names)
        return {} if prompt is None else {_RERANK: prompt}


def _texts(tokens: object) -> Iterable[str]:
    return map(str, tokens) if isinstance(tokens, Iterable) else ()


class LazyKeys(Mapping[str, object]):
    """Keys that exist, and others that are computed when one of them is needed."""

    def __init__(
        self, model: Mapping[str, object], tokenizer: Callable[[], Mapping[str, object]]
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer

    def __getitem__(self, key: str) -> object:
        if key in self._model or not key.startswith("tokenizer."):
            return self._model[key]
        return self._tokenizer()[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._model
        yield from self._tokenizer()

    def __len__(self) -> int:
        return len(self._model) + len(self._tokenizer())
