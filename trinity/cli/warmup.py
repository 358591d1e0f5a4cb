"""trinity warmup: compile the kernels ahead of their first use."""

from __future__ import annotations

import typer

from trinity.cli import options
from trinity.cli.loading import progress
from trinity.cli.terminal import say


def warmup(isa: options.Isa = None) -> None:
    """Compile all kernels of an instruction-set level into the cache on disk."""
    import trinity_kernels
    from trinity_kernels.code_files import take_cache_problem

    with progress("compiling kernels") as show:
        trinity_kernels.warmup(isa, show)
    problem = take_cache_problem()
    if problem is not None:
        say(f"error: {problem}")
        raise typer.Exit(1)
    say("all kernels are compiled")
