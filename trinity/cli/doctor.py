"""trinity doctor: report CPU features, memory and bandwidth, and how to speed inference up."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from trinity.cli import options
from trinity.cli.parameters import Flag
from trinity.cli.terminal import json_line, put, say

if TYPE_CHECKING:
    from trinity.tools.doctor import Examination


def doctor(
    bandwidth: Annotated[
        bool,
        Flag(
            "--bandwidth/--no-bandwidth", help="Measure memory bandwidth, which takes some seconds."
        ),
    ] = True,
    as_json: options.Json = False,
) -> None:
    """Report what this machine offers, what slows inference down, and how to fix it."""
    from trinity.tools.doctor import examine, measured

    found = examine()
    if bandwidth:
        say("measuring memory bandwidth")
        found = measured(found)
    if as_json:
        put(json_line(asdict(found)))
    else:
        show(found)


def show(found: Examination) -> None:
    """Print the report, then the findings."""
    width = max(len(name) for name, _ in lines(found))
    for name, value in lines(found):
        put(f"{name:<{width}}  {value}")
    put()
    if not found.findings:
        put("Nothing was found that slows inference down on this machine.")
    for finding in found.findings:
        put(f"- {finding.what}")
        put(f"  what to do: {finding.do}")


def lines(found: Examination) -> list[tuple[str, str]]:
    """Return names and values, without those that are unknown."""
    from trinity.tools.amounts import size_text
    from trinity.tools.recommend import EFFICIENCY

    def size(nbytes: float | None) -> str | None:
        return None if nbytes is None else size_text(int(nbytes))

    read = found.read_bandwidth_bytes_per_second
    load = found.load_average
    limit = size(found.memory_limit_bytes)
    rows: list[tuple[str, str | None]] = [
        ("processor", found.processor),
        ("system", found.system),
        ("instruction set", f"{found.level} (there are {', '.join(found.levels)})"),
        ("CPUs", f"{found.usable_cpus} of {found.logical_cpus} for this process"),
        ("threads", f"{found.threads} by default: the fast physical cores"),
        ("CPU quota", None if found.cpu_quota is None else f"{found.cpu_quota:g} CPUs"),
        ("load", None if load is None else f"{load:.2f} in the last minute"),
        ("memory", size(found.memory_bytes)),
        ("free memory", size(found.available_bytes)),
        ("memory limit", limit and f"{limit}, the container's"),
        ("swapped out", size(found.swapped_bytes) if found.swapped_bytes else None),
        ("read bandwidth", None if read is None else f"{read / 1e9:.1f} GB/s"),
        (
            "tokens/s",
            None if read is None else f"about {EFFICIENCY * read / 4e9:.1f} with a file of 4 GB",
        ),
        ("pages", f"{found.page_bytes} bytes; large ones: {found.large_pages or 'unknown'}"),
        ("governor", found.governor),
        ("memory nodes", str(found.nodes) if found.nodes > 1 else None),
        ("kernels", f"{found.kernel_cache or 'not kept'}, {size(found.kernel_cache_bytes)}"),
        ("other kernels", size(found.other_kernels_bytes) if found.other_kernels_bytes else None),
        ("weights", f"{found.weights_cache}, {size(found.weights_cache_bytes)}"),
        ("free disk", size(found.disk_free_bytes)),
        ("versions", ", ".join(f"{name} {version}" for name, version in found.versions.items())),
    ]
    return [(name, value) for name, value in rows if value is not None]
