"""trinity bench: how fast a model runs here, and how near to the memory's limit."""

from __future__ import annotations

import math
from dataclasses import replace
from time import perf_counter
from typing import Annotated, cast

import typer

from trinity.cli import options
from trinity.cli.inspect_tables import printable
from trinity.cli.loading import load_model, model_or_demo, progress
from trinity.cli.terminal import json_line, put, say


@options.takes(loading=options.without(options.LOADING, "isa"))
def bench(
    model: options.ModelOrDemo = None,
    prompt_tokens: Annotated[
        int, typer.Option("--prompt-tokens", "-p", help="Tokens of the prompt test; 0 skips it.")
    ] = 512,
    generated_tokens: Annotated[
        int,
        typer.Option("--generated-tokens", "-n", help="Tokens of the generation test; 0 skips it."),
    ] = 128,
    batch: Annotated[
        list[int] | None,
        typer.Option(
            "--batch", "-b", help="Sequences generated together, 1 to 16; may be repeated."
        ),
    ] = None,
    depth: Annotated[
        list[int] | None,
        typer.Option(
            "--depth", "-d", help="Positions in the cache before each test; may be repeated."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", "-r", help="Rounds of each test.")] = 3,
    *,
    loading: options.Given,
    isa: Annotated[
        list[str] | None,
        typer.Option(
            "--isa",
            help="Instruction-set level; may be repeated. The best of this CPU if not given.",
        ),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show the time of each operation of a step.")
    ] = False,
    speculate: Annotated[
        bool, typer.Option("--speculate", help="Also generate repeating text with speculation.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Measure prompt and generation speed as llama-bench does, and the read bandwidth beside it."""
    from trinity.loading import open_weights
    from trinity.tools.active import active_parameters
    from trinity.tools.bench import MeasurableEngine, Plan, Report, run_bench
    from trinity.tools.bench_report import Measured, as_object, markdown
    from trinity_kernels.bandwidth import read_bandwidth

    path = model_or_demo(model)
    provider = open_weights(path, notice=say)
    tensors = [provider.tensor(name) for name in provider.tensor_names()]
    size = sum(t.nbytes for t in tensors)
    parameters = sum(math.prod(t.shape) for t in tensors)
    active = active_parameters(((t.name, t.shape) for t in tensors), provider.config.experts)
    del tensors
    provider.close()
    plan = Plan(
        prompt_tokens, generated_tokens, tuple(batch or [1]), tuple(depth or [0]), rounds, profile,
        speculate,
    )  # fmt: skip
    context = loading.pop("context_length", None) or plan.context_length
    plan.check(context)
    reports: list[Report] = []
    levels: list[str | None] = [*isa] if isa else [None]
    for level in levels:
        started = perf_counter()
        with load_model(path, context_length=context, isa=level, **loading) as loaded:
            load_seconds = perf_counter() - started
            name = loaded.config.name or loaded.config.architecture
            measured = Measured(printable(name), path, size, parameters, active)
            with progress("measuring") as show:
                report = run_bench(
                    cast(MeasurableEngine, loaded.engine),
                    plan,
                    read_bandwidth=read_bandwidth,
                    progress=show,
                )
        # The process's peak belongs to the first level alone: then the bandwidth was measured.
        peak = None if reports else report.peak_rss
        reports.append(replace(report, load_seconds=load_seconds, peak_rss=peak))
    if as_json:
        put(json_line(as_object(measured, reports)))
    else:
        put(markdown(measured, reports), keep="\n")
