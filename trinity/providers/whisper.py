"""A Hugging Face directory of a Whisper model as a WeightProvider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.errors import FormatError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.configuration import config_from_metadata
from trinity.formats.defaults import Defaults
from trinity.formats.huggingface.whisper import UNREAD, end_id, gguf_name, whisper_metadata
from trinity.formats.made_tensor import MadeTensor
from trinity.formats.provider import Tensor
from trinity.formats.safetensors import SafeTensor
from trinity.providers.huggingface_description import LazyKeys
from trinity.providers.kept_keys import kept_keys
from trinity.tokenizers.huggingface.metadata import tokenizer_metadata

_AS_THEY_ARE = ("F32", "F16", "BF16")


class WhisperDescription:
    """Metadata of a model, which needs no weights. Raises ConfigError or UnsupportedError."""

    def __init__(self, path: str, directory: str, files: Mapping[str, str], *, name: str) -> None:
        self.path, self.files = path, files
        self.model = whisper_metadata(directory, files, name)
        self.end_id = end_id(files)
        self.defaults = Defaults(source=path)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    @property
    def metadata(self) -> Mapping[str, object]:
        """The model's keys and the tokenizer's, which are read once when one is needed."""
        return LazyKeys(self.model, lambda: self._tokenizer_keys)

    @cached_property
    def _tokenizer_keys(self) -> Mapping[str, object]:
        return kept_keys(self.files, ["whisper", self.model["whisper.vocab_size"], self.end_id],
                         self._make_tokenizer_keys)  # fmt: skip

    def _make_tokenizer_keys(self) -> dict[str, object]:
        rows = self.model["whisper.vocab_size"]
        assert isinstance(rows, int)
        made = tokenizer_metadata(self.files, self.path, rows, adds_specials=False)
        return {**made, "tokenizer.ggml.eos_token_id": self.end_id}


class WhisperProvider:
    """An open model; the checkpoint is closed with it.

    Raises ConfigError or UnsupportedError for an impossible configuration, FormatError for an
    unknown tensor.
    """

    rope_interleaved = True  # there is no RoPE, so rows are in GGUF's order

    def __init__(self, described: WhisperDescription, checkpoint: Checkpoint) -> None:
        self._described, self._checkpoint = described, checkpoint
        self._names: dict[str, str] = {}
        for stored in checkpoint.names():
            name = gguf_name(stored)
            if name is not None and name not in self._names:
                self._names[name] = stored
            elif stored not in UNREAD:
                raise FormatError(
                    f"{checkpoint.directory}: tensor {stored[:100]!r} does not belong to a "
                    "Whisper model; download the files again"
                )

    @property
    def path(self) -> str:
        """The model's path or name, as it was given."""
        return self._described.path

    @property
    def paths(self) -> list[str]:
        """The paths of the files with weights, then of the others."""
        return [*self._checkpoint.paths, *self._described.files.values()]

    @property
    def notes(self) -> list[str]:
        """Empty."""
        return []

    @property
    def metadata(self) -> Mapping[str, object]:
        """The model's keys and its tokenizer's; the tokenizer is read when one is needed."""
        return self._described.metadata

    @cached_property
    def config(self) -> ModelConfig:
        """The decoder's configuration."""
        rows = self._described.model["whisper.vocab_size"]
        assert isinstance(rows, int)
        return config_from_metadata(
            self._described.model, {}, source=self._described.path, num_tokens=rows
        )

    @property
    def defaults(self) -> Defaults:
        """The description's defaults; speech has none of its own."""
        return self._described.defaults

    def tensor_names(self) -> list[str]:
        """Return all tensor names, in the checkpoint's order."""
        return list(self._names)

    def tensor(self, name: str) -> Tensor:
        """Return the tensor of that name, as F32 if the checkpoint has F64. Raises FormatError."""
        if name not in self._names:
            raise FormatError(f"{self.path}: there is no tensor {name!r}")
        stored = self._checkpoint.tensor(self._names[name])
        if stored.dtype in _AS_THEY_ARE:
            return Tensor(
                name, stored.shape, stored.dtype, stored.data, stored.source, origin=stored.name
            )
        make = partial(_floats, stored)
        return MadeTensor(name, stored.shape, "F32", make, stored.source, stored.name)

    def check(self) -> None:
        """Raise FormatError if a file was truncated or overwritten after it was opened."""
        self._checkpoint.check()

    def close(self) -> None:
        """Release the mappings; tensors given out must no longer be used."""
        self._checkpoint.close()


def _floats(tensor: SafeTensor) -> Iterator[NDArray[np.generic]]:
    yield tensor.all_floats()
