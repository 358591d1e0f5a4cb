"""trinity embed: compute embeddings of texts."""

from __future__ import annotations

from typing import Annotated

from trinity.cli import options
from trinity.cli.loading import load_model, model_or_demo
from trinity.cli.parameters import Flag
from trinity.cli.terminal import json_line, put, say
from trinity.cli.texts import TextFile, Texts, given_texts
from trinity.options.option import declared
from trinity.server.settings import ServerOptions

POOLING = options.only(options.flagged(declared(ServerOptions)), "pooling")


@options.takes(loading=options.LOADING, pooled=POOLING)
def embed(
    model: options.ModelOrDemo = None,
    texts: Texts = None,
    file: TextFile = None,
    normalize: Annotated[
        bool | None,
        Flag(
            "Scale vectors to length 1, or do not; the default is the model's setting, or "
            "length 1 without one.",
            "--normalize/--no-normalize",
        ),
    ] = None,
    prompt: Annotated[str | None, Flag("Put this before each text.", metavar="TEXT")] = None,
    prompt_name: Annotated[
        str | None,
        Flag(
            "Put the model's prompt of this name before each text, such as query.", metavar="NAME"
        ),
    ] = None,
    truncate: Annotated[
        bool,
        Flag(
            "Truncate texts that are too long for the model, or end with an error.",
            "--truncate/--no-truncate",
        ),
    ] = True,
    *,
    loading: options.Given,
    pooled: options.Given,
    as_json: options.Json = False,
) -> None:
    """Compute an embedding of each text: similar texts have a large dot product."""
    given = given_texts(texts, file)
    path = model_or_demo(model)
    with load_model(path, **loading) as loaded:
        texts_read = loaded.embedder.read_texts(given, prompt, prompt_name, truncate=truncate)
        if texts_read.cut:
            say(f"warning: {loaded.embedder.cut_notice(texts_read.cut, len(given))}")
        rows = loaded.embedder.embed_texts(texts_read, pooled.get("pooling"), normalize)
        counts = [len(ids) for ids in texts_read.rows]
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
