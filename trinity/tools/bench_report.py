"""Format a benchmark's results as llama-bench's table, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from trinity.tools.bench import Profile, Report
from trinity.tools.machine import machine, versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The model that was measured."""

    model: str  # the name that the user gave
    name: str  # the name in the model's file
    path: str
    type: str
    nbytes: int
    tensor_bytes: int
    parameters: int
    active: int
    speech: bool = False  # whether it is a speech model

    @property
    def quantity(self) -> str:
        """The model's number of parameters in short form."""
        if self.active == self.parameters:
            return quantity(self.parameters)
        return f"{quantity(self.parameters)}, {quantity(self.active)} active"


# Each model with a report for each instruction-set level.
PackedWeights = Sequence[tuple[Measured, Sequence[Report]]]


def as_object(measurements: PackedWeights) -> dict[str, object]:
    """Return all results, with the machine and the versions."""
    return {
        "models": [
            {
                "model": model.model,
                "path": model.path,
                "name": model.name,
                "type": model.type,
                "bytes": model.nbytes,
                "tensor_bytes": model.tensor_bytes,
                "parameters": model.parameters,
                "active_parameters": model.active,
                "levels": [_level(report) for report in reports],
            }
            for model, reports in measurements
        ],
        "machine": machine(),
        "versions": versions(),
    }


def _level(report: Report) -> dict[str, object]:
    return {
        "isa": report.isa,
        "threads": report.threads,
        "load_seconds": report.load_seconds,
        "tests": [
            {
                "test": m.test,
                "tokens": m.tokens,
                "batch": m.batch,
                "depth": m.depth,
                "tokens_per_second_mean": m.mean,
                "tokens_per_second_sd": m.deviation,
                "tokens_per_second_rounds": m.rounds,
                "seconds_rounds": list(m.seconds),
                "texts_per_second_mean": m.texts_per_second,
                "audio_seconds_per_second_mean": m.audio_speed,
                "bytes_per_step": m.bytes_per_step,
                "bandwidth_share": report.share(m),
                "proposed_tokens": m.proposed,
                "accepted_tokens": m.accepted,
                "acceptance": (m.accepted or 0) / m.proposed if m.proposed else None,
            }
            for m in report.measurements
        ],
        "profiles": [
            {
                "test": profile.test,
                "step_seconds": profile.step_seconds,
                "operations": [_operation(total) for total in totals(profile)],
            }
            for profile in report.profiles
        ],
        "read_bandwidth_bytes_per_second": report.read_bandwidth,
        "peak_rss_bytes": report.peak_rss,
        "anonymous_rss_bytes": report.anonymous_rss,
    }


def _operation(total: OperationTotal) -> dict[str, object]:
    values = asdict(total)
    values["bytes"] = values.pop("nbytes")
    return values


