"""The part of a model with experts that one token reads: shared weights and selected experts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod

from trinity.config import ExpertConfig

# Names of a stack of all experts, and of one expert's tensor.
_OF_EXPERTS = re.compile(r"blk\.\d+\.ffn_(?:\w+_exps|\w+\.\d+)\.\w+", re.ASCII)


def share(name: str, experts: ExpertConfig | None) -> float:
    """Return the part of a tensor that one token reads, on average."""
    if experts is None or _OF_EXPERTS.fullmatch(name) is None:
        return 1.0
    return experts.num_experts_per_tok / experts.num_experts


def active_parameters(
    shapes: Iterable[tuple[str, tuple[int, ...]]], experts: ExpertConfig | None
) -> int:
    """Return the number of parameters that one token uses, for tensors given by name and shape."""
    return round(sum(prod(shape) * share(name, experts) for name, shape in shapes))
