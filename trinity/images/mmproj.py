"""The vision tower in a GGUF file of its own, as llama.cpp's converters write it (mmproj).

Source of the keys: llama.cpp, tools/mtmd/clip-impl.h and clip.cpp.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import checked_integer, checked_real
from trinity.formats.gguf import GGUFProvider
from trinity.formats.provider import Tensor
from trinity.images.family import ImageFamily
from trinity.images.settings import ImageSettings
from trinity.images.tower_config import (
    NO_LAYERS,
    Activation,
    Channels,
    TowerConfig,
    centered,
    checked_channels,
    checked_tower,
    pixel_limits,
    shrunk_to,
)
from trinity.images.tower_weights import TowerTensors

CLIP = "clip"
_VISION = "clip.vision."


class MmprojFile:
    """An open mmproj file.

    Raises: UnsupportedError for another kind of file and for an unknown projector; ConfigError for
    impossible values; as ``GGUFProvider`` for a damaged file.
    """

    def __init__(self, path: str | os.PathLike[str], families: Mapping[str, ImageFamily]) -> None:
        self._file = GGUFProvider(path)
        try:
            self.family = self._family(families)
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> str:
        """The file's path."""
        return self._file.path

    def close(self) -> None:
        """Release the mapping; tensors given out must no longer be used."""
        self._file.close()

    def check(self) -> None:
        """Raise FormatError if the file was truncated or overwritten after it was opened."""
        self._file.check()

    def tower(self, hidden_size: int) -> tuple[TowerConfig, ImageSettings]:
        """Return what the keys say. ``hidden_size``: that of the text model.

        Raises: ConfigError for values that are missing or impossible, and if the projector is for a
        text model of another size.
        """
        width = self._width_of_projector()
        if width != hidden_size:
            raise ConfigError(
                f"{self.path}: its projector makes rows of {width} values, but the text model has "
                f"rows of {hidden_size}; they belong to different models: use the mmproj file of "
                "this model"
            )
        patch = self._size("patch_size", "num_layers")
        merge = self._size(self.family.merge_key, "num_layers", self.family.usual_merge)
        if self.family.only_projects:
            patch, merge = patch * merge, 1
        mean, std = self._channels("image_mean"), self._channels("image_std")
        if self.family.centers:
            mean, std = centered(mean, std)
        axes = self.family.positions == "axes"
        features = () if self.family.only_projects else self._features()
        config = TowerConfig(
            family=self.family.name,
            hidden_size=self._size("embedding_length"),
            **(NO_LAYERS if self.family.only_projects else self._sizes()),
            image_size=patch * merge if axes else self._table_side(patch),
            patch_size=patch,
            layer_norm_eps=self._real("attention.layer_norm_epsilon", "rms_norm_eps"),
            activation=self._activation(),
            projection_size=hidden_size,
            merge=merge,
            mean=mean,
            std=std,
            deepstack=self._deepstack(),
            **self._windows(),
            positions=self._positions() if axes else 0,
            clips=any(
                name.startswith("v.") and name.endswith(self.family.parts) for name in self._names()
            ),
            standardizes=not {"v.std_bias", "v.std_scale"}.isdisjoint(self._names()),
            norm=self.family.norms[0 if "v.blk.0.ln1.bias" in self._names() else -1],
            class_token="v.class_embd" in self._names(),
            row_norms=not self.family.head_norms and "v.blk.0.attn_q_norm.weight" in self._names(),
            scales="v.blk.0.ls1.weight" in self._names(),
            features=features if len(features) > 1 else (),
            queries=self._queries(),
        )
        settings = self._settings(config)
        return checked_tower(config, settings, self.path, rotates=self.family.rotates), settings

    def _settings(self, config: TowerConfig) -> ImageSettings:
        usual, size = self.family.usual_settings, config.image_size
        if self.family.cut == "shrunk":
            return shrunk_to(replace(usual, longest_edge=size), config)
        unit = config.patch_size * config.merge
        if self.family.cut == "sliced":
            return replace(usual, tile=self._size("image_size"), unit=unit)
        if self.family.cut == "fitted":  # the usual number of rows
            blocks = unit**2 / usual.unit**2
            tile = usual.tile // usual.unit * unit
            usual = replace(
                usual,
                tile=self._size("preproc_image_size", "hidden_size", tile),
                least_tiles=self._size("preproc_min_tiles", "num_layers", usual.least_tiles),
                most_tiles=self._size("preproc_max_tiles", "num_layers", usual.most_tiles),
                least_pixels=int(usual.least_pixels * blocks),
                most_pixels=int(usual.most_pixels * blocks),
                patch=config.patch_size,
            )
        elif usual.tile:
            longest = self._size("preproc_image_size", "hidden_size", 4 * size)
            least = self._size("preproc_min_tiles", "num_layers", usual.least_tiles)
            most = usual.most_tiles
            if most:
                most = self._size("preproc_max_tiles", "num_layers", most)
            return replace(
                usual, tile=size, longest_edge=longest, least_tiles=least, most_tiles=most,
                **self._pinpoints(size),
            )  # fmt: skip
        most_pixels = usual.most_pixels
        if self.family.cut == "filled":  # the usual number of rows
            most_pixels = most_pixels // usual.unit**2 * unit**2
        least, most = pixel_limits(
            self._size("image_min_pixels", "image_pixels", usual.least_pixels),
            self._size("image_max_pixels", "image_pixels", most_pixels),
            config.patch_size,
        )
        return replace(usual, unit=unit, least_pixels=least, most_pixels=most)

    def _pinpoints(self, size: int) -> dict[str, Any]:
        """The sizes of images for the cut "anyres", or the shorter side of those that are cut."""
        if self.family.cut != "anyres":
            return {}
        found = self._file.metadata.get(f"{_VISION}image_grid_pinpoints")
        if found is None:
            return {"shortest_edge": size if self.family.usual_settings.shortest_edge else 0}
        sides = found.tolist() if isinstance(found, np.ndarray) else found
        if (
            not isinstance(sides, list)
            or len(sides) % 2
            or not sides
            or not all(type(side) is int for side in sides)
        ):
            raise ConfigError(
                f"{self.path}: {_VISION}image_grid_pinpoints is {found!r:.80}; it must be pairs of "
                "a height and a width"
            )
        return {"pinpoints": tuple(zip(sides[::2], sides[1::2], strict=True))}

    def _sizes(self) -> dict[str, Any]:
        """The sizes of layers."""
        return {
            "intermediate_size": self._size("feed_forward_length", "intermediate_size"),
            "num_layers": self._layers(),
            "num_heads": self._size("attention.head_count", "num_heads"),
        }

    def _layers(self) -> int:
        """The number of layers, up to the last one that the projector reads."""
        features = self._features()
        return max(features) if features else self._size("block_count", "num_layers")

    def _features(self) -> tuple[int, ...]:
        """The numbers of the layers whose states the projector reads."""
        found = self._file.metadata.get(f"{_VISION}feature_layer")
        layers = self._size("block_count", "num_layers")
        if found is None:
            return ()
        numbers = found.tolist() if isinstance(found, np.ndarray) else found
        if (
            not isinstance(numbers, list)
            or not numbers
            or not all(type(number) is int and 0 < number <= layers for number in numbers)
        ):
            raise UnsupportedError(
                f"{self.path}: {_VISION}feature_layer is {found!r:.80}; trinity reads layers from "
                f"1 to {layers}"
            )
        return tuple(numbers)

    def _names(self) -> list[str]:
        return self._file.tensor_names()

    def _positions(self) -> int:
        """The rows of the tables of positions, one for columns and one for rows."""
        name = "v.position_embd.weight"
        if name not in self._names():
            raise ConfigError(f"{self.path}: there is no tensor {name!r}; the file is incomplete")
        shape = self._file.tensor(name).shape
        return shape[1] if len(shape) == 3 else 0

    def _table_side(self, patch: int) -> int:
        """The side in pixels of the square that the table of positions covers."""
        name = "v.position_embd.weight"
        if self.family.positions != "nearest" or name not in self._names():
            return self._size("image_size")
        shape = self._file.tensor(name).shape
        return math.isqrt(shape[0]) * patch if shape else 0

    def _queries(self) -> int:
        """The number of a resampler's queries."""
        name = "resampler.query"
        if name not in self.family.optional:
            return 0
        shape = self._file.tensor(name).shape if name in self._names() else ()
        if not shape:
            raise ConfigError(f"{self.path}: there is no tensor {name!r}; the file is incomplete")
        return shape[0]

    def _windows(self) -> dict[str, Any]:
        """The windows: every n-th layer has none."""
        if not self.family.window:
            return {}
        patch, layers = (
            self._size("patch_size", "num_layers"),
            self._size("block_count", "num_layers"),
        )
        merge = self._size(self.family.merge_key, "num_layers", self.family.usual_merge)
        side = self._size("window_size", "hidden_size", self.family.window)
        period = self._size("n_wa_pattern", "num_layers")
        whole = tuple(range(period - 1, layers, period))
        return {"window": max(side // patch // merge, 1), "whole_layers": whole}

    def _deepstack(self) -> tuple[int, ...]:
        """The layers that have a projector of their own, by the names of its tensors."""
        names = (name.split(".") for name in self._file.tensor_names())
        layers = (parts[2] for parts in names if parts[:2] == ["v", "deepstack"])
        return tuple(sorted({int(layer) for layer in layers if layer.isdecimal()}))

    def tensors(self, config: TowerConfig) -> TowerTensors:
        """Return all tensors under the names of new files.

        In old files ffn_up and ffn_down have each other's names.
        """
        found = {name: self._file.tensor(name) for name in self._file.tensor_names()}
        first = found.get("v.blk.0.ffn_down.weight")
        shape = (config.intermediate_size, config.hidden_size)
        if first is not None and first.shape == shape and shape[0] != shape[1]:
            found = {_swapped(name): tensor for name, tensor in found.items()}
        if self.family.permuted:
            for name, tensor in found.items():
                if name.endswith((".attn_q.weight", ".attn_k.weight")):
                    found[name] = _in_halves(tensor, config.num_heads)
        return TowerTensors(self.path, self.family.of_gguf(found))

    def _family(self, families: Mapping[str, ImageFamily]) -> ImageFamily:
        metadata = self._file.metadata
        if metadata.get("general.architecture") != CLIP:
            raise UnsupportedError(
                f"{self.path}: not a projector (mmproj): its architecture is "
                f"{metadata.get('general.architecture')!r:.40}; give the mmproj file of the model"
            )
        if metadata.get("clip.has_vision_encoder") is not True:
            raise UnsupportedError(
                f"{self.path}: a projector (mmproj) without a vision tower; give one for images"
            )
        name = metadata.get("clip.projector_type", metadata.get(f"{_VISION}projector_type"))
        if not isinstance(name, str) or name not in families:
            raise UnsupportedError(
                f"{self.path}: its projector is {name!r:.40}; trinity reads {', '.join(families)}"
            )
        return families[name].variant(families[name], self._names(), metadata, self.path)

    def _width_of_projector(self) -> int:
        name = f"{self.family.projector[-1]}.weight"
        if name not in self._file.tensor_names():
            raise ConfigError(f"{self.path}: there is no tensor {name!r}; the file is incomplete")
        return self.family.of_gguf({name: self._file.tensor(name)})[name].shape[0]

    def _size(self, key: str, field: str = "hidden_size", default: int | None = None) -> int:
        value = self._file.metadata.get(_VISION + key, default)
        return checked_integer(field, value, f"{self.path}: {_VISION}{key}", None)

    def _real(self, key: str, field: str) -> float:
        value = self._file.metadata.get(_VISION + key)
        return checked_real(field, value, f"{self.path}: {_VISION}{key}")

    def _activation(self) -> Activation:
        """The activation; without a key it is the family's usual one, mostly the quick GELU."""
        gelus: list[Activation] = [
            own for own in self.family.activations if own in ("gelu", "gelu_erf")
        ]
        gelu = gelus[0] if gelus else "gelu"
        keys: dict[str, Activation] = {"clip.use_gelu": gelu, "clip.use_silu": "silu"}
        named = [own for key, own in keys.items() if self._file.metadata.get(key) is True]
        found = named[0] if named else self.family.usual_activation
        if len(named) > 1 or found not in self.family.activations:
            raise UnsupportedError(
                f"{self.path}: its activation is {' and '.join(named) or found} (clip.use_gelu, "
                f"clip.use_silu); of {self.family.name} trinity runs "
                f"{', '.join(self.family.activations)}"
            )
        return found

    def _channels(self, key: str) -> Channels:
        found = self._file.metadata.get(_VISION + key)
        return checked_channels(found, f"{self.path}: {_VISION}{key}", positive=key == "image_std")


def _in_halves(tensor: Tensor, heads: int) -> Tensor:
    """Return a weight with the rows that rotate together half a head apart, not adjacent."""
    rows = tensor.shape[0]
    if rows % (2 * heads) or tensor.data.nbytes % rows:
        raise ConfigError(
            f"{tensor.where} has shape {tensor.shape}, which is not divided by {heads} heads"
        )
    data = tensor.data.reshape(heads, rows // heads // 2, 2, -1).swapaxes(1, 2)
    return replace(tensor, data=np.ascontiguousarray(data).reshape(-1))


def _swapped(name: str) -> str:
    if ".ffn_up." in name:
        return name.replace(".ffn_up.", ".ffn_down.")
    return name.replace(".ffn_down.", ".ffn_up.")
