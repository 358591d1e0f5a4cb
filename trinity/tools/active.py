"""What one token reads of a model with experts: those that it takes, and all that is no expert."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod

from trinity.config import ExpertConfig

# A stack of all experts, or a tensor of one of them.
_OF_EXPERTS = re.compile(r"blk\.\d+\.ffn_(?:\w+_exps|\w+\.\d+)\.\w+", re.ASCII)


def share(name: str, experts: ExpertConfig | None) -> float:
    """The part of a tensor that one token reads, on average."""
    if experts is None or _OF_EXPERTS.fullmatch(name) is None:
        return 1.0
    return experts.num_experts_per_tok / experts.num_experts


def active_parameters(
    shapes: Iterable[tuple[str, tuple[int, ...]]], experts: ExpertConfig | None
) -> int:
    """Of tensors by name and shape, the parameters that one token's evaluation takes."""
    return round(sum(prod(shape) * share(name, experts) for name, shape in shapes))
