"""trinity warmup: compile the kernels ahead of their first use."""

from __future__ import annotations

from trinity.cli import options
from trinity.cli.loading import progress
from trinity.cli.terminal import say


@options.takes(loading=options.only(options.LOADING, "isa"))
def warmup(loading: options.Given) -> None:
    """Compile all kernels of an instruction-set level into the cache on disk."""
    import trinity_kernels

    with progress("compiling kernels") as show:
        trinity_kernels.warmup(loading.get("isa"), show)
    say("all kernels are compiled")
