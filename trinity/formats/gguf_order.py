"""The tensors of any model in the names, shapes and order that a GGUF file has.

Experts are stacked, and rows of Q and K are permuted if GGUF's are. Norms, biases and routers are
F32, because other readers accept no other type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.formats.defaults import Defaults
from trinity.formats.gguf_limits import check_limits, rounds_ramp
from trinity.formats.made_tensor import MadeTensor
from trinity.formats.provider import Tensor, WeightProvider
from trinity.formats.ternary_tensor import TernaryMatrix, TernaryTensor

_EXPERT = re.compile(r"(blk\.\d+\.\w+_exps)\.(\d+)\.weight")
_TURNED = re.compile(r"blk\.(\d+)\.attn_(q|k)\.(?:weight|bias)")
_PRECISE = (
    "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "ssm_conv1d.weight",
    "shortconv.conv.weight", "position_embd.weight", "token_types.weight",
    "ssm_conv1d_q.weight", "ssm_conv1d_k.weight", "ssm_conv1d_v.weight",
    "time_mix_lerp_fused.weight", "time_mix_w1.weight", "time_mix_w2.weight",
    "time_mix_first.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight",
    "indexer.proj.weight", "altup_correct_coef.weight", "altup_predict_coef.weight",
)  # fmt: skip
_PIECE_BYTES = 1 << 23
_LAYER_INPUTS = "per_layer_token_embd.weight"


class GGUFOrder:
    """A view of another provider's model with GGUF's names, shapes and order of tensors.

    Closing it does not close the other provider. Raises UnsupportedError if the model has a setting
    that a GGUF file cannot store.
    """

    rope_interleaved = True

    def __init__(self, provider: WeightProvider) -> None:
        self._provider = provider
        self.path, self.paths = provider.path, provider.paths
        self.metadata = provider.metadata
        self.config = with_whole_tables(provider.config)
        self._experts: dict[str, list[str]] = {}
        self._names: list[str] = []
        for name in provider.tensor_names():
            match = _EXPERT.fullmatch(name)
            if match is None:
                self._names.append(name)
                continue
            stack = f"{match[1]}.weight"
            if stack not in self._experts:
                self._experts[stack] = []
                self._names.append(stack)
            self._experts[stack].append(name)  # providers list them in order
        shapes = {
            name: provider.tensor(name).shape
            for name in self._names
            if name.startswith(("dense_", "rope_freqs"))
        }
        check_limits(self.config, shapes, self.metadata, self.path)

    @property
    def notes(self) -> list[str]:
        """Notes for the user, such as settings that GGUF cannot store."""
        config, notes = self.config, [*self._provider.notes]
        if rounds_ramp(config):
            notes.append(
                "the model's YaRN ramp is not rounded (truncate is false), but readers of GGUF "
                "files round it: logits differ from the directory's, as for files of llama.cpp's "
                "converter"
            )
        context = self.metadata.get(f"{config.architecture}.context_length")
        if config.sliding_window is None or context == config.context_length:
            return notes
        return [
            *notes,
            f"the model's window of {config.sliding_window} tokens cannot be stored for "
            f"{config.architecture} in GGUF: the context length is set to {context} instead of "
            f"{config.context_length}, so that the window has no effect",
        ]

    @property
    def defaults(self) -> Defaults:
        """The defaults in the model's files."""
        return self._provider.defaults

    def tensor_names(self) -> list[str]:
        """Return all names, in the provider's order."""
        return self._names

    def check(self) -> None:
        """Raise FormatError if a file was truncated or overwritten after it was opened."""
        self._provider.check()

    def close(self) -> None:
        """Do nothing: the other provider stays open."""

    def tensor(self, name: str) -> Tensor:
        """Return a tensor; if it differs from the provider's, its bytes are computed when read."""
        tensor = self._ordered(name)
        if name == _LAYER_INPUTS and tensor.shape[0] < self.config.vocab_size:
            tensor = _with_all_rows(tensor, self.config.vocab_size)
        if tensor.type == "F32" or not is_precise(name, tensor.shape):
            return tensor
        make = partial(_floats, tensor)
        return MadeTensor(name, tensor.shape, "F32", make, tensor.source, tensor.origin)

    def _ordered(self, name: str) -> Tensor:
        if name in self._experts:
            return self._stack(name, self._experts[name])
        tensor, heads = self._provider.tensor(name), self._heads(name)
        if not heads:
            return tensor
        if isinstance(tensor, TernaryTensor):
            matrix = partial(_permuted_matrix, tensor, heads)
            scale = tensor.known_scale
            return TernaryTensor(name, tensor.shape, matrix, scale, tensor.source, tensor.origin)
        make = partial(_permuted_rows, tensor, heads)
        return MadeTensor(name, tensor.shape, tensor.type, make, tensor.source, tensor.origin)

    def _heads(self, name: str) -> int:
        """Return the number of heads whose rows are permuted, or 0 if the rows stay in order."""
        match = None if self._provider.rope_interleaved else _TURNED.fullmatch(name)
        if match is None:
            return 0
        config = self._provider.config
        return config.num_heads if match[2] == "q" else config.kv_heads_of(int(match[1]))

    def _stack(self, name: str, parts: list[str]) -> Tensor:
        """Stack the experts' matrices; as F32 if they are of several types."""
        tensors = [self._provider.tensor(part) for part in parts]
        types = {tensor.type for tensor in tensors}
        type_name = types.pop() if len(types) == 1 else "F32"
        shape = (len(parts), *tensors[0].shape)
        make = partial(self._stacked, parts, type_name)
        return MadeTensor(name, shape, type_name, make, tensors[0].source, tensors[0].origin)

    def _stacked(self, parts: list[str], type_name: str) -> Iterator[NDArray[np.generic]]:
        for part in parts:
            tensor = self._provider.tensor(part)
            if tensor.type == type_name:
                yield from tensor.pieces(_PIECE_BYTES)
            else:
                yield tensor.dequantize()


