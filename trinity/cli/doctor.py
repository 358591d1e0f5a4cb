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
        Flag("Measure memory bandwidth, which takes some seconds.", "--bandwidth/--no-bandwidth"),
    ] = True,
    as_json: options.Json = False,
) -> None:
    """Report what this machine offers, what slows inference down, and how to fix it."""
    from trinity.tools.doctor import examine, measured

    report = examine()
    if bandwidth:
        say("measuring memory bandwidth")
        report = measured(report)
    if as_json:
        put(json_line(asdict(report)))
    else:
        show(report)


def show(report: Examination) -> None:
    """Print the report, then the findings."""
    width = max(len(name) for name, _ in lines(report))
    for name, value in lines(report):
        put(f"{name:<{width}}  {value}")
    put()
    if not report.findings:
        put("Nothing was found that slows inference down on this machine.")
    for finding in report.findings:
        put(f"- {finding.what}")
        put(f"  what to do: {finding.do}")


def lines(report: Examination) -> list[tuple[str, str]]:
    """Return names and values, without those that are unknown."""
    from trinity.tools.amounts import size_text
    from trinity.tools.recommend import EFFICIENCY

    def size(nbytes: float | None) -> str | None:
        return None if nbytes is None else size_text(int(nbytes))

    read = report.read_bandwidth_bytes_per_second
    load = report.load_average
    limit = size(report.memory_limit_bytes)
    rows: list[tuple[str, str | None]] = [
        ("processor", report.processor),
        ("system", report.system),
        ("instruction set", f"{report.level} (there are {', '.join(report.levels)})"),
        ("CPUs", f"{report.usable_cpus} of {report.logical_cpus} for this process"),
        ("threads", f"{report.threads} by default: the fast physical cores"),
        ("CPU quota", None if report.cpu_quota is None else f"{report.cpu_quota:g} CPUs"),
        ("load", None if load is None else f"{load:.2f} in the last minute"),
        ("memory", size(report.memory_bytes)),
        ("free memory", size(report.available_bytes)),
        ("memory limit", limit and f"{limit}, the container's"),
        ("swapped out", size(report.swapped_bytes) if report.swapped_bytes else None),
        ("read bandwidth", None if read is None else f"{read / 1e9:.1f} GB/s"),
        (
            "tokens/s",
            None if read is None else f"about {EFFICIENCY * read / 4e9:.1f} with a file of 4 GB",
        ),
        ("pages", f"{report.page_bytes} bytes; large ones: {report.large_pages or 'unknown'}"),
        ("governor", report.governor),
        ("memory nodes", str(report.nodes) if report.nodes > 1 else None),
        ("kernels", f"{report.kernel_cache or 'not kept'}, {size(report.kernel_cache_bytes)}"),
        ("other kernels", size(report.other_kernels_bytes) if report.other_kernels_bytes else None),
        ("weights", f"{report.weights_cache}, {size(report.weights_cache_bytes)}"),
        ("free disk", size(report.disk_free_bytes)),
        ("versions", ", ".join(f"{name} {version}" for name, version in report.versions.items())),
    ]
    return [(name, value) for name, value in rows if value is not None]
