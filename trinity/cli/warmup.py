"""trinity warmup: compile the kernels ahead of their first use."""

from __future__ import annotations

from typing import Annotated

from trinity.cli import options
from trinity.cli.loading import load_model, progress
from trinity.cli.parameters import BadParameter, Flag
from trinity.cli.terminal import say


@options.takes(loading=options.LOADING)
def warmup(
    model: Annotated[
        str | None,
        Flag(
            f"{options.MODEL_HELP}; compile only what it needs, which is faster.",
            "--model",
            "-m",
            metavar="MODEL",
        ),
    ] = None,
    *,
    loading: options.Given,
) -> None:
    """Compile kernels into the cache on disk, so that later runs start immediately.

    Without --model, all kernels of an instruction-set level are compiled; the other options
    describe how the model is loaded.
    """
    if model is not None:
        with load_model(model, **loading) as loaded:
            if loaded.encodes:
                loaded.embed([[0]])
            else:
                loaded.generate([0], max_tokens=2, ignore_eos=True)
        say(f"{model}: all kernels that it needs are compiled")
        return
    for opt in options.LOADING:
        if opt.name in loading and opt.name != "isa":
            raise BadParameter(
                f"{opt.option.flags[0]} needs --model: give it, or remove the option"
            )
    import trinity_kernels

    with progress("compiling kernels") as show:
        trinity_kernels.warmup(loading.get("isa"), show)
    say("all kernels are compiled")
