"""Models that requests create, in trinity's own store."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from trinity.errors import ConfigError, InputError, TrinityError, UnsupportedError
from trinity.formats.gguf import GGUFProvider
from trinity.formats.huggingface.files import NAMES
from trinity.formats.ollama.blob import blob_path
from trinity.formats.ollama.manifest import PREFIX, Layer, Manifest
from trinity.formats.ollama.model import OllamaModel, config_of, params_of
from trinity.formats.ollama.name import TAG, Name, parse_name
from trinity.formats.ollama.own_store import OwnStore
from trinity.formats.ollama.params import read_params
from trinity.formats.ollama.store import own_store
from trinity.formats.provider import WeightProvider
from trinity.loading import open_weights
from trinity.models import check_architecture
from trinity.options.load_options import LoadOptions
from trinity.providers.huggingface import HuggingFaceProvider
from trinity.providers.ollama import open_manifest
from trinity.providers.ollama_tensors import OllamaTensors
from trinity.quantization.assignment import Overrides
from trinity.quantization.mixes import QuantizationMix
from trinity.quantization.quantization import write_quantized
from trinity.server.errors import ApiError
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.tokenizers.go_template import GoTemplate

log = logging.getLogger("trinity.server")
OWNER = "trinity_owner"  # key of a model's configuration: who created it
_WEIGHTS = ("model", "tensor")
_OF_FORMAT = ("renderer", "parser")  # keys of a chat format, which a new template replaces
_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class Recipe:
    """The parts of a created model: another model or files, and settings that override theirs."""

    base: Served | None = None
    files: Mapping[str, str] | None = None  # digests by file name
    adapters: Mapping[str, str] | None = None
    template: str = ""
    system: str = ""
    licenses: Sequence[str] = ()
    parameters: Mapping[str, Any] | None = None
    messages: Sequence[Mapping[str, str]] = ()
    mix: QuantizationMix | None = None  # the weights are quantized to it


class CreatedModels:
    """The models of trinity's own store. ``of_ref`` makes one of a name and a reference.

    Raises: InputError if the store cannot be written to.
    """

    def __init__(self, of_ref: Callable[[str, str], Served], most_bytes: int) -> None:
        self.store = OwnStore(own_store().root)
        self._of_ref = of_ref
        self._most = most_bytes
        self._coming = 0  # bytes of blobs that are being sent
        self._changing = asyncio.Lock()
        self._tasks = set[asyncio.Task[Any]]()

    def offer(self, models: Models) -> None:
        """Serve all models of the store whose names are not taken, and remove unused blobs."""
        self.store.remove_unused()
        for name in self.store.store.names():
            models.add(self._served(parse_name(name)))

    async def create(self, models: Models, name: Name, recipe: Recipe, owner: str) -> list[str]:
        """Create a model, or replace one, and serve it. Returns the digests of its layers.

        Raises: ApiError.
        """

        def made() -> list[str]:
            config, layers = self._layers(recipe)
            config = {**config, OWNER: owner}
            with closing(self._opened(name, config, layers)) as provider:
                check_architecture(provider)
                if recipe.mix is not None:
                    layers = self._quantized(provider, layers, recipe.mix)
                    config = {**config, "model_format": "gguf", "file_type": recipe.mix.name}
            self.store.write(name, config, layers)
            return [layer.digest for layer in layers]

        name = await asyncio.to_thread(self.store.existing, name)
        return await self._change(models, name, owner, made)

    async def copy(self, models: Models, source: Served, name: Name, owner: str) -> None:
        """Create a model with the layers of another one. Raises: ApiError."""
        await self.create(models, name, Recipe(source), owner)

    async def delete(self, models: Models, served: Served, owner: str) -> None:
        """Remove a model of the store; its responses go on. Raises: ApiError."""
        async with self._changing:
            manifest = await asyncio.to_thread(self._own, served)
            if manifest is None:
                raise ApiError(
                    403, f"{served.name} is not in this server's store of created models, so it "
                    "is not removed"
                )  # fmt: skip
            self._check_owner(manifest, served.name, owner)
            models.remove(served)
            await asyncio.to_thread(self.store.remove, manifest)

    def has_blob(self, digest: str) -> bool:
        """Whether a blob is there. Raises: InputError for a malformed digest."""
        return os.path.isfile(self.store.blob(digest))

    @contextmanager
    def growing(self, used: int) -> Iterator[Callable[[int], None]]:
        """A function that counts the bytes of an upload until the end of ``with``.

        It raises ApiError 413 if all uploads and the ``used`` bytes exceed the limit.
        """
        own = 0

        def grow(count: int) -> None:
            nonlocal own
            own += count
            self._coming += count
            self._check_room(used)

        try:
            yield grow
        finally:
            self._coming -= own

    async def _change(
        self, models: Models, name: Name, owner: str, made: Callable[[], list[str]]
    ) -> list[str]:
        """Call ``made`` in a thread, and serve the model ``name``. Goes on if the client leaves."""

        async def changed() -> list[str]:
            async with self._changing:
                shown = shown_name(name)
                same = [one for one in models.names if one.casefold() == shown.casefold()]
                if same:
                    known = models.served.get(shown)
                    manifest = None
                    if known is not None:
                        manifest = await asyncio.to_thread(self._own, known)
                    if manifest is None:
                        raise ApiError(
                            400, f"{same[0]} is the name of a model that this server was started "
                            "with; choose another name", "model",
                        )  # fmt: skip
                    self._check_owner(manifest, shown, owner)
                digests = await asyncio.to_thread(self._reported, made)
                models.replace(self._served(name))
                return digests

        task = asyncio.ensure_future(changed())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return await asyncio.shield(task)

    def _reported(self, made: Callable[[], list[str]]) -> list[str]:
        """Call ``made``. Raises: ApiError, whose text names no folder."""
        try:
            self._check_room(self.store.used())
            return made()
        except TrinityError as error:
            text = str(error).replace(self.store.store.blobs + os.sep, "")
            raise ApiError(400, text) from error
        except OSError as error:
            log.error("a model cannot be created: %s", error)
            raise ApiError(507, f"the model cannot be stored: {error.strerror}") from error

    def _check_room(self, used: int) -> None:
        if used + self._coming > self._most:
            raise ApiError(
                413, f"created models have {used} bytes and running uploads {self._coming}; the "
                f"limit is {self._most} (--max-store)", code="storage_full",
            )  # fmt: skip

    def _served(self, name: Name) -> Served:
        return self._of_ref(shown_name(name), PREFIX + name.shortest)

    def _own(self, served: Served) -> Manifest | None:
        """The manifest of a model that is in the store."""
        if not served.ref.startswith(PREFIX):
            return None
        try:
            return self.store.manifest(parse_name(served.ref.removeprefix(PREFIX)))
        except TrinityError as error:
            # The message names folders of the server, so only the log has it.
            log.error("%s", error)
            raise ApiError(
                500, f"model '{served.name}' cannot be read; the server's log says why"
            ) from error

    def _check_owner(self, manifest: Manifest, name: str, owner: str) -> None:
        if config_of(manifest).get(OWNER, "") not in ("", owner):
            raise ApiError(403, f"{name} was created with another API key")

    def _layers(self, recipe: Recipe) -> tuple[dict[str, object], list[Layer]]:
        """The configuration and the layers of a new model. Raises: ApiError, TrinityError."""
        config, layers, params = self._base(recipe)
        if recipe.adapters:
            layers = [layer for layer in layers if layer.kind != "adapter"]
            for digest in recipe.adapters.values():
                if not is_gguf(self._path(digest)):
                    raise InputError("an adapter is not a GGUF file; convert it with llama.cpp")
                layers.append(self._uploaded("adapter", digest))
        new: list[tuple[str, bytes]] = []
        if recipe.template:
            check_template(recipe.template)
            config = {key: value for key, value in config.items() if key not in _OF_FORMAT}
            new.append(("template", recipe.template.encode()))
        if recipe.system:
            new.append(("system", recipe.system.encode()))
        if recipe.parameters:
            read_params(recipe.parameters, lambda wrong: ConfigError(f"parameters: {wrong}"))
            new.append(("params", json.dumps({**params, **recipe.parameters}).encode()))
        if recipe.messages:
            new.append(("messages", json.dumps(list(recipe.messages)).encode()))
        replaced = {kind for kind, _ in new}
        if "template" in replaced:
            replaced.add("prompt")
        layers = [layer for layer in layers if layer.kind not in replaced]
        new += [("license", text.encode()) for text in recipe.licenses]
        return config, layers + [self.store.add(kind, content) for kind, content in new]

    def _base(self, recipe: Recipe) -> tuple[dict[str, object], list[Layer], dict[str, object]]:
        """Configuration, layers and parameters of what a model is made from."""
        if recipe.base is None:
            layers = self._of_files(recipe.files or {})
            form = "gguf" if any(layer.kind == "model" for layer in layers) else "safetensors"
            return {"model_format": form}, layers, {}
        served = recipe.base
        try:
            with closing(open_weights(served.ref)) as provider:
                if isinstance(provider, OllamaModel | OllamaTensors):
                    manifest = provider.layers.manifest
                    layers = [self._shared(manifest, layer) for layer in manifest.layers]
                    return config_of(manifest), layers, params_of(manifest)
                if isinstance(provider, GGUFProvider):
                    if len(provider.paths) > 1:
                        raise UnsupportedError(
                            f"{served.name} has {len(provider.paths)} files; merge them with "
                            "llama.cpp's gguf-split"
                        )
                    files = [("model", provider.path, "")]
                    if provider.mmproj is not None:
                        files.append(("projector", provider.mmproj, ""))
                    config: dict[str, object] = {"model_format": "gguf"}
                else:
                    assert isinstance(provider, HuggingFaceProvider)
                    files = [("tensor", path, "") for path in provider.checkpoint.paths]
                    files += [("json", path, name) for name, path in provider.files.items()]
                    config = {"model_format": "safetensors"}
                sizes = sum(os.path.getsize(path) for _, path, _ in files)
                self._check_room(self.store.used() + sizes)
                return config, [self.store.add_file(*file) for file in files], {}
        except (TrinityError, OSError) as error:
            # The message may name folders of the server, so only the log has it.
            log.error("%s", error)
            raise ApiError(
                500, f"model '{served.name}' cannot be read; the server's log says why"
            ) from error

    def _shared(self, manifest: Manifest, layer: Layer) -> Layer:
        """A layer of a manifest in this store, in which it may be already."""
        path = blob_path(manifest, layer)
        if manifest.store != self.store.store:
            self._check_room(self.store.used() + layer.size)
            self.store.add_file(layer.kind, path)
        return layer

    def _of_files(self, files: Mapping[str, str]) -> list[Layer]:
        """The layers of uploaded files. Raises: InputError, UnsupportedError."""
        layers = []
        for name, digest in sorted(files.items()):
            if name.endswith(".safetensors"):
                layers.append(self._uploaded("tensor", digest))
            elif name in NAMES:
                layers.append(self._uploaded("json", digest, name))
            elif is_gguf(self._path(digest)):
                layers.append(self._uploaded(kind_of_gguf(self._path(digest)), digest))
        weights = [layer for layer in layers if layer.kind in _WEIGHTS]
        if not weights:
            raise InputError(
                "none of the files is a GGUF or a safetensors file; upload the weights too"
            )
        return layers

    def _path(self, digest: str) -> str:
        """The path of an uploaded blob. Raises: InputError if it is not there."""
        path = self.store.blob(digest)
        if not os.path.isfile(path):
            raise InputError(f"blob {digest!r:.100} not found")
        return path

    def _uploaded(self, kind: str, digest: str, name: str = "") -> Layer:
        path = self._path(digest)
        return Layer(kind, os.path.basename(path).replace("-", ":"), os.path.getsize(path), name)

    def _opened(
        self, name: Name, config: Mapping[str, object], layers: Sequence[Layer]
    ) -> WeightProvider:
        """The model of these layers. Raises: TrinityError for one that cannot be loaded."""
        made = self.store.add("", json.dumps(config).encode())
        manifest = Manifest(self.store.store, "its manifest", shown_name(name), made, tuple(layers))
        return open_manifest(manifest, LoadOptions(), log.info)

    def _quantized(
        self, provider: WeightProvider, layers: Sequence[Layer], mix: QuantizationMix
    ) -> list[Layer]:
        """The layers with quantized weights. Raises: ApiError, TrinityError."""
        if isinstance(provider, HuggingFaceProvider) and (
            provider.described.values.values.get("vision_config") is not None
        ):
            raise UnsupportedError(
                "quantize: a GGUF file of this model would not read images; create it without "
                "quantize, or from GGUF files"
            )
        # A name that no content has: if the process ends, the file is removed as unused.
        path = self.store.blob(f"sha256:{secrets.token_hex(32)}")
        write = partial(write_quantized, provider, path, mix, Overrides())
        try:
            planned = write(dry_run=True)
        except InputError as error:
            raise InputError(
                f"quantization to {mix.name} is only supported for F16, BF16 and F32 models"
            ) from error
        self._check_room(self.store.used() + planned.num_bytes)
        try:
            for note in write().notes:
                log.info("note: %s", note)
            weights = self.store.add_file("model", path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)
        return [weights, *(layer for layer in layers if layer.kind not in (*_WEIGHTS, "json"))]


def shown_name(name: Name) -> str:
    """The name under which a model of the store is served."""
    return name.shortest.removesuffix(f":{TAG}")


def is_gguf(path: str) -> bool:
    """Whether a file begins as GGUF files do. Raises: OSError."""
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def kind_of_gguf(path: str) -> str:
    """The kind of a GGUF file's layer. Raises: FormatError."""
    with closing(GGUFProvider(path)) as provider:
        kind = provider.metadata.get("general.type")
        if kind == "adapter":
            return "adapter"
        tower = kind == "mmproj" or provider.metadata.get("general.architecture") == "clip"
        return "projector" if tower else "model"


def check_template(text: str) -> None:
    """Raises: TrinityError for a template that cannot be rendered."""
    if "{%" in text:
        raise InputError(
            "template is in Jinja; a created model needs one in Go's template language"
        )
    GoTemplate(text).try_out()
