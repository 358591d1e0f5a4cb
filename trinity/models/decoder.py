"""The layers of one model, from its architecture and its configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from math import prod

from trinity.config import ModelConfig
from trinity.errors import ConfigError, TrinityError, UnsupportedError
from trinity.formats.tensor_names import beside, complete
from trinity.models.architecture import Architecture, Has, TokenTable
from trinity.models.expert_operations import ExpertLinear, Route
from trinity.models.input_norms import with_input_norms
from trinity.models.operations import (
    Attention,
    Linear,
    Norm,
    Operation,
    Rope,
    Rotation,
    Temperature,
)
from trinity.models.recurrent_operations import CausalConv, Recurrent
from trinity.models.rotated_inputs import check_rotation, rotated_embedding, with_rotated_inputs

_LAYER_TENSOR = re.compile(r"blk\.(\d{1,18})\.(.+)")
# Optional weights of a drafting layer; without them it uses the model's.
DRAFT_NORM, DRAFT_HEAD = "nextn.shared_head_norm.weight", "nextn.shared_head_head.weight"
DRAFT_EMBEDDING = "nextn.embed_tokens.weight"
_OF_ENDS = ("output", "token_embd")  # tensors before and after the layers
_UNREAD = frozenset(
    {"attn_rot_embd.weight"}
)  # tables in old files, which every engine computes itself


class Decoder:
    """The operations of all layers of a model whose file has tensors with these ``names``.

    ``head``: the weight that computes logits; "" if there are none. ``drafting``: the operations of
    the multi-token prediction layer, [] without one.
    """

    def __init__(
        self, architecture: Architecture, config: ModelConfig, names: Collection[str]
    ) -> None:
        self.architecture = architecture.of(config)
        self.config = config
        self.head = "token_embd" if config.tie_word_embeddings else "output"
        if architecture.encodes:
            self.head = ""
        self.layers: list[list[Operation]] = [
            with_rotated_inputs(
                with_input_norms(architecture.layer(config, index, has), has),
                f"blk.{index}.",
                config,
            )
            for index in range(config.num_layers)
            for has in [self._has(index, names)]
        ]
        self.prologue: list[Operation] = [
            *rotated_embedding(config), *architecture.prologue(config)
        ]  # fmt: skip
        self.epilogue = architecture.epilogue(config)
        self._names = names
        self.drafting: list[Operation] = []
        # Of files with rotated weights it is not used: nothing says how its weights are rotated.
        if architecture.drafting and config.nextn_layers and config.rotation is None:
            self.drafting = self._whole(architecture.drafting(config, self._drafts_has))

    @staticmethod
    def _has(index: int, names: Collection[str]) -> Has:
        return lambda name: f"blk.{index}.{complete(name)}" in names

    def _drafts_has(self, name: str) -> bool:
        return self.drafting_prefix + complete(name) in self._names

    def _whole(self, drafting: list[Operation]) -> list[Operation]:
        """The drafting layer if the file has all of it; the model runs without it, too."""
        needed = [
            name
            for operation in drafting
            for name, _ in self._weights_of(self.drafting_prefix, operation)
        ]
        return drafting if all(name in self._names for name in needed) else []

    @property
    def drafting_prefix(self) -> str:
        """The prefix of the names of the drafting layer's weights."""
        return f"blk.{self.config.num_layers}."

    @property
    def rotates_head(self) -> bool:
        """Whether the input of the output head needs the rotation of the weights."""
        rotation = self.config.rotation
        return rotation is not None and f"{self.head}.weight" in rotation.weights

    @cached_property
    def widths(self) -> dict[str, int]:
        """The maximum number of values of a row of each buffer."""
        widths = {"x": self.config.hidden_size, "h": self.config.hidden_size}
        for table in self.architecture.tables(self.config):
            widths[table.buffer] = table.width
        for _, operation in self.operations():
            for name, width in operation.buffers().items():
                widths[name] = max(widths.get(name, 0), width)
        return widths

    @cached_property
    def expert_widths(self) -> dict[str, int]:
        """As ``widths``, for buffers with a row per token and expert."""
        widths: dict[str, int] = {}
        for _, operation in self.operations():
            for name, width in operation.expert_buffers().items():
                widths[name] = max(widths.get(name, 0), width)
        return widths

    @cached_property
    def routes(self) -> list[Route]:
        """The routing of each layer with experts."""
        return [operation for _, operation in self.operations() if isinstance(operation, Route)]

    @cached_property
    def attention(self) -> list[Attention]:
        """The attention of every layer that has one; the drafting layer's is last.

        An attention without ``cache_of`` determines what its layer stores.
        """
        all_attentions = []
        for index, layer in enumerate(self._all_layers):
            attentions = [operation for operation in layer if isinstance(operation, Attention)]
            if len(attentions) > 1:
                raise TypeError(f"layer {index} has {len(attentions)} attention operations")
            all_attentions += attentions
        return all_attentions

    @cached_property
    def attention_layers(self) -> list[int]:
        """The layers of ``attention``."""
        return [
            index
            for index, layer in enumerate(self._all_layers)
            if any(isinstance(operation, Attention) for operation in layer)
        ]

    @property
    def _all_layers(self) -> list[list[Operation]]:
        return [*self.layers, self.drafting] if self.drafting else self.layers

    @cached_property
    def states(self) -> list[tuple[int, Recurrent]]:
        """Every operation with a recurrent state, with its layer."""
        return [
            (index, operation)
            for index, layer in enumerate(self.layers)
            for operation in layer
            if isinstance(operation, Recurrent)
        ]

    @cached_property
    def rotations(self) -> list[Rotation]:
        """The different rotations of the layers."""
        rotations = [rope.rotation for rope in self._ropes()]
        return list(dict.fromkeys(rotation for rotation in rotations if rotation is not None))

    @cached_property
    def temperatures(self) -> list[Temperature]:
        """The different temperatures of the layers."""
        temperatures = [rope.temperature for rope in self._ropes()]
        return list(
            dict.fromkeys(temperature for temperature in temperatures if temperature is not None)
        )

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor that the model needs."""
        return dict(self._tensors())

    def _tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        config = self.config
        yield "token_embd.weight", (config.vocab_size, config.hidden_size)
        if self.architecture.norm != "none" and self.architecture.output_norm:
            yield complete(self.architecture.output_norm), (config.hidden_size,)
        if self.head:
            yield f"{self.head}.weight", (config.vocab_size, config.hidden_size)
        if positions := self.architecture.added_rows.positions:
            yield complete(positions), (config.context_length, config.hidden_size)
        for table in self.architecture.tables(config):
            yield complete(table.weight), (table.rows or config.vocab_size, table.width)
        for prefix, operation in self.operations():
            yield from self._weights_of(prefix, operation)

    def _weights_of(
        self, prefix: str, operation: Operation
    ) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The tensors of one operation; for experts, a stack or one each, as in the file."""
        for name, shape in operation.weights().items():
            if isinstance(operation, ExpertLinear) and self._one_by_one(prefix + name):
                for expert in range(shape[0]):
                    yield f"{prefix}{name}.{expert}.weight", shape[1:]
            else:
                yield prefix + complete(name), shape

    def _one_by_one(self, name: str) -> bool:
        return f"{name}.weight" not in self._names and f"{name}.0.weight" in self._names

    def check(self, shape: Callable[[str], tuple[int, ...]], source: str) -> None:
        """Check the shapes of the file's tensors.

        ``shape`` returns a tensor's shape. Raises ConfigError with the tensor, its shape and the
        expected one, or for a layer that reads the cache of a layer without one; UnsupportedError
        for a layer's tensor that no operation reads, since ignoring it would give another model.
        """
        if not self.attention and not self.states:
            raise UnsupportedError(
                f"{source}: according to its metadata no layer has attention or a recurrent state; "
                "trinity needs at least one"
            )
        self._check_shared_caches(source)
        # One after the other: the metadata can name any number of layers, and the file has few.
        needed: set[str] = set()
        for name, expected in self._tensors():
            needed.add(name)
            if not self._names:
                raise ConfigError(
                    f"{source}: a vocabulary without weights, which only `trinity tokenize` can "
                    "use; give the model's own file"
                )
            if name not in self._names:
                raise ConfigError(
                    f"{source}: no tensor {name!r}, which its architecture needs; "
                    "the file is incomplete or of another architecture"
                )
            _check(name, shape(name), expected, source)
        optional = self.optional_tensors()
        for name, expected in optional.items():
            if name in self._names and name not in needed:
                _check(name, shape(name), expected, source)
        self._refuse_unread(needed | optional.keys(), source)
        if self.config.rotation is not None:
            operations = list(self.operations())
            check_rotation(self.config, operations, self.head, self.rotates_head, source)

    def optional_tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of optional tensors: biases, scales, frequency factors."""
        return dict(self._optional())

    def _optional(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for rotation in self.rotations:
            for name in filter(None, (rotation.factors, rotation.long_factors)):
                yield name, (rotation.stored_factors or rotation.dim // 2,)
        for name in filter(None, (self.head, self.architecture.output_norm)):
            width = self.config.vocab_size if name == self.head else self.config.hidden_size
            yield f"{name}.bias", (width,)
        if self.head:
            yield f"{self.head}.scale", (1,)
        if self.drafting:
            shape = (self.config.vocab_size, self.config.hidden_size)
            yield self.drafting_prefix + DRAFT_NORM, shape[1:]
            yield self.drafting_prefix + DRAFT_HEAD, shape
            yield self.drafting_prefix + DRAFT_EMBEDDING, shape
        for prefix, operation in self.operations():
            if isinstance(operation, Norm) and operation.kind == "layer":
                for name, widths in operation.weights().items():
                    yield prefix + beside(name, "bias"), widths
            if isinstance(operation, CausalConv):
                yield prefix + beside(operation.weight, "bias"), (operation.width,)
            if isinstance(operation, ExpertLinear):
                for name, (experts, rows, _) in operation.weights().items():
                    yield prefix + beside(name, "bias"), (experts, rows)
                    yield prefix + beside(name, "scale"), (experts,)
                    for expert in range(experts if self._one_by_one(prefix + name) else 0):
                        yield f"{prefix}{name}.{expert}.bias", (rows,)
                        yield f"{prefix}{name}.{expert}.scale", (1,)
            if isinstance(operation, Linear):
                for name, (rows, _) in operation.weights().items():
                    yield prefix + beside(name, "bias"), (rows,)
                    yield prefix + beside(name, "scale"), (1,)

    def _refuse_unread(self, read: Collection[str], source: str) -> None:
        unread = _UNREAD | self.architecture.unread
        for name in self._names:
            match = _LAYER_TENSOR.fullmatch(name)
            if match is None and name.startswith(_OF_ENDS) and name not in read:
                raise self._unread(name, source)
            if match is None or name in read or match[2] in unread:
                continue
            layer = int(match[1]) - self.config.num_layers
            if 0 <= layer < self.config.nextn_layers:
                continue
            if layer >= 0:
                raise ConfigError(
                    f"{source}: the metadata says {self.config.num_layers} layers, but there is a "
                    f"tensor {name!r}; the file contradicts itself: convert the model again"
                )
            raise self._unread(name, source)

    def _unread(self, name: str, source: str) -> TrinityError:
        weight = f"{name.rpartition('.')[0]}.weight"
        if name.endswith((".bias", ".scale")) and weight not in self._names:
            return ConfigError(
                f"{source}: there is a tensor {name!r}, but no {weight!r}; the file is incomplete: "
                "download it again, or convert the model again"
            )
        return UnsupportedError(
            f"{source}: trinity's {self.config.architecture!r} does not use tensor {name!r}, so "
            "its results would be wrong; a newer trinity may know it"
        )

    def _check_shared_caches(self, source: str) -> None:
        for index, mine in enumerate(self.attention):
            if mine.cache_of is None:
                continue
            fits = 0 <= mine.cache_of < index and len(self.attention) == len(self.layers)
            if fits:
                other = self.attention[mine.cache_of]
                fits = other.cache_of is None and _cached(mine) == _cached(other)
            if not fits:
                raise ConfigError(
                    f"{source}: by its metadata, layer {index} reads the keys and values of layer "
                    f"{mine.cache_of}, which stores none of that shape; the file contradicts "
                    "itself: convert the model again"
                )

    def operations(self) -> Iterator[tuple[str, Operation]]:
        """Every operation, with the prefix of its weights' names."""
        yield from (("", operation) for operation in self.prologue)
        for index, layer in enumerate(self._all_layers):
            yield from ((f"blk.{index}.", operation) for operation in layer)
        yield from (("", operation) for operation in self.epilogue)

    def _ropes(self) -> Iterator[Rope]:
        for _, operation in self.operations():
            if isinstance(operation, Rope):
                yield operation


def _cached(attention: Attention) -> tuple[int, int, int]:
    """Key-value heads in the cache, and values per head of keys and of values."""
    return attention.num_kv_heads, attention.head_dim, attention.width_of_values


def _check(name: str, shape: tuple[int, ...], expected: tuple[int, ...], source: str) -> None:
    # A scalar may have no dimensions, a vector dimensions of 1, and a single row only one
    # dimension.
    alike = shape in (expected, expected[1:]) if expected[0] == 1 else shape == expected
    if len(expected) == 1:
        alike = prod(shape) == expected[0]
    if 1 in expected[1:]:  # of a convolution; files have further dimensions of 1
        alike = [n for n in shape if n != 1] == [n for n in expected if n != 1]
    if not alike:
        raise ConfigError(
            f"{source}: tensor {name!r} has shape {shape}, but the metadata implies {expected}; "
            "the file contradicts itself: convert the model again"
        )


def token_tables(decoder: Decoder) -> list[TokenTable]:
    """The embeddings of a model; that of the residual stream is first."""
    architecture, config = decoder.architecture, decoder.config
    scale = architecture.embedding_scale(config)
    first = TokenTable("token_embd", "x", config.hidden_size, scale)
    return [first, *architecture.tables(config)]
