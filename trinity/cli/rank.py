"""trinity rank: order texts by their relevance to a query."""

from __future__ import annotations

from typing import Annotated

from trinity.cli import options
from trinity.cli.loading import load_model
from trinity.cli.parameters import Argument, Flag
from trinity.cli.prompts import from_argument
from trinity.cli.terminal import json_line, put
from trinity.cli.texts import TextFile, Texts, given_texts
from trinity.errors import about


@options.takes(loading=options.LOADING)
def rank(
    model: Annotated[str, Flag(f"{options.MODEL_HELP}.", "--model", "-m", metavar="MODEL")],
    query: Annotated[str, Argument("The query.")],
    texts: Texts = None,
    file: TextFile = None,
    top: Annotated[int | None, Flag("Print at most this many texts.", min=1)] = None,
    *,
    loading: options.Given,
    as_json: options.Json = False,
) -> None:
    """Order texts by their relevance to a query, as scored by a reranker, best first."""
    query, given = from_argument(query, "query"), given_texts(texts, file)
    with load_model(model, **loading) as loaded, about(model):
        scores = loaded.rank(query, given)
        where = model if loaded.weights is None else loaded.weights.path
    order = (-scores).argsort(kind="stable")[:top]
    if as_json:
        results = [{"index": int(i), "score": float(scores[i]), "text": given[i]} for i in order]
        put(json_line({"model": model, "path": where, "query": query, "results": results}))
    else:
        for i in order:
            put(f"{scores[i]:>9.4f}  {given[i]}")
