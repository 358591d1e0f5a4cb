"""What a family's file declares, and the layers that follow from it for one model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

from trinity.config import ModelConfig
from trinity.errors import ConfigError
from trinity.models.operations import Attention, Linear, Operation, Rope, Rotation

Has = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Architecture:
    """One decoder family.

    ``names``: the values of ``general.architecture`` that mean it. ``layer(config, index, has)``:
    the operations of layer ``index`` in order; ``has`` tells whether the file has a weight of that
    layer. ``rope_halves``: dimensions (i, i + n/2) rotate together, else neighbours (2i, 2i+1), as
    the family's GGUF files have it. ``embedding_scale(config)``: what embeddings are multiplied by.
    """

    names: tuple[str, ...]
    layer: Callable[[ModelConfig, int, Has], list[Operation]]
    rope_halves: bool
    embedding_scale: Callable[[ModelConfig], float] = lambda config: 1.0


class Network:
    """The operations of all layers of one model, whose file has tensors of these ``names``."""

    def __init__(
        self, architecture: Architecture, config: ModelConfig, names: Collection[str]
    ) -> None:
        self.config = config
        self.head = "token_embd" if config.tie_word_embeddings else "output"
        self.layers: list[list[Operation]] = [
            architecture.layer(config, index, self._has(index, names))
            for index in range(config.num_layers)
        ]
        self._names = names

    @staticmethod
    def _has(index: int, names: Collection[str]) -> Has:
        return lambda name: f"blk.{index}.{name}.weight" in names

    @cached_property
    def widths(self) -> dict[str, int]:
        """Values of a row of each buffer, the most that any operation wants."""
        widths = {"x": self.config.hidden_size, "h": self.config.hidden_size}
        for operation in self._operations():
            for name, width in operation.buffers().items():
                widths[name] = max(widths.get(name, 0), width)
        return widths

    @cached_property
    def attention(self) -> list[Attention]:
        """Every layer's attention, which says what the layer keeps in the cache."""
        found = []
        for index, layer in enumerate(self.layers):
            attentions = [operation for operation in layer if isinstance(operation, Attention)]
            if len(attentions) != 1:
                raise TypeError(f"layer {index} has {len(attentions)} attention operations, not 1")
            found += attentions
        return found

    @cached_property
    def rotations(self) -> list[Rotation]:
        """The different rotations of the layers."""
        found = [
            operation.rotation for operation in self._operations() if isinstance(operation, Rope)
        ]
        return list(dict.fromkeys(rotation for rotation in found if rotation is not None))

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor that the model needs."""
        config = self.config
        needed: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (config.vocab_size, config.hidden_size),
            "output_norm.weight": (config.hidden_size,),
            f"{self.head}.weight": (config.vocab_size, config.hidden_size),
        }
        for index, layer in enumerate(self.layers):
            for operation in layer:
                for name, shape in operation.weights().items():
                    needed[f"blk.{index}.{name}.weight"] = shape
        return needed

    def check(self, shape: Callable[[str], tuple[int, ...]], source: str) -> None:
        """Hold the tensors that the model needs, and what lies beside them, against the file's.

        ``shape`` gives a tensor's shape. Raises ConfigError that names the tensor, its shape and
        the expected one.
        """
        for name, expected in self.tensors().items():
            if name not in self._names:
                raise ConfigError(
                    f"{source}: no tensor {name!r}, which its architecture needs; "
                    "the file is incomplete or of another architecture"
                )
            _check(name, shape(name), expected, source)
        for name, expected in self._beside():
            if name in self._names:
                _check(name, shape(name), expected, source)

    def _beside(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Tensors that a file may have: biases, scales, factors of rotations."""
        for rotation in self.rotations:
            for name in filter(None, (rotation.factors, rotation.long_factors)):
                yield name, (rotation.dim // 2,)
        for index, layer in enumerate(self.layers):
            for operation in layer:
                if isinstance(operation, Linear):
                    for name, (rows, _) in operation.weights().items():
                        yield f"blk.{index}.{name}.bias", (rows,)
                        yield f"blk.{index}.{name}.scale", (1,)

    def _operations(self) -> Iterator[Operation]:
        for layer in self.layers:
            yield from layer


def _check(name: str, found: tuple[int, ...], expected: tuple[int, ...], source: str) -> None:
    # One value may be written without dimensions, a vector with some of 1.
    alike = prod(found) == expected[0] if len(expected) == 1 else found == expected
    if not alike:
        raise ConfigError(
            f"{source}: tensor {name!r} has shape {found}, but the metadata implies {expected}; "
            "the file contradicts itself: convert the model again"
        )
