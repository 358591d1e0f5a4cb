"""Models in Ollama's store with tensor blobs: Hugging Face's format in other files."""

from __future__ import annotations

from functools import cached_property

from trinity.errors import TrinityError
from trinity.formats.defaults import ChatTemplate, Defaults
from trinity.formats.huggingface.files import TOKENIZER_CONFIG, optional_object
from trinity.formats.huggingface.generation import generation_defaults
from trinity.formats.ollama.manifest import PREFIX
from trinity.formats.ollama.model import Layers
from trinity.formats.ollama.name import parse_name
from trinity.formats.ollama.tensor_blobs import TensorBlobs, json_files
from trinity.providers.huggingface import HuggingFaceProvider
from trinity.tokenizers.huggingface.chat_template import chat_template


class OllamaTensors(HuggingFaceProvider):
    """A model of tensor blobs, with the store's defaults."""

    def __init__(
        self,
        layers: Layers,
        files: dict[str, str],
        checkpoint: TensorBlobs,
        weight_scale: str | None,
    ) -> None:
        self.layers = layers
        self.templates: tuple[ChatTemplate, ...] = ()
        self._described = files
        typed = layers.manifest.typed
        name = parse_name(typed.removeprefix(PREFIX)).model
        super().__init__(typed, files, checkpoint, name=name, weight_scale=weight_scale)

    @property
    def jinja(self) -> str | None:
        """The chat template of its files, or None."""
        return chat_template(self._described, optional_object(self._described, TOKENIZER_CONFIG))

    @cached_property
    def defaults(self) -> Defaults:
        """The layers' defaults, which override those of generation_config.json."""
        return self.layers.over(generation_defaults(self._described), self.templates, self.config)


def open_tensors(layers: Layers, weight_scale: str | None) -> OllamaTensors:
    """Open the model of these layers.

    Raises FormatError, ConfigError, InputError or UnsupportedError that names the model and the
    manifest.
    """
    manifest = layers.manifest
    files = json_files(manifest)
    checkpoint = TensorBlobs(manifest)
    try:
        return OllamaTensors(layers, files, checkpoint, weight_scale)
    except BaseException as error:
        checkpoint.close()
        if isinstance(error, TrinityError):
            raise manifest.within("its json and tensor layers", error) from error
        raise
