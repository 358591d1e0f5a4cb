"""Models on a Ray cluster: a server with replicas; batches and data sets on pools of actors.

It needs ``pip install "trinity-llm[ray]"``. docs/scaling.md explains it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trinity.ray.dataset import embed, generate, rank, transcribe

__all__ = ["embed", "generate", "rank", "transcribe"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trinity.ray import dataset

    return getattr(dataset, name)
