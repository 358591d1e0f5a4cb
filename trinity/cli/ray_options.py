"""The flags of commands that can run on Ray."""

from __future__ import annotations

from trinity.cli.parameters import BadParameter
from trinity.ray.cluster import Replicas


def ray_replicas(
    ray: bool, count: int | None, cores: int | None, address: str | None
) -> Replicas | None:
    """Return what the flags ask for; None without --ray. Raises: BadParameter.

    By default one replica has all cores of this machine.
    """
    from trinity_kernels.cores import default_threads

    given = {"--replicas": count, "--cores": cores, "--ray-address": address}
    if not ray:
        for flag, value in given.items():
            if value is not None:
                raise BadParameter(f"{flag} has no effect without --ray")
        return None
    count = count or 1
    return Replicas(count, cores or max(1, default_threads() // count), address)
