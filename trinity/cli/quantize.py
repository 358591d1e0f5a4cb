"""trinity quantize: write a GGUF model with its weights in smaller types."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

from trinity.cli import options
from trinity.cli.parameters import Argument, Flag
from trinity.cli.progress_bar import bar
from trinity.cli.terminal import escaped, put, say
from trinity.errors import InputError

if TYPE_CHECKING:
    from trinity.quantization import Quantization

# Copied from trinity.quantization, so that --help does not import the quantizers.
TYPES = (
    "Q2_K, Q3_K_S, Q3_K_M, Q3_K_L, Q4_0, Q4_1, Q4_K_S, Q4_K_M, Q5_0, Q5_1, Q5_K_S, Q5_K_M, Q6_K, "
    "Q8_0, IQ4_NL, IQ4_XS, MXFP4, Q1_0, Q2_0, TQ1_0, TQ2_0, I2_S (ternary models), F16, "
    "BF16, F32"
)


@options.takes(loading=options.only(options.LOADING, "threads"))
def quantize(
    source: Annotated[str, Argument(f"{options.MODEL_HELP}.", metavar="IN")],
    out: Annotated[str, Argument("The GGUF file to write.", metavar="OUT")],
    type: Annotated[str, Argument(f"{TYPES}.", metavar="TYPE")],
    token_embedding_type: Annotated[
        str | None, Flag("Type of token_embd.weight.", metavar="TYPE")
    ] = None,
    output_tensor_type: Annotated[
        str | None, Flag("Type of output.weight.", metavar="TYPE")
    ] = None,
    tensor_type: Annotated[
        list[str] | None,
        Flag(
            "Type of tensors whose names match this regular expression; may be repeated, the "
            "first match counts.",
            metavar="PATTERN=TYPE",
        ),
    ] = None,
    pure: Annotated[bool, Flag("Use one type for all matrices instead of a mix.")] = False,
    imatrix: Annotated[
        str | None, Flag("An importance matrix of this model.", metavar="FILE")
    ] = None,
    allow_requantize: Annotated[
        bool, Flag("Requantize weights that are quantized already; it loses quality.")
    ] = False,
    force: options.Force = False,
    dry_run: Annotated[bool, Flag("Only show the type that each tensor would get.")] = False,
    *,
    loading: options.Given,
) -> None:
    """Quantize a GGUF model; the choice of types follows llama.cpp."""
    from trinity.quantization import quantize as run

    patterns = check_types(type, token_embedding_type, output_tensor_type, tensor_type or ())
    with nullcontext(silent) if dry_run else bar(f"quantizing {source}") as show:
        done = run(
            source,
            out,
            type,
            token_embedding_type=token_embedding_type,
            output_tensor_type=output_tensor_type,
            tensor_types=patterns,
            pure=pure,
            imatrix=imatrix,
            allow_requantize=allow_requantize,
            overwrite=force,
            dry_run=dry_run,
            threads=loading.get("threads"),
            progress=show,
            notice=say,
        )
    for note in done.notes:
        say(f"note: {note}")
    if dry_run:
        show_table(done)
        put(summary(done, dry_run))
    else:
        say(summary(done, dry_run))


def silent(done: int, total: int, name: str) -> None:
    """Ignore progress."""


def check_types(
    type: str, token_embedding: str | None, output: str | None, given: Sequence[str]
) -> list[tuple[str, str]]:
    """Return patterns of tensor names with their types. Raises BadParameter for an unknown type."""
    from trinity.quantization.mixes import find_mix, find_tensor_type

    with options.wrong_usage():
        find_mix(type)
        if token_embedding is not None:
            find_tensor_type(token_embedding, "--token-embedding-type")
        if output is not None:
            find_tensor_type(output, "--output-tensor-type")
        patterns = [split_pattern(text) for text in given]
        for _, name in patterns:
            find_tensor_type(name, "--tensor-type")
    return patterns


def split_pattern(given: str) -> tuple[str, str]:
    """Split PATTERN=TYPE. Raises InputError."""
    pattern, equals, type_name = given.rpartition("=")
    if not (pattern and equals and type_name):
        raise InputError(f"--tensor-type {given}: give PATTERN=TYPE, such as attn_v=Q8_0")
    return pattern, type_name


def summary(done: Quantization, dry_run: bool) -> str:
    """Return one line: the file, its size before and after, bits per weight."""
    became = "would become" if dry_run else "became"
    return (
        f"{done.path}: {done.type}, {done.architecture}, {len(done.tensors)} tensors; "
        f"{done.source_bytes / 1e6:,.1f} MB {became} {done.num_bytes / 1e6:,.1f} MB, "
        f"{done.bits_per_weight:.2f} bits per weight"
    )


def show_table(done: Quantization) -> None:
    """Print each tensor with its old and new type, then the size of each type."""
    rows = [
        (escaped(t.name), " x ".join(map(str, t.shape)), t.source_type, t.type, f"{t.nbytes:,}")
        for t in done.tensors
    ]
    totals: dict[str, list[int]] = {}
    for tensor in done.tensors:
        totals.setdefault(tensor.type, []).append(tensor.nbytes)
    print_columns([("tensor", "shape", "from", "to", "bytes"), *rows])
    put()
    by_size = sorted(totals.items(), key=lambda item: -sum(item[1]))
    print_columns(
        [("type", "tensors", "bytes")]
        + [(name, str(len(sizes)), f"{sum(sizes):,}") for name, sizes in by_size]
    )
    put()


def print_columns(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in aligned columns; the last column is of numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        *texts, number = row
        cells = [text.ljust(width) for text, width in zip(texts, widths, strict=False)]
        put("  ".join([*cells, number.rjust(widths[-1])]))
