"""The tensors of a vision tower, bound for its plan, under GGUF's names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.errors import ConfigError
from trinity.formats.provider import Tensor
from trinity.images.family import ImageFamily
from trinity.images.tower_config import Norm, TowerConfig
from trinity.runtime.weights import Weight, Weights

_ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_out")
PARTS = ("input_min", "input_max", "output_min", "output_max")
PATCHES = "v.patch_embd.weight"
_WIDTHS = {"F32": "u4", "F16": "u2", "BF16": "u2"}


def channels_first(patches: Tensor) -> Tensor:
    """Return a weight of patches (n, y * x * channel) as (n, channel, y, x).

    Raises ConfigError for another shape.
    """
    shape = patches.shape
    size = math.isqrt(shape[-1] // 3)
    if len(shape) != 2 or shape[1] != 3 * size * size:
        raise ConfigError(f"{patches.where} has shape {shape}; expected (n, 3 * patch_size ** 2)")
    values = patches.dequantize().reshape(-1, size, size, 3).transpose(0, 3, 1, 2)
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return replace(patches, shape=values.shape, type="F32", data=data)


class ProductLimits(NamedTuple):
    """The range of a linear's inputs, low to high, and of its outputs, lowest to highest."""

    low: float
    high: float
    lowest: float
    highest: float


NO_LIMITS = ProductLimits(-math.inf, math.inf, -math.inf, math.inf)


class TowerTensors:
    """The tensors of one network by name, as ``Weights`` reads them."""

    def __init__(self, path: str, tensors: Mapping[str, Tensor]) -> None:
        self._path, self._tensors = path, tensors

    @property
    def path(self) -> str:
        """The model's path."""
        return self._path

    def tensor_names(self) -> list[str]:
        """Return all names."""
        return list(self._tensors)

    def tensor(self, name: str) -> Tensor:
        """Return the tensor of that name."""
        return self._tensors[name]


