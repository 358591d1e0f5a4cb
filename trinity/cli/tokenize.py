"""trinity tokenize: the token ids of a text."""

from __future__ import annotations

from typing import Annotated

from trinity.cli import options
from trinity.cli.loading import model_or_demo
from trinity.cli.parameters import Argument, Flag
from trinity.cli.prompts import given_text, one_of
from trinity.cli.terminal import json_line, put, say


@options.takes(reading=options.only(options.GENERATION, "add_bos", "parse_special"))
def tokenize(
    model: options.ModelOrDemo = None,
    text: Annotated[
        str | None, Argument("The text; standard input if it is - or not given.")
    ] = None,
    flagged: Annotated[
        str | None, Flag("The text, as an option.", "--prompt", "-p", metavar="TEXT")
    ] = None,
    file: Annotated[
        str | None, Flag("Read the text from a file.", "--file", "-f", metavar="FILE")
    ] = None,
    only_ids: Annotated[bool, Flag("Print only the ids, in one line.", "--ids")] = False,
    as_json: options.Json = False,
    *,
    reading: options.Given,
) -> None:
    """Show how a text is tokenized; the model file needs no weights."""
    from trinity.loading import load_tokenizer

    text = one_of(text, flagged, "text")
    text = given_text(text, file, what="text", usage="give it as an argument, --file or on a pipe")
    name = model_or_demo(model)
    tokenizer = load_tokenizer(name, notice=say)
    ids = tokenizer.encode(text, add_eos=reading.get("add_bos", True), **reading)
    if as_json:
        tokens = [tokenizer.token_text(i) for i in ids]
        put(json_line({"model": name, "ids": ids, "tokens": tokens, "count": len(ids)}))
    elif only_ids:
        put(" ".join(map(str, ids)))
    else:
        for i in ids:
            put(f"{i:>7}  {json_line(tokenizer.token_text(i))}")
