"""trinity selftest: compare every kernel that this machine runs with its NumPy reference."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from trinity.cli import options
from trinity.cli.loading import progress
from trinity.cli.parameters import Exit, Flag
from trinity.cli.terminal import put


def selftest(
    isa: Annotated[
        list[str] | None,
        Flag("Test only this level; may be repeated. By default, all levels of this CPU."),
    ] = None,
) -> None:
    """Check every kernel of every instruction-set level of this CPU; exit code 1 on a failure."""
    from trinity_kernels import selftest as kernels

    with options.wrong_usage():
        for level in isa or ():
            options.check_level("--isa", level)
    with progress("checking kernels") as show:
        results = kernels.run(isa or None, show)
    rows = [{key: cell(value) for key, value in asdict(r).items()} for r in results]
    if rows:
        widths = {key: max(len(key), *(len(row[key]) for row in rows)) for key in rows[0]}
        for row in ({key: key for key in widths}, *rows):
            put("  ".join(f"{row[key]:<{width}}" for key, width in widths.items()).rstrip())
    failed = sum(not r.passed for r in results)
    put(f"{len(results)} checks, {failed} failed")
    if failed or not results:
        raise Exit(1)


def cell(value: object) -> str:
    """Format a value of the table."""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
