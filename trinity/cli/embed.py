"""trinity embed: vectors of texts."""

from __future__ import annotations

from typing import Annotated

import typer

from trinity.cli import options
from trinity.cli.loading import load_model, model_or_demo
from trinity.cli.terminal import json_line, put
from trinity.cli.texts import given_texts

POOLINGS = ("mean", "cls", "last")  # trinity.runtime.pooling.Pooling, without its import


@options.takes(loading=options.LOADING)
def embed(
    model: options.ModelOrDemo = None,
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="The texts; the lines of standard input if none is given."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read a text from each line of a file."),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            "--pooling", metavar="POOLING",
            help="What of a text's hidden states is the vector: mean of all, cls (the first) or "
            "last; what the model's file says if not given, mean where it says nothing.",
        ),
    ] = None,
    normalize: Annotated[
        bool,
        typer.Option("--normalize/--no-normalize", help="Give vectors the Euclidean length 1."),
    ] = True,
    *,
    loading: options.Given,
    as_json: options.Json = False,
) -> None:  # fmt: skip
    """Make a vector of each text: similar texts have vectors of a large scalar product."""
    if pooling is not None and pooling not in POOLINGS:
        raise typer.BadParameter(f"--pooling is {pooling!r:.40}; it must be mean, cls or last")
    given = given_texts(texts, file)
    path = model_or_demo(model)
    with load_model(path, **loading) as loaded:
        rows = loaded.embed(given, pooling, normalize)  # type: ignore[arg-type]
        counts = [len(loaded.tokenizer.encode(text, add_eos=True)) for text in given]
        where = path if loaded.weights is None else loaded.weights.path
    if as_json:
        vectors = [
            {"index": number, "tokens": count, "embedding": row.tolist()}
            for number, (count, row) in enumerate(zip(counts, rows, strict=True))
        ]
        size = rows.shape[1]
        put(json_line({"model": path, "path": where, "dimensions": size, "embeddings": vectors}))
    else:
        for row in rows:
            put(" ".join(f"{value:.8g}" for value in row))