class TowerWeights:
    """The linears, vectors and tables of a tower.

    Raises ConfigError for a tensor that is missing or has another shape.
    """

    def __init__(self, family: ImageFamily, config: TowerConfig, tensors: TowerTensors) -> None:
        self._config, self._weights = config, Weights(tensors)
        self._family = family
        self._made: dict[str, Weight] = {}
        self._check()

    def _check(self) -> None:
        """Compare the tensors with the configuration, before buffers of its sizes are allocated."""
        d, inner = self._config.hidden_size, self._config.intermediate_size
        self.patches()
        if self._family.positions == "axes":
            self._weights.matrix("v.position_embd.weight", 2, self._config.positions, d)
        elif self._family.positions != "none":
            self._weights.matrix("v.position_embd.weight", *self._positions)
        for layer in range(self._config.num_layers):
            prefix = f"v.blk.{layer}."
            self.queries(layer)
            self.linear(f"{prefix}attn_out", d, d)
            for name in ("ffn_gate", "ffn_up") if self._family.gated else ("ffn_up",):
                self.linear(prefix + name, inner, d)
            self.linear(f"{prefix}ffn_down", d, inner)
            for name in (*_ATTENTION, "ffn_gate", "ffn_up", "ffn_down"):
                self.limits(prefix + name)
        if self._family.only_projects:
            self.patch_norms()
        width = d * self._config.joined_states
        if not self._family.joined:
            width *= self._config.merge**2
        if self.merger:
            self.linear(self.merger, d, width)
            width = d
        if self._config.queries:
            self._check_resampler()
            return
        *between, last = self._family.projector
        for name in between:
            self.linear(name, self.outputs(name), width)
            width = self.outputs(name)
        self.linear(last, self._config.projection_size, width)

    def _check_resampler(self) -> None:
        d, width = self._config.hidden_size, self._config.projection_size
        self._weights.matrix("resampler.query", self._config.queries, width)
        self.linear("resampler.kv", width, d)
        for name in ("attn.q", "attn.k", "attn.v", "attn.out", "proj"):
            self.linear(f"resampler.{name}", width, width)
        for name in ("ln_q", "ln_kv", "ln_post"):
            self.norm(f"resampler.{name}", width, "layer")

    def has(self, name: str) -> bool:
        """Whether there is a tensor."""
        return self._weights.has(name)

    @property
    def last_norm(self) -> bool:
        """Whether there is a norm after the last layer."""
        return self._family.last_norm and self._needs("v.post_ln.weight")

    @property
    def pre_norm(self) -> bool:
        """Whether there is a norm before the first layer."""
        return self._family.pre_norm and self._needs("v.pre_ln.weight")

    def _needs(self, name: str) -> bool:
        return name not in self._family.optional or self.has(name)

    @property
    def projector_norm(self) -> str:
        """The family's ``projector_norm`` if the tower has it, or ""."""
        name = self._family.projector_norm
        optional = f"{name}.weight" in self._family.optional
        return name if not optional or self.has(f"{name}.weight") else ""

    @property
    def merger(self) -> str:
        """The family's ``merger`` if the file has it, or ""."""
        name = self._family.merger
        return name if self.has(f"{name}.weight") else ""

    def outputs(self, name: str) -> int:
        """The number of outputs of a linear; ConfigError if it has none."""
        if not self.has(f"{name}.weight") or not (shape := self._weights.shape(f"{name}.weight")):
            raise ConfigError(
                f"{self._weights.provider.path}: there is no tensor '{name}.weight'; the file is "
                "incomplete"
            )
        return shape[0]

    @property
    def _positions(self) -> tuple[int, ...]:
        """The shape of the table of positions, which may begin with a 1 if it has a class token."""
        rows, d = self._config.rows, self._config.hidden_size
        return (1, rows + 1, d) if self._config.class_token else (rows, d)

    def positions(self) -> NDArray[np.float32]:
        """The positions of patches, after the one of the class token if there is one."""
        table = self.table("v.position_embd.weight", *self._positions)
        return table.reshape(-1, self._config.hidden_size)

    def vector(self, name: str, length: int) -> NDArray[np.float32]:
        """A tensor of ``length`` values."""
        return self._weights.vector(name, length)

    def norm(
        self, name: str, length: int, kind: Norm
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """The weight and the bias of a norm; an RMS norm has no bias."""
        bias = self.vector(f"{name}.bias", length) if kind == "layer" else None
        return self.vector(f"{name}.weight", length), bias

    def patch_norms(self) -> list[tuple[NDArray[np.float32], NDArray[np.float32] | None]]:
        """The norms of patches, of their projections, and of those with positions."""
        d, patch = self._config.hidden_size, 3 * self._config.patch_size**2
        sizes = enumerate((patch, d, d), start=1)
        return [self.norm(f"v.patch_norm.{number}", size, "layer") for number, size in sizes]

    def table(self, name: str, *shape: int) -> NDArray[np.float32]:
        """A tensor of this shape as float32."""
        return self._weights.matrix(name, *shape).dequantize()

    def limits(self, name: str) -> ProductLimits:
        """The limits of a linear. Raises ConfigError for limits that leave no value."""
        found = list(NO_LIMITS)
        for i, part in enumerate(PARTS if self._config.clips else ()):
            if self._weights.has(f"{name}.{part}"):
                found[i] = float(self.vector(f"{name}.{part}", 1)[0])
        limits = ProductLimits(*found)
        if not (limits.low <= limits.high and limits.lowest <= limits.highest):  # also for NaN
            raise ConfigError(
                f"{self._weights.provider.path}: the limits of {name!r} are {limits.low:g} to "
                f"{limits.high:g} before and {limits.lowest:g} to {limits.highest:g} after it; "
                "the file is damaged: download it again"
            )
        return limits

    def linear(self, name: str, n: int, k: int) -> Weight:
        """``name``.weight (n, k), with ``name``.bias if there is one."""
        if name not in self._made:
            self._made[name] = self._weights.linear(name, n, k)
        return self._made[name]

    def queries(self, layer: int) -> list[Weight]:
        """The linears of queries, keys and values, which may be one tensor."""
        d, prefix = self._config.hidden_size, f"v.blk.{layer}."
        if not self._weights.has(f"{prefix}attn_qkv.weight"):
            return [self.linear(f"{prefix}attn_{part}", d, d) for part in "qkv"]
        whole = self.linear(f"{prefix}attn_qkv", 3 * d, d)
        return [whole.part(first, d) for first in (0, d, 2 * d)]

    def patches(self) -> Weight:
        """The convolution of patches as a linear; a patch is in the order channel, y, x."""
        config, name = self._config, "v.patch_embd"
        n, size = config.hidden_size, config.patch_size
        tensor = self._weights.matrix(f"{name}.weight", n, 3, size, size)
        kind, data = tensor.type, tensor.data
        if kind not in _WIDTHS:
            kind, data = "F32", tensor.dequantize().reshape(-1).view(np.uint8)
        bias = None
        if self._weights.has(f"{name}.bias"):
            bias = self._weights.vector(f"{name}.bias", n)
        raw = np.ascontiguousarray(data).reshape(-1)
        return Weight(name, kind, n, 3 * size * size, raw, raw.nbytes // n, 1.0, bias)