def markdown(measurements: PackedWeights) -> str:
    """Return llama-bench's table, and lines about this machine's limits."""
    rows = [
        "| model | type | size | params | isa | threads | test | t/s |",
        "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for model, reports in measurements:
        about = f"| {model.name} | {model.type} | {size(model.tensor_bytes)} | {model.quantity} "
        rows += [
            f"{about}| {report.isa} | {report.threads} | {m.test} "
            f"| {m.mean:.2f} ± {m.deviation:.2f} |"
            for report in reports
            for m in report.measurements
        ]
    several = len(measurements) > 1
    for model, reports in measurements:
        for report in reports:
            of = [
                *([f"{model.name} {model.type}"] if several else []),
                *([report.isa] if len(reports) > 1 else []),
            ]
            rows += ["", *_notes(report, f"{', '.join(of)}: " if of else "")]
    for model, reports in measurements:
        for report in reports:
            for profile in report.profiles:
                table = profile_table(report, profile)
                rows += ["", f"{model.name} {model.type}, {table}" if several else table]
    return "\n".join(rows)


def size(nbytes: int) -> str:
    """Format bytes as llama-bench does."""
    if nbytes >= 2**30:
        return f"{nbytes / 2**30:.2f} GiB"
    return f"{nbytes / 2**20:.2f} MiB"


def _notes(report: Report, prefix: str) -> list[str]:
    notes = []
    for m in report.measurements:
        share, read = report.share(m), m.bytes_per_second
        # Computation limits a batch, so its share of the bandwidth means nothing.
        if share is not None and read is not None and report.read_bandwidth and m.batch == 1:
            notes.append(
                f"{prefix}{m.test} read {read / 1e9:.1f} GB/s, {share:.0%} of the "
                f"{report.read_bandwidth / 1e9:.1f} GB/s that {report.threads} threads can read"
            )
        if m.texts_per_second is not None:
            notes.append(f"{prefix}{m.test}: {m.texts_per_second:.2f} texts per second")
        if m.audio_speed is not None:
            notes.append(f"{prefix}{m.test}: {m.audio_speed:.1f} seconds of audio per second")
        if m.proposed is not None:
            notes.append(f"{prefix}{m.test} accepted {m.accepted} of {m.proposed} proposed tokens")
    if report.peak_rss is not None:
        own = report.anonymous_rss
        rest = "" if own is None else f", {own / 2**20:.0f} MiB without the mapped file"
        notes.append(f"{prefix}peak memory {report.peak_rss / 2**20:.0f} MiB{rest}")
    if report.load_seconds is not None:
        notes.append(f"{prefix}loaded in {report.load_seconds:.2f} s")
    return notes


@dataclass(frozen=True, slots=True)
class OperationTotal:
    """The sum of ``count`` operations of a step with the same kernel, type and shape."""

    kernel: str
    tag: str
    rows: int
    n: int
    k: int
    count: int
    seconds: float
    nbytes: int

    @property
    def multiplications(self) -> int:
        """Number of multiplications in a matrix product."""
        return self.count * self.rows * self.n * self.k


def totals(profile: Profile) -> list[OperationTotal]:
    """Sum the step's operations by kernel, type and shape, the longest first."""
    sums: dict[tuple[str, str, int, int, int], tuple[int, float, int]] = {}
    for op in profile.operations:
        key = (op.kernel, op.tag, op.rows, op.n, op.k)
        count, seconds, nbytes = sums.get(key, (0, 0.0, 0))
        sums[key] = (count + 1, seconds + op.seconds, nbytes + op.nbytes)
    totals = [OperationTotal(*key, *values) for key, values in sums.items()]
    return sorted(totals, key=lambda total: -total.seconds)


def profile_table(report: Report, profile: Profile) -> str:
    """Return a table of a step's time; each operation is timed alone."""
    sums = totals(profile)
    together = sum(total.seconds for total in sums)
    rows = [
        f"{report.isa}, a step of {profile.test}: {profile.step_seconds * 1e3:.2f} ms; its "
        f"operations alone, without starting the threads: {together * 1e3:.2f} ms",
        "",
        "| kernel | type | n x k | rows | times | ms | share | GB/s | GMAC/s |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for total in sums:
        shape = f"{total.n} x {total.k}" if total.n else str(total.k or "")
        seconds = total.seconds or math.inf
        read = f"{total.nbytes / seconds / 1e9:.1f}" if total.nbytes else ""
        macs = f"{total.multiplications / seconds / 1e9:.0f}" if total.multiplications else ""
        rows.append(
            f"| {total.kernel} | {total.tag} | {shape} | {total.rows} | {total.count} "
            f"| {total.seconds * 1e3:.3f} | {total.seconds / (together or 1):.1%} "
            f"| {read} | {macs} |"
        )
    return "\n".join(rows)


def quantity(number: int) -> str:
    """Format a number of parameters: 1.24 B, 260.03 K."""
    exponent = min(3, max(0, int(math.log10(max(number, 1)) // 3)))
    return f"{number / 1000**exponent:.2f} {('', 'K', 'M', 'B')[exponent]}".strip()
