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


# Of a cluster started here, whose processes share cores with the replicas. Without requests they
# use 6% of a core with Ray's own values, and 4% with these.
FEWER_WAKEUPS = {
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.5",
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "10000",
    "RAY_enable_metrics_collection": "0",
    "RAY_event_stats": "0",
    "RAY_io_context_event_loop_lag_collection_interval_ms": "60000",
    "RAY_kill_idle_workers_interval_ms": "2000",
    "RAY_memory_monitor_refresh_ms": "1000",
    "RAY_object_manager_timer_freq_ms": "1000",
    "RAY_raylet_report_resources_period_milliseconds": "1000",
    "RAY_task_events_report_interval_ms": "10000",
}


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


def wake_less(replicas: Replicas) -> None:
    """Let the processes of a cluster that is started here wake up less often.

    It has an effect before Ray is imported. Variables that are set stay.
    """
    if replicas.is_local:
        for name, value in FEWER_WAKEUPS.items():
            os.environ.setdefault(name, value)


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

    Raises: InputError if there is no Ray, no cluster at the address, or if Ray does not start.
    """
    wake_less(replicas)
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
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise InputError(f"Ray does not start: {error}") from error  # Ray's timeouts
    try:
        yield
    finally:
        ray.shutdown()
