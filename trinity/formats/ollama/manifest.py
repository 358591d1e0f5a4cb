"""Manifests: the list of a model's layers in the store.

Source: Ollama, manifest/manifest.go and layer.go.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from trinity.errors import FormatError, InputError, TrinityError
from trinity.formats.json_object import read_json_object
from trinity.formats.ollama.store import Store

_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})", re.ASCII)
_MOST_LAYERS = 100_000  # a model of tensor blobs has one for each tensor
PREFIX = "ollama:"
IMAGE = "application/vnd.ollama.image."


class Layer(NamedTuple):
    """One blob of a model."""

    kind: str  # last word of its media type
    digest: str
    size: int
    name: str


class Manifest(NamedTuple):
    """A manifest; ``typed`` is the model's name as the user gave it."""

    store: Store
    path: str
    typed: str
    config: Layer | None
    layers: tuple[Layer, ...]

    def of_kind(self, *kinds: str) -> list[Layer]:
        """Return the layers of these kinds, in order."""
        return [layer for layer in self.layers if layer.kind in kinds]

    def error(self, kind: type[TrinityError], what: str, advice: str | None = None) -> TrinityError:
        """Return an error with the model's name, its manifest, the fault and the advice."""
        if advice is None:
            advice = f"`ollama pull {self.typed.removeprefix(PREFIX)}` restores it"
        return kind(f"{self.typed}: {self.path}: {what}; {advice}")

    def within(self, what: str, error: TrinityError) -> TrinityError:
        """Convert an error about a part of the model, ``what``, to one about the model."""
        text = str(error)
        if text.startswith(f"{self.typed}: {self.path}: "):
            return error
        return self.error(
            type(error), f"{what}: {text}", "if it is damaged, run `ollama pull` again"
        )


def read_manifest(store: Store, path: str, typed: str) -> Manifest:
    """Read the manifest at ``path``; ``typed`` is the name that the user gave.

    Raises FormatError if it is malformed or outside of the store, InputError if it cannot be read.
    """
    empty = Manifest(store, path, typed, None, ())
    inside = os.path.join(os.path.realpath(store.manifests), "")
    if not os.path.realpath(path).startswith(inside):
        raise empty.error(FormatError, "the manifest is a link out of the store")
    try:
        value = read_json_object(path)
    except (FormatError, InputError) as error:
        what = str(error).removeprefix(f"{path}: ")
        raise empty.error(type(error), f"the manifest cannot be read: {what}") from error
    config, layers = value.get("config"), value.get("layers")
    if layers is None:
        layers = []
    if not isinstance(layers, list) or not isinstance(config, Mapping | None):
        raise empty.error(
            FormatError, 'it is not a manifest: "config" and "layers" are missing or malformed'
        )
    if len(layers) > _MOST_LAYERS:
        raise empty.error(FormatError, f"it has {len(layers)} layers, more than any model has")
    return Manifest(
        store,
        path,
        typed,
        _layer(empty, config) if config and config.get("digest") else None,
        tuple(_layer(empty, layer) for layer in layers),
    )


def _layer(manifest: Manifest, value: object) -> Layer:
    if not isinstance(value, Mapping):
        raise manifest.error(FormatError, "it has a layer that is not a JSON object")
    media, digest = value.get("mediaType"), value.get("digest")
    size, name = value.get("size"), value.get("name") or ""
    if not isinstance(media, str) or not isinstance(name, str):
        raise manifest.error(FormatError, 'it has a layer whose "mediaType" or "name" is not text')
    sha256 = sha256_of(digest) if isinstance(digest, str) else None
    if sha256 is None:
        raise manifest.error(
            FormatError,
            f"it has a {media[-40:]!r} layer with the digest {digest!r:.100}; expected sha256: "
            "and 64 hexadecimal digits",
        )
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise manifest.error(
            FormatError, f"the layer {digest} has the size {size!r:.40}; expected a number of bytes"
        )
    kind = media.removeprefix(IMAGE)
    return Layer(kind, f"sha256:{sha256}", size, name)


def sha256_of(digest: str) -> str | None:
    """The 64 lower-case hexadecimal digits of a digest, or None if it is malformed."""
    match = _DIGEST.fullmatch(digest)
    return None if match is None else match[1].lower()
