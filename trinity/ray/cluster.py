"""Connects to a Ray cluster, or starts a small one on this machine for one command."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trinity.errors import InputError

STORE_BYTES = (
    100 << 20
)  # of the object store of a cluster started here; only requests pass through it


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many processes have the model, and where."""

    count: int = 1
    cores: int = 1  # of each process, which runs as many threads
    address: str | None = None  # of the cluster; None: RAY_ADDRESS, or else this machine alone

    @property
    def is_local(self) -> bool:
        """Whether a cluster is started on this machine."""
        return (self.address or os.environ.get("RAY_ADDRESS", "local")) == "local"


@contextmanager
def library() -> Iterator[None]:
    """Within ``with``, InputError says how to install Ray if it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "ray":
            raise
        raise InputError(
            'Ray is not installed; install it with: pip install "trinity-llm[ray]"'
        ) from error


@contextmanager
def connected(replicas: Replicas) -> Iterator[None]:
    """A connection to the cluster of ``replicas``. A cluster started here ends with it.

    Raises: InputError if there is no Ray, or no cluster at the address.
    """
    with library():
        import ray
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if ray.is_initialized():
        yield
        return
    address = replicas.address or os.environ.get("RAY_ADDRESS", "local")
    own = {}
    if replicas.is_local:
        own = {
            "num_cpus": replicas.count * replicas.cores,
            "object_store_memory": STORE_BYTES,
            "include_dashboard": False,
        }
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"there is no Ray cluster at {address}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()
