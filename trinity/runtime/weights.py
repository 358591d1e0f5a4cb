"""Tensors of a provider, checked and bound for the plan: addresses, strides, scales.

Weights stay where the file's mapping has them. The exceptions are copied once, with a reason:
I2_S rows whose codes straddle blocks or come in ARM's order, and the tiles of TL1 and TL2, are put
into the x86 order, row by row (2 bits a weight), because the kernels walk rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import REAL_RANGES
from trinity.formats.provider import Tensor, WeightProvider
from trinity_kernels.ops.matmul.activations import FORMS
from trinity_kernels.quants import TYPES
from trinity_kernels.quants.i2_s import pack_codes, unpack_codes
from trinity_kernels.quants.tl import AMBIGUOUS, TILINGS, TL_TYPES, TLError, to_i2_s


@dataclass(frozen=True, slots=True)
class Weight:
    """One linear's weight: N rows of K, ``stride`` bytes apart; ``data`` keeps the memory alive."""

    name: str
    type: str
    n: int
    k: int
    data: NDArray[np.uint8]
    stride: int
    scale: float
    bias: NDArray[np.float32] | None

    @property
    def form(self) -> str:
        """The form of activations that this weight multiplies with."""
        return FORMS[self.type]

    @property
    def nbytes(self) -> int:
        """Bytes that one product reads."""
        return self.n * self.stride

    def scaled(self, factor: float) -> Weight:
        """The same weight, with results ``factor`` times as large."""
        if factor == 1:
            return self
        bias = None if self.bias is None else self.bias * np.float32(factor)
        return replace(self, scale=self.scale * factor, bias=bias)

    def part(self, first: int, rows: int) -> Weight:
        """Rows ``first`` on of it, ``rows`` many, as a weight of their own; nothing is copied."""
        end = first + rows
        data = self.data[first * self.stride : end * self.stride]
        bias = None if self.bias is None else self.bias[first:end]
        return replace(self, n=rows, data=data, bias=bias)


