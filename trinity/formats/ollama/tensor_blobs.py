"""Weights in Ollama's store with one blob per tensor, or per layer's experts.

A blob is a safetensors file; the names of its tensors are in its header, not in its layer.
Quantization settings in the header are ignored: Ollama writes them wrongly for mixed models, and
the shapes are sufficient (formats/huggingface/packed/mlx.py). Source: Ollama, x/imagegen/manifest,
x/create.
"""

from __future__ import annotations

from trinity.errors import FormatError, TrinityError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.ollama.blob import MOST_SMALL_BYTES, blob_path, small_blob
from trinity.formats.ollama.manifest import Layer, Manifest
from trinity.formats.safetensors import SafeTensorsFile

_DRAFT = ("draft.", "draft/")  # of a second model, for speculation


class TensorBlobs(Checkpoint):
    """The tensors of all tensor layers.

    Raises InputError if a blob is missing, FormatError if one is damaged or a tensor occurs twice.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.directory = f"{manifest.typed}: {manifest.path}"
        self._manifest = manifest
        self._files: list[SafeTensorsFile] = []
        self._owners: dict[str, SafeTensorsFile] = {}
        try:
            for layer in manifest.of_kind("tensor"):
                if not layer.name.startswith(_DRAFT):
                    self._add_layer(layer)
        except BaseException:
            self.close()
            raise

    def _add_layer(self, layer: Layer) -> None:
        what = f"the tensor layer {layer.digest}"
        path = blob_path(self._manifest, layer)
        try:
            file = self._add(path)
        except TrinityError as error:
            raise self._manifest.within(what, error) from error
        for name in file.names():
            if name.startswith(_DRAFT):
                continue
            if name in self._owners:
                raise self._manifest.error(
                    FormatError, f"{what}: tensor {name[:100]!r} is also in another layer"
                )
            self._owners[name] = file


def json_files(manifest: Manifest) -> dict[str, str]:
    """Map names to paths of the files that describe the model, from its json layers.

    Raises as ``blob_path`` and, for small ones, as ``small_blob``.
    """
    paths = {}
    for layer in manifest.of_kind("json"):
        if "/" in layer.name or not layer.name:
            continue
        if layer.size <= MOST_SMALL_BYTES:
            small_blob(manifest, layer)
        paths[layer.name] = blob_path(manifest, layer)
    return paths
