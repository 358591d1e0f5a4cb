"""trinity bench: measure speed, and compare it with the memory's bandwidth."""

from __future__ import annotations

import math
import os
from contextlib import closing
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, cast

from trinity.cli import options
from trinity.cli.inspect_tables import printable
from trinity.cli.loading import load_model, model_or_demo, progress
from trinity.cli.parameters import BadParameter, Flag
from trinity.cli.terminal import json_line, put, say
from trinity.cli.transcribe import loaded as loaded_speech

if TYPE_CHECKING:
    from trinity.tools.bench import Plan, Report
    from trinity.tools.bench_report import Measured


def _numbers(help: str, *flags: str) -> Flag:
    """Declare an option that may be repeated; each value is a test of its own."""
    return Flag(help, *flags, metavar="N[,N]...")


@options.takes(loading=options.without(options.LOADING, "isa"))
def bench(
    model: Annotated[
        list[str] | None,
        Flag(
            f"{options.MODEL_HELP}; may be several; the demo model if not given.",
            "--model",
            "-m",
            metavar="MODEL",
        ),
    ] = None,
    prompt_tokens: Annotated[
        list[str] | None,
        _numbers(
            "Tokens of the prompt test; 0 skips it. 512 if not given.",
            "--prompt-tokens",
            "-p",
            "--n-prompt",
        ),
    ] = None,
    generated_tokens: Annotated[
        list[str] | None,
        _numbers(
            "Tokens of the generation test; 0 skips it. 128 if not given.",
            "--generated-tokens",
            "-n",
            "--n-gen",
        ),
    ] = None,
    batch: Annotated[
        list[str] | None,
        _numbers("Sequences generated together, 1 to 16. 1 if not given.", "--batch", "-b"),
    ] = None,
    depth: Annotated[
        list[str] | None,
        _numbers(
            "Positions in the cache before each test. 0 if not given.", "--depth", "-d", "--n-depth"
        ),
    ] = None,
    rounds: Annotated[
        int, Flag("Rounds of each test.", "--rounds", "-r", "--repetitions", min=1)
    ] = 3,
    *,
    loading: options.Given,
    isa: Annotated[
        list[str] | None,
        Flag("Instruction-set level; may be repeated. The best of this CPU if not given."),
    ] = None,
    profile: Annotated[bool, Flag("Show the time of each operation of a step.")] = False,
    speculate: Annotated[bool, Flag("Also measure repetitive text, with speculation.")] = False,
    as_json: options.Json = False,
) -> None:
    """Measure prompt and generation speed as llama-bench does, and the read bandwidth.

    Each value of a comma-separated or repeated option is a separate test.
    """
    from trinity.tools.bench import Plan
    from trinity.tools.bench_report import as_object, markdown

    plan = Plan(
        options.integers("--prompt-tokens", prompt_tokens, 0, 512),
        options.integers("--generated-tokens", generated_tokens, 0, 128),
        options.integers("--batch", batch, 1, 1),
        options.integers("--depth", depth, 0, 0),
        rounds,
        profile,
        speculate,
    )
    context = loading.get("context_length") or plan.context_length
    with options.wrong_usage():
        plan.check(context)
        for name in isa or ():
            options.check_level("--isa", name)
    levels: list[str | None] = [*isa] if isa else [None]
    # All files are opened before anything is measured, so that a wrong name fails immediately.
    models = [measured(name) for name in model or [model_or_demo(None)]]
    if any(target.speech for target in models):
        check_for_speech(loading)
    measurements: list[tuple[Measured, list[Report]]] = []
    for target in models:
        measurements.append((target, []))
        for level in levels:
            if target.speech:
                made = speech_report(target, plan, level, loading)
            else:
                made = report(target, plan, level, {**loading, "context_length": context})
            if measurements[0][1]:  # the peak of the process belongs to its first load
                made = replace(made, peak_rss=None)
            measurements[-1][1].append(made)
    if as_json:
        put(json_line(as_object(measurements)))
    else:
        put(markdown(measurements), keep="\n")


def measured(name: str) -> Measured:
    """Return what is known of a model before it is loaded."""
    from trinity.formats.other_models import is_speech
    from trinity.formats.speech_config import speech_config
    from trinity.loading import open_weights
    from trinity.tools.active import active_parameters
    from trinity.tools.bench_report import Measured
    from trinity.tools.file_type import file_type

    with closing(open_weights(name, notice=say)) as provider:
        tensors = [provider.tensor(each) for each in provider.tensor_names()]
        parameters = sum(math.prod(t.shape) for t in tensors)
        if speech := is_speech(provider.metadata):
            speech_config(provider.metadata, provider.path)  # raises an error if it is not a model
            title, active = provider.metadata.get("general.name") or "whisper", parameters
        else:
            config = provider.config
            title = config.name or config.architecture
            active = active_parameters(((t.name, t.shape) for t in tensors), config.experts)
        return Measured(
            model=name,
            name=printable(str(title)),
            path=provider.path,
            type=printable(file_type(provider) or ""),
            nbytes=sum(map(os.path.getsize, provider.paths)),
            tensor_bytes=sum(t.nbytes for t in tensors),
            parameters=parameters,
            active=active,
            speech=speech,
        )


def check_for_speech(loading: options.Given) -> None:
    """Raise BadParameter for an option that speech models do not have."""
    for declared in options.LOADING:
        if declared.name in loading and declared.name not in ("threads", "quantize"):
            raise BadParameter(
                f"{declared.option.flags[0]} does not apply to speech models, and one of the "
                "models is one: remove the option"
            )


def report(target: Measured, plan: Plan, level: str | None, loading: options.Given) -> Report:
    """Load a model at an instruction-set level and measure it."""
    from trinity.tools.bench import MeasurableEngine, run_bench
    from trinity_kernels.bandwidth import read_bandwidth

    started = perf_counter()
    with load_model(target.model, isa=level, **loading) as loaded:
        load_seconds = perf_counter() - started
        with progress("measuring") as show:
            result = run_bench(
                cast(MeasurableEngine, loaded.engine),
                plan,
                read_bandwidth=read_bandwidth,
                progress=show,
            )
    return replace(result, load_seconds=load_seconds)


def speech_report(
    target: Measured, plan: Plan, level: str | None, loading: options.Given
) -> Report:
    """Load a speech model at an instruction-set level and measure it."""
    from trinity.tools.speech_bench import run_speech_bench
    from trinity_kernels.bandwidth import read_bandwidth

    started = perf_counter()
    with loaded_speech(target.model, isa=level, **loading) as model:
        load_seconds = perf_counter() - started
        with progress("measuring") as show:
            result = run_speech_bench(model, plan, read_bandwidth=read_bandwidth, progress=show)
    return replace(result, load_seconds=load_seconds)
