"""Tensors of a provider, checked and bound for the plan: addresses, strides, scales.

Weights stay in the file's mapping, except for ternary ones whose codes are not in the kernels'
order (formats/ternary_rows.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import FIELDS
from trinity.formats.gguf_types import is_type_of_gguf
from trinity.formats.provider import Tensor, TensorSource
from trinity.formats.ternary_rows import from_layouts, kernel_rows, kernel_type
from trinity.runtime.expert_weight import ExpertWeight
from trinity_kernels.ops.matmul.activations import FORMS
from trinity_kernels.quants import TYPES

# Of ternary weights; inverted scales are about 1 / 0.02.
LARGEST_SCALE = 8.0


@dataclass(frozen=True, slots=True)
class Weight:
    """The weight of one linear: N rows of K, ``stride`` bytes apart; ``data`` keeps the memory
    alive.

    ``matrices``: the number of matrices in the tensor, each with its own input; this is one of
    them.
    """

    name: str
    type: str
    n: int
    k: int
    data: NDArray[np.uint8]
    stride: int
    scale: float
    bias: NDArray[np.float32] | None
    matrices: int = 1

    @property
    def form(self) -> str:
        """The form of activations that this weight multiplies."""
        return FORMS[self.type]

    @property
    def nbytes(self) -> int:
        """Bytes that one product reads."""
        return self.n * self.stride

    def scaled(self, factor: float) -> Weight:
        """The same weight with results multiplied by ``factor``."""
        if factor == 1:
            return self
        bias = self.bias
        if bias is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # overflow shows in the logits
                bias = bias * np.float32(factor)
        return replace(self, scale=self.scale * factor, bias=bias)

    def part(self, first: int, rows: int) -> Weight:
        """``rows`` rows from row ``first`` on as a weight; nothing is copied."""
        end = first + rows
        data = self.data[first * self.stride : end * self.stride]
        bias = None if self.bias is None else self.bias[first:end]
        return replace(self, n=rows, data=data, bias=bias)


class Weights:
    """Vectors and linears of a provider by name; their shapes are checked."""

    def __init__(self, provider: TensorSource) -> None:
        self.provider = provider
        self.names = frozenset(provider.tensor_names())  # of all tensors in the file

    def has(self, name: str) -> bool:
        """Whether the file has a tensor."""
        return name in self.names

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self.provider.tensor(name).shape

    def vector(self, name: str, length: int) -> NDArray[np.float32]:
        """A tensor of ``length`` values as float32 (norms, biases)."""
        tensor = self.check_vector(name, length)
        return np.ascontiguousarray(tensor.dequantize().reshape(-1))

    def frequency_factors(self, name: str, length: int) -> NDArray[np.float32]:
        """As ``vector``, for factors that divide frequencies; their range is checked."""
        factors = self.vector(name, length)
        allowed = FIELDS["frequency_factor"]
        least, most = allowed.low, allowed.high
        if not ((factors >= least) & (factors <= most)).all():  # also false for NaN
            raise ConfigError(
                f"{self.provider.path}: tensor {name!r} has values from {factors.min()} to "
                f"{factors.max()}; {least:g} to {most:g} are expected: the file is damaged"
            )
        return factors

    def check_vector(self, name: str, length: int) -> Tensor:
        """The tensor of ``length`` values, not read yet."""
        tensor = self._tensor(name)
        if prod(tensor.shape) != length:
            raise ConfigError(
                f"{tensor.source}: tensor {name!r} has shape {tensor.shape}, "
                f"the configuration requires {length} values"
            )
        return tensor

    def matrix(self, name: str, *shape: int) -> Tensor:
        """A tensor of ``shape``, (..., rows, columns), in a type that has kernels."""
        tensor = self._tensor(name)
        if tensor.shape != shape and not (shape[0] == 1 and tensor.shape == shape[1:]):
            raise ConfigError(
                f"{tensor.source}: tensor {name!r} has shape {tensor.shape}, "
                f"the configuration requires {shape}"
            )
        if kernel_type(tensor.type) not in FORMS:
            runnable = ", ".join(sorted(filter(is_type_of_gguf, FORMS)))
            raise UnsupportedError(
                f"{tensor.source}: tensor {name!r} has type {tensor.type}, which trinity cannot "
                f"run; it runs {runnable}. Use a file quantized to one of these"
            )
        return tensor

    def linear(
        self, name: str, n: int, k: int, apart: Collection[str] = (), *, scales_bias: bool = False
    ) -> Weight:
        """``name``.weight with its optional .scale and .bias.

        ``apart``: names of tensors that another operation reads, which are not part of the weight.
        ``scales_bias``: the scale multiplies the bias, too.
        """
        tensor = self.matrix(f"{name}.weight", n, k)
        weight = _bound(name, tensor, n, k)
        scale = 1.0
        if self.has(f"{name}.scale") and f"{name}.scale" not in apart:
            scale = float(self._scales(f"{name}.scale", 1)[0])
        bias = None
        if self.has(f"{name}.bias") and f"{name}.bias" not in apart:
            bias = self.vector(f"{name}.bias", n)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow shows in the logits
            if bias is not None and scales_bias:
                bias = bias * np.float32(scale)
            product = float(np.float32(scale) * np.float32(weight.scale))
        return replace(weight, scale=product, bias=bias)

    def heads(self, name: str, heads: int, n: int, k: int) -> list[Weight]:
        """The matrices (n, k) of ``heads`` heads: ``name``.weight of shape (heads, n, k)."""
        tensor = self.matrix(f"{name}.weight", heads, n, k)
        whole = replace(_bound(name, tensor, heads * n, k), matrices=heads)
        return [whole.part(head * n, n) for head in range(heads)]

    def experts(self, name: str, count: int, n: int, k: int) -> ExpertWeight:
        """The weights of ``count`` experts with their optional .scale and .bias.

        ``name``.weight is a stack of shape (count, n, k), or each expert has a tensor of its own,
        ``name``.3.weight and so on, all of one type.
        """
        if not self.has(f"{name}.weight") and self.has(f"{name}.0.weight"):
            return self._one_by_one(name, count, n, k)
        tensor = self.matrix(f"{name}.weight", count, n, k)
        whole = _bound(name, tensor, count * n, k)
        scales, biases = self._of_experts(name, np.full(count, whole.scale), n)
        addresses = whole.data.ctypes.data + np.arange(count) * (n * whole.stride)
        return ExpertWeight(
            (tensor.name,), whole.type, n, k, (whole.data,), addresses, whole.stride, scales, biases
        )

    def _of_experts(
        self, name: str, scales: NDArray[np.float64], n: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float32] | None]:
        """Scales and biases of all experts with ``n`` rows, if one tensor holds them."""
        count = len(scales)
        if self.has(f"{name}.scale"):
            scales = scales * self._scales(f"{name}.scale", count)
        biases = None
        if self.has(f"{name}.bias"):
            biases = self.vector(f"{name}.bias", count * n).reshape(count, n)
        return scales, biases

    def _one_by_one(self, name: str, count: int, n: int, k: int) -> ExpertWeight:
        weights = [
            self.linear(f"{name}.{expert}", n, k, scales_bias=True) for expert in range(count)
        ]
        first = weights[0]
        for weight in weights:
            if weight.type != first.type:
                raise UnsupportedError(
                    f"{self.provider.path}: tensor '{weight.name}.weight' has type {weight.type}, "
                    f"but '{first.name}.weight' has {first.type}; trinity runs experts of "
                    "one type in a layer: quantize the model again"
                )
        own = np.array([weight.scale for weight in weights])
        scales, biases = self._of_experts(name, own, n)
        if any(weight.bias is not None for weight in weights):
            none = np.zeros(n, np.float32)
            biases = np.stack([none if w.bias is None else w.bias for w in weights])
        return ExpertWeight(
            tuple(f"{weight.name}.weight" for weight in weights), first.type, n, k,
            tuple(weight.data for weight in weights),
            np.array([weight.data.ctypes.data for weight in weights], np.int64), first.stride,
            scales, biases,
        )  # fmt: skip

    def _scales(self, name: str, count: int) -> NDArray[np.float64]:
        scales = self.vector(name, count)
        if not np.isfinite(scales).all():
            bad = float(scales[~np.isfinite(scales)][0])
            raise UnsupportedError(
                f"{self.provider.path}: tensor {name!r} has a scale of {bad}; expected finite "
                "numbers: the file is damaged"
            )
        return scales.astype(np.float64)

    def _tensor(self, name: str) -> Tensor:
        if name not in self.names:
            raise ConfigError(
                f"{self.provider.path}: no tensor {name!r}, which its architecture needs; "
                "the file is incomplete or of another architecture"
            )
        tensor = self.provider.tensor(name)
        return from_layouts(tensor)


def _bound(name: str, tensor: Tensor, n: int, k: int) -> Weight:
    """A tensor's ``n`` rows of ``k`` values; all dimensions but the last are rows."""
    rows = kernel_rows(tensor, n, k)
    return Weight(name, rows.type, n, k, rows.data, rows.data.nbytes // n, rows.scale, None)


def warn_of_inverted_scales(
    typed: Iterable[tuple[str, float]], path: str, progress: Callable[[str], object] | None
) -> None:
    """Warn if the ternary ``scales`` of the file at ``path`` look like reciprocals of the right
    ones.

    The right ones are about the mean magnitude of the weights. ``typed``: types and their scales.
    """
    scales = [abs(scale) for type_name, scale in typed if TYPES[type_name].tensor_scale]
    scales.sort()
    middle = len(scales) // 2
    # np.median would import numpy.ma.
    median = (scales[middle] + scales[~middle]) / 2 if scales else 0.0
    if median <= LARGEST_SCALE:
        return
    message = (
        f"{path}: half of the ternary scales exceed {median:.3g}, where "
        f"trained models have less than {LARGEST_SCALE:g}: they look inverted, by a converter that "
        "divided where it should have multiplied. Expect nonsense; convert the checkpoint again"
    )
    if progress:
        progress(f"warning: {message}")
    else:
        warnings.warn(message, RuntimeWarning, stacklevel=2)
