"""trinity bench: how fast a model runs here, and how near to the memory's limit."""

from __future__ import annotations

import json
import math
from time import perf_counter
from typing import Annotated, cast

import typer

from trinity.cli import options
from trinity.cli.loading import load_model, progress


def bench(
    model: options.ModelPath,
    prompt_tokens: Annotated[
        int, typer.Option("--prompt-tokens", "-p", help="Tokens of the prompt test; 0 skips it.")
    ] = 512,
    generated_tokens: Annotated[
        int, typer.Option("--generated-tokens", "-n", help="Tokens of the generation test.")
    ] = 128,
    threads: options.Threads = None,
    rounds: Annotated[int, typer.Option("--rounds", "-r", help="Rounds of each test.")] = 3,
    ctx: options.Ctx = None,
    kv_type: options.KvType = "f16",
    isa: options.Isa = None,
    as_json: options.Json = False,
) -> None:
    """Measure prompt and generation speed as llama-bench does, and the read bandwidth beside it."""
    from trinity.model import open_weights
    from trinity.tools.bench import MeasurableEngine, markdown, run_bench
    from trinity_kernels.bandwidth import read_bandwidth

    provider = open_weights(model)
    tensors = [provider.tensor(name) for name in provider.tensor_names()]
    size = sum(t.nbytes for t in tensors)
    parameters = sum(math.prod(t.shape) for t in tensors)
    del tensors
    provider.close()
    needed = max(prompt_tokens, generated_tokens, 1)
    started = perf_counter()
    with load_model(model, threads=threads, ctx=ctx or needed, kv_type=kv_type, isa=isa) as loaded:
        load_seconds = perf_counter() - started
        name = loaded.config.name or loaded.config.architecture
        with progress("measuring") as show:
            report = run_bench(
                cast(MeasurableEngine, loaded.engine),
                prompt_tokens=prompt_tokens,
                generated_tokens=generated_tokens,
                rounds=rounds,
                read_bandwidth=read_bandwidth,
                progress=show,
            )
    if as_json:
        about = {"model": name, "path": model, "model_bytes": size, "parameters": parameters}
        figures = {**about, "load_seconds": load_seconds, **report.as_object()}
        print(json.dumps(figures, ensure_ascii=False))
    else:
        print(markdown(report, name=name, size=size, parameters=parameters))
        print(f"loaded in {load_seconds:.2f} s")
