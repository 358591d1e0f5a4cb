"""The weights of a model's products, and the bytes that one token reads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.runtime.plan import PlanBuilder
from trinity.runtime.weights import Weight

FINGERPRINT_BYTES = 64  # bytes at each end of a tensor that the fingerprint hashes


class BoundWeights:
    """The weights of the layers and of the output heads."""

    def __init__(self, builder: PlanBuilder, heads: Sequence[Weight]) -> None:
        drafting, experts = builder.decoder.drafting_prefix, builder.config.experts
        own_linears, own_experts = builder.bound[drafting], builder.experts[drafting]
        # Every linear; those of the multi-token prediction layer are last.
        self.all_linears = [w for part in builder.bound.values() for w in part.values()]
        self.all_experts = [w for part in builder.experts.values() for w in part.values()]
        # The weights that every token is multiplied by.
        self.linears = self.all_linears[: len(self.all_linears) - len(own_linears)]
        self.experts = self.all_experts[: len(self.all_experts) - len(own_experts)]
        self.heads = list(heads)
        self.layer_bytes = sum(weight.nbytes for weight in self.linears)
        self.head_bytes = sum(weight.nbytes for weight in self.heads)
        per_token = experts.num_experts_per_tok if experts else 0
        self.expert_bytes = sum(per_token * weight.expert_bytes for weight in self.experts)

    @property
    def token_bytes(self) -> int:
        """Bytes of weights that one token reads."""
        return self.layer_bytes + self.expert_bytes + self.head_bytes

    @property
    def types(self) -> set[str]:
        """The types of all weights."""
        linears = {weight.type for weight in [*self.all_linears, *self.heads]}
        return linears | {weight.type for weight in self.all_experts}

    @property
    def layer_types(self) -> set[str]:
        """The types of the weights that every token is multiplied by, except the output heads."""
        linears = {weight.type for weight in self.linears}
        return linears | {weight.type for weight in self.experts}

    def named(self) -> list[tuple[str, Weight]]:
        """Every linear of the layers with its name, then the output heads."""
        return [(weight.name, weight) for weight in [*self.linears, *self.heads]]

    def arrays(self) -> Iterator[NDArray[np.uint8]]:
        """The memory of all weights."""
        yield from (weight.data for weight in [*self.all_linears, *self.heads])
        yield from (data for weight in self.all_experts for data in weight.data)

    def scales(self) -> Iterator[tuple[str, float]]:
        """The type and the scale of every weight of a layer."""
        yield from ((weight.type, weight.scale) for weight in self.all_linears)
        for weight in self.all_experts:
            yield from ((weight.type, float(scale)) for scale in weight.scales)


def fingerprint(config: ModelConfig, adapters: Sequence[str], weights: BoundWeights) -> str:
    """A hash of the configuration, the adapters' files, and some bytes of all weights."""
    digest = sha256(repr(config).encode())
    for path in adapters:
        digest.update(f"{os.path.basename(path)} {os.path.getsize(path)}".encode())
    linears = [(weight.name, weight.type, (weight.data,)) for _, weight in weights.named()]
    experts = [(str(weight.tensors), weight.type, weight.data) for weight in weights.experts]
    for name, kind, arrays in [*linears, *experts]:
        digest.update(f"{name} {kind}".encode())
        for flat in (array.reshape(-1) for array in arrays):
            digest.update(flat[:FINGERPRINT_BYTES].tobytes())
            digest.update(flat[-FINGERPRINT_BYTES:].tobytes())
    return digest.hexdigest()
