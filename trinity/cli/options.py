"""Options that several commands share: their names, help texts and defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trinity.runtime.sampling_params import SamplingParams

DEFAULTS = SamplingParams()

ModelPath = Annotated[
    str, typer.Option("--model", "-m", metavar="FILE", help="The model, a GGUF file.")
]
ModelOrDemo = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="FILE", help="The model, a GGUF file; the demo model if not given."
    ),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", "-t", help="Threads; the physical cores if not given."),
]
Ctx = Annotated[
    int | None,
    typer.Option(
        "--ctx", "-c", help="Context length in tokens; the model's own, at most 4096, if not given."
    ),
]
KvType = Annotated[str, typer.Option("--kv-type", help="Type of the KV cache: f16 or f32.")]
Isa = Annotated[
    str | None,
    typer.Option("--isa", help="Instruction-set level; the best of this CPU if not given."),
]
I2SLayout = Annotated[
    str,
    typer.Option("--i2s-layout", help="Codes of I2_S: x86, or arm if quantized on ARM."),
]
TLConfig = Annotated[
    Path | None,
    typer.Option("--tl-config", help="kernel_config.ini that a TL1 or TL2 file was made with."),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        "-n",
        help="Most tokens to generate; until the context is full if not given.",
    ),
]
Temperature = Annotated[
    float, typer.Option("--temperature", "--temp", help="Randomness; 0 takes the best token.")
]
TopK = Annotated[int, typer.Option("--top-k", help="Draw from the k best tokens; 0 from all.")]
TopP = Annotated[float, typer.Option("--top-p", help="Draw from this much probability; 1 is all.")]
MinP = Annotated[
    float, typer.Option("--min-p", help="Least probability, relative to the best token's.")
]
RepetitionPenalty = Annotated[
    float,
    typer.Option("--repetition-penalty", "--repeat-penalty", help="1 is none, 1.1 is usual."),
]
FrequencyPenalty = Annotated[
    float, typer.Option("--frequency-penalty", help="Taken from a logit per occurrence.")
]
PresencePenalty = Annotated[
    float, typer.Option("--presence-penalty", help="Taken from the logit of a token that occurred.")
]
PenaltyLastN = Annotated[
    int,
    typer.Option(
        "--penalty-last-n", "--repeat-last-n", help="Tokens the penalties look at; -1 is all."
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", "-s", help="Same seed, same text; random if not given.")
]
Stop = Annotated[
    list[str] | None,
    typer.Option("--stop", metavar="TEXT", help="End before this text; may be repeated."),
]
Speculate = Annotated[
    bool,
    typer.Option(
        "--speculate/--no-speculate",
        help="Guess tokens of text that repeats itself: faster, and the same text.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