class Weights:
    """What the plan asks of a provider: vectors and linears by name, each of the right shape."""

    def __init__(self, provider: WeightProvider) -> None:
        self.provider = provider
        self._names = frozenset(provider.tensor_names())

    @property
    def names(self) -> frozenset[str]:
        """The names of all tensors that the file has."""
        return self._names

    def has(self, name: str) -> bool:
        """Whether the file has that tensor."""
        return name in self._names

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that the file has."""
        return self.provider.tensor(name).shape

    def vector(self, name: str, length: int) -> NDArray[np.float32]:
        """A tensor of ``length`` values as float32 (norms, biases)."""
        tensor = self.check_vector(name, length)
        return np.ascontiguousarray(tensor.dequantize().reshape(-1))

    def frequency_factors(self, name: str, length: int) -> NDArray[np.float32]:
        """As ``vector``, of numbers that frequencies can be divided by."""
        factors = self.vector(name, length)
        least, most = REAL_RANGES["rope_factor"]
        if not ((factors >= least) & (factors <= most)).all():  # also NaN
            raise ConfigError(
                f"{self.provider.path}: tensor {name!r} has values from {factors.min()} to "
                f"{factors.max()}; {least:g} to {most:g} are expected: the file is damaged"
            )
        return factors

    def check_vector(self, name: str, length: int) -> Tensor:
        """The tensor of ``length`` values, not yet read."""
        tensor = self._tensor(name)
        if prod(tensor.shape) != length:
            raise ConfigError(
                f"{tensor.source}: tensor {name!r} has shape {tensor.shape}, "
                f"the configuration asks for {length} values"
            )
        return tensor

    def matrix(self, name: str, n: int, k: int) -> Tensor:
        """A tensor of shape (n, k) in a type that the kernels know."""
        tensor = self._tensor(name)
        if tensor.shape != (n, k) and (n, tensor.shape) != (1, (k,)):
            raise ConfigError(
                f"{tensor.source}: tensor {name!r} has shape {tensor.shape}, "
                f"the configuration asks for {(n, k)}"
            )
        if tensor.type not in FORMS and tensor.type != "I2_S_ARM":
            raise UnsupportedError(
                f"{tensor.source}: tensor {name!r} has type {tensor.type}, which trinity cannot "
                f"run; it runs {', '.join(sorted(FORMS))}. Take a file quantized to one of these"
            )
        return tensor

    def linear(self, name: str, n: int, k: int) -> Weight:
        """``name``.weight with its optional .scale and .bias."""
        tensor = self.matrix(f"{name}.weight", n, k)
        scale = 1.0
        if self.has(f"{name}.scale"):
            scale = float(self.vector(f"{name}.scale", 1)[0])
            if not np.isfinite(scale):
                raise UnsupportedError(
                    f"{tensor.source}: tensor '{name}.scale' is {scale}; expected a finite number: "
                    "the file is damaged"
                )
        bias = self.vector(f"{name}.bias", n) if self.has(f"{name}.bias") else None
        if bias is not None and ".ffn_" in name:
            # The feed-forward adds the bias before the scale: the scale is moved into it.
            with np.errstate(over="ignore", invalid="ignore"):  # then the logits show it
                bias = bias * np.float32(scale)
        type_name, data = tensor.type, tensor.data
        if TYPES[type_name].tensor_scale:
            scale = float(np.float32(scale) * _tensor_scale(tensor))
            codes = data[: n * k // 4]
            if type_name == "I2_S_ARM" or k % 128:
                codes = _by_rows(codes, n, k, 16 if type_name == "I2_S_ARM" else 32)
            return Weight(name, "I2_S", n, k, codes, len(codes) // n, scale, bias)
        return Weight(name, type_name, n, k, data, data.nbytes // n, scale, bias)

    def _tensor(self, name: str) -> Tensor:
        if name not in self._names:
            raise ConfigError(
                f"{self.provider.path}: no tensor {name!r}, which its architecture needs; "
                "the file is incomplete or of another architecture"
            )
        tensor = self.provider.tensor(name)
        return _from_tiles(tensor) if tensor.type in TL_TYPES else tensor


def _from_tiles(tensor: Tensor) -> Tensor:
    """A TL1 or TL2 tensor as one of I2_S."""
    m, k = tensor.shape
    tiling = tensor.tiling or TILINGS[tensor.type].get((m, k))
    where = f"{tensor.source}: tensor {tensor.name!r} of type {tensor.type} and shape {(m, k)}"
    hint = "give the kernel_config.ini that the file was converted with (--tl-config FILE)"
    if tiling is None and tensor.type == "TL1" and (m, k) in AMBIGUOUS:
        first, second = AMBIGUOUS[m, k]
        raise UnsupportedError(
            f"{where} has tiles of {first} or of {second}, which the bytes do not tell; {hint}, or "
            "take an I2_S file of the model"
        )
    if tiling is None:
        known = ", ".join(f"{a} x {b}" for a, b in TILINGS[tensor.type])
        raise UnsupportedError(
            f"{where}: only the tiles of {known} are known; {hint}, or take an I2_S file of the "
            "model"
        )
    try:
        data = to_i2_s(tensor.type, tensor.data, (m, k), tiling)
    except TLError as error:
        raise UnsupportedError(f"{where}: {error}: the file has other tiles; {hint}") from error
    return Tensor(tensor.name, (m, k), "I2_S", data, tensor.source)


def _tensor_scale(tensor: Tensor) -> np.float32:
    at = prod(tensor.shape) // 4
    scale: np.float32 = tensor.data[at : at + 4].view("<f4")[0]
    if not np.isfinite(scale) or scale == 0:
        raise UnsupportedError(
            f"{tensor.source}: tensor {tensor.name!r} has the scale {scale}; "
            "expected a finite number other than 0: the file is damaged"
        )
    return scale


def _by_rows(codes: NDArray[np.uint8], n: int, k: int, block: int) -> NDArray[np.uint8]:
    """Flat codes in blocks of ``block`` bytes to rows, each padded to whole 32-byte blocks."""
    padded = -(-k // 128) * 128
    rows = np.ones((n, padded), np.uint8)
    rows[:, :k] = unpack_codes(codes.reshape(-1, block)).reshape(n, k)
    return np.ascontiguousarray(pack_codes(rows.reshape(-1, 128)).reshape(-1))
