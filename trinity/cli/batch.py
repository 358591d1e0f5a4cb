"""trinity batch: complete a file of requests and write a file of responses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from trinity.cli import options
from trinity.cli.loading import model_or_chat_demo
from trinity.cli.parameters import Argument, Exit, Flag
from trinity.cli.ray_options import ray_replicas
from trinity.cli.serve import DEFAULTS, libraries
from trinity.cli.terminal import say


@options.takes(generation=DEFAULTS, loading=options.LOADING)
def batch(
    source: Annotated[
        Path,
        Argument(
            "Requests in the format of OpenAI's batches, one per line, or a Parquet file.",
            metavar="IN",
        ),
    ],
    out: Annotated[
        Path,
        Argument(
            "Responses, one per line; requests that have one already are skipped. In a folder, "
            "the file has the name of IN.",
            metavar="OUT",
        ),
    ],
    model: options.ModelOrDemo = None,
    at_once: Annotated[int, Flag("Number of requests that run at once.", min=1, max=256)] = 16,
    speech_model: Annotated[
        str | None, Flag("Whisper model for requests of speech.", metavar="MODEL")
    ] = None,
    ray: options.OnRay = False,
    replicas: options.Replicas = None,
    cores: options.Cores = None,
    ray_address: options.RayAddress = None,
    *,
    generation: options.Given,
    loading: options.Given,
) -> None:
    """Complete a file of requests, and continue where an earlier run stopped.

    Sampling options apply to requests that do not set them. Every request uses this model,
    even if it names another one. With --ray each replica runs --at-once requests. The exit code
    is 1 if responses are errors.
    """
    with libraries():
        from trinity.server.batches.batch import here, run_batch
    wanted = ray_replicas(ray, replicas, cores, ray_address)
    ref = model_or_chat_demo(model)
    total = at_once if wanted is None else at_once * wanted.count
    if out.is_dir():
        out /= f"{source.stem}.jsonl"
    given: Any = {
        "at_once": at_once, "loading": loading, "defaults": generation, "say": say,
        "speech_ref": speech_model,
    }  # fmt: skip
    if wanted is None:
        asking = here(ref, **given)
    else:
        from trinity.ray.batch import on_ray

        asking = on_ray(ref, wanted, **given)
    failed = run_batch(source, out, asking, at_once=total, say=say)
    if failed:
        say(f"{out}: {failed} responses are errors")
        raise Exit(1)
