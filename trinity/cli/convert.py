"""trinity convert: convert a Hugging Face directory to one GGUF file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from trinity.cli import options
from trinity.cli.parameters import Argument, BadParameter, Flag
from trinity.cli.progress_bar import bar
from trinity.cli.quantize import summary
from trinity.cli.terminal import say

if TYPE_CHECKING:
    from trinity.tools.convert import Conversion

# Copied from trinity.tools.convert, so that --help does not import the conversion.
OUTTYPES = ("i2_s", "tq1_0", "tq2_0", "f16", "bf16", "f32", "q8_0")


@options.takes(loading=options.only(options.LOADING, "weight_scale"))
def convert(
    source: Annotated[
        str,
        Argument(
            "A directory with config.json, safetensors and tokenizer, or another model.",
            metavar="SOURCE",
        ),
    ],
    out: Annotated[str, Argument("The GGUF file to write.", metavar="OUT")],
    loading: options.Given,
    outtype: Annotated[
        str | None,
        Flag(
            f"Type of the weights: {', '.join(OUTTYPES)}, or another of `trinity quantize`, "
            "such as Q4_K_M. If not given, one that keeps their values.",
            "--type",
            "--outtype",
            metavar="TYPE",
        ),
    ] = None,
    adapted: Annotated[
        str | None,
        Flag(
            "SOURCE is a LoRA adapter of PEFT or mlx-lm for this model.", "--lora", metavar="MODEL"
        ),
    ] = None,
    allow_requantize: Annotated[
        bool, Flag("Requantize weights whose format GGUF lacks; it loses quality.")
    ] = False,
    force: options.Force = False,
) -> None:
    """Convert a model of Hugging Face's format, or a LoRA adapter, to GGUF."""
    from trinity.tools.convert import convert as run
    from trinity.tools.convert import convert_adapter

    if adapted is not None:
        if outtype is not None or loading or allow_requantize:
            raise BadParameter("--lora keeps the adapter's types; remove --type")
        show_conversion(convert_adapter(source, out, adapted, overwrite=force, notice=say))
        return
    if outtype is not None and outtype.lower() not in OUTTYPES:
        if loading:
            raise BadParameter(f"--weight-scale needs a --type of {', '.join(OUTTYPES)}")
        quantized(source, out, outtype, allow_requantize, force)
        return
    with bar(f"converting {source}") as show:
        made = run(
            source,
            out,
            None if outtype is None else outtype.lower(),
            weight_scale=loading.get("weight_scale"),
            allow_requantize=allow_requantize,
            overwrite=force,
            progress=show,
            notice=say,
        )
    show_conversion(made)


def quantized(source: str, out: str, type: str, allow_requantize: bool, force: bool) -> None:
    """Convert and quantize in one step, without an intermediate file."""
    from trinity.quantization import quantize

    with options.wrong_usage():
        options.check_mix("--type", type)
    with bar(f"converting {source}") as show:
        done = quantize(
            source, out, type, allow_requantize=allow_requantize, overwrite=force, progress=show,
            notice=say,
        )  # fmt: skip
    for note in done.notes:
        say(f"note: {note}")
    say(summary(done, dry_run=False))


def show_conversion(made: Conversion) -> None:
    """Print what was written, to standard error."""
    for note in made.notes:
        say(f"note: {note}")
    say(
        f"{made.path}: {made.architecture}, {made.num_tensors} tensors, "
        f"{made.num_bytes / 1e6:,.1f} MB"
    )