def is_precise(name: str, shape: tuple[int, ...]) -> bool:
    """Whether GGUF stores a tensor as F32, whatever the type of the file's weights.

    Source: llama.cpp conversion/base.py, ModelBase.prepare_tensors.
    """
    return not name.endswith(".weight") or name.endswith(_PRECISE) or len(shape) == 1


def _floats(tensor: Tensor) -> Iterator[NDArray[np.generic]]:
    yield tensor.dequantize()


def permuted(array: NDArray[np.generic], heads: int) -> NDArray[np.generic]:
    """Return rows of Q or K in llama.cpp's order, as a view with the axes heads, pairs, 2, rest.

    Within a head, rows i of the first half and i of the second become 2i and 2i + 1. Source:
    llama.cpp conversion/llama.py, LlamaModel.permute.
    """
    pairs = array.shape[0] // heads // 2
    return array.reshape(heads, 2, pairs, *array.shape[1:]).swapaxes(1, 2)


def _permuted_rows(tensor: Tensor, heads: int) -> Iterator[NDArray[np.generic]]:
    """Yield the permuted rows head by head; a row's bytes stay together in every type with rows."""
    rows = tensor.data.reshape(tensor.shape[0], -1)
    size = len(rows) // heads
    for first in range(0, len(rows), size):
        yield permuted(rows[first : first + size], 1)


def _permuted_matrix(tensor: TernaryTensor, heads: int) -> TernaryMatrix:
    matrix = tensor.matrix()
    codes = permuted(matrix.codes, heads).reshape(matrix.codes.shape)
    return TernaryMatrix(codes.view(np.uint8), matrix.scale)


def with_whole_tables(config: ModelConfig) -> ModelConfig:
    """Return the configuration of a GGUF file, in which all tables have the vocabulary's rows."""
    return replace(config, per_layer_vocab_size=0)


def _with_all_rows(tensor: Tensor, count: int) -> Tensor:
    """Return the tensor with rows of zeros after its own, ``count`` in all."""
    rows, width = tensor.shape

    def make() -> Iterator[NDArray[np.generic]]:
        yield from tensor.pieces(_PIECE_BYTES)
        yield np.zeros((count - rows) * tensor.nbytes // rows, np.uint8)

    return MadeTensor(tensor.name, (count, width), tensor.type, make, tensor.source, tensor.origin)
