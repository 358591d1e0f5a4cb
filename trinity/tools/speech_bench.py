"""Measure the speed of a Whisper model: windows of audio, and tokens of text.

"enc30s" encodes a window of 30 s and computes the keys and values for the decoder; its tokens are
the encoder's positions. "tg128" computes 128 random tokens one by one in the decoder; "b5" does so
for 5 texts at once, as beam search with 5 beams does.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

from trinity.errors import InputError
from trinity.options.checks import check_integer
from trinity.speech.decoder import SpeechDecoder
from trinity.speech.encoder import SpeechEncoder
from trinity.speech.model import SpeechModel
from trinity.speech.tokens import SECONDS
from trinity.tools.bench import Measurement, Plan, Progress, Report
from trinity.tools.machine import anonymous_rss, peak_rss
from trinity_kernels.team import Team


def run_speech_bench(
    model: SpeechModel,
    plan: Plan,
    *,
    read_bandwidth: Callable[[int], float] | None = None,
    progress: Progress = lambda line: None,
) -> Report:
    """Measure a model that nothing else uses.

    A window is encoded if the plan has a prompt, of any length. Raises InputError for tests that
    such a model does not support.
    """
    check(model, plan)
    positions = model.config.encoder.positions
    seconds = positions * SECONDS
    tests: list[tuple[str, int, int]] = []
    if any(plan.prompt_tokens):
        tests.append((f"enc{seconds:g}s", 0, 1))
    for count in filter(None, plan.generated_tokens):
        for batch in plan.batches:
            tests.append((f"tg{count}" + (f" b{batch}" if batch > 1 else ""), count, batch))
    measurements = []
    with model.parts() as (encoder, decoder, team):
        progress("warm-up")
        encoding(encoder, team, model)  # includes the keys and values for the decoder
        for name, count, batch in tests:
            if count:
                progress(f"{name}: warm-up")
                decoding(decoder, team, model, count, batch)
            rounds = []
            for number in range(plan.rounds):
                progress(f"{name}: round {number + 1} of {plan.rounds}")
                if count:
                    rounds.append(decoding(decoder, team, model, count, batch))
                else:
                    rounds.append(encoding(encoder, team, model))
            measurements.append(
                Measurement(name, count * batch or positions, tuple(rounds), batch,
                            audio_seconds=None if count else seconds)
            )  # fmt: skip
    memory = peak_rss(), anonymous_rss()
    bandwidth = None
    if read_bandwidth is not None:
        progress("measuring the read bandwidth")
        bandwidth = read_bandwidth(model.threads)
    return Report(tuple(measurements), model.threads, model.isa, bandwidth, *memory)


def check(model: SpeechModel, plan: Plan) -> None:
    """Raise InputError for tests that a speech model does not support."""
    for option, given in (
        ("--depth", any(plan.depths)),
        ("--speculate", plan.speculate),
        ("--profile", plan.profile),
    ):
        if given:
            raise InputError(
                f"{model.path}: a speech model is measured by windows of audio and by tokens of "
                f"text: remove {option}"
            )
    for count in plan.generated_tokens:
        check_integer("generated_tokens", count, low=0, high=model.config.decoder.positions)


def encoding(encoder: SpeechEncoder, team: Team, model: SpeechModel) -> float:
    """Return the seconds to encode a window of noise."""
    config = model.config
    shape = config.frames, config.bands
    features = np.random.default_rng(0).standard_normal(shape, np.float32)
    started = perf_counter()
    encoder.run(team, features)
    return perf_counter() - started


def decoding(
    decoder: SpeechDecoder, team: Team, model: SpeechModel, count: int, batch: int
) -> float:
    """Return the seconds to compute ``count`` tokens one by one, in each of ``batch`` texts."""
    draws = np.random.default_rng(0)
    steps = draws.integers(0, model.config.vocab_size, (count, batch)).tolist()
    texts, wanted = [decoder.begin() for _ in range(batch)], range(batch)
    started = perf_counter()
    for step in steps:
        decoder.run(team, list(zip(step, texts, strict=True)), wanted)
    return perf_counter() - started
