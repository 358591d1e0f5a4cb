"""trinity schema: show which parts of a JSON schema are enforced."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Annotated

from trinity.cli import options
from trinity.cli.parameters import Argument, Exit
from trinity.cli.prompts import STDIN, given_text
from trinity.cli.terminal import json_line, put, say
from trinity.errors import InputError, about


def schema(
    file: Annotated[
        str, Argument("JSON text, or a file; - reads standard input.", metavar="SCHEMA")
    ],
    as_json: options.Json = False,
) -> None:
    """Show which keywords of a JSON schema are enforced, only notes, or refused.

    Definitions only count if they are referred to. The exit code is 1 if something is not enforced.
    """
    from trinity.grammar.grammar import Grammar
    from trinity.grammar.schema import read_schema

    usage = "give JSON text, the schema's file, or - for standard input"
    written = file == STDIN or file.lstrip().startswith("{")
    text = given_text(*((file, None) if written else (None, file)), what="schema", usage=usage)
    error = ""
    with nullcontext() if written else about(file):
        report = read_schema(text)
    if not report.refused:
        try:
            Grammar.json_schema(text)
        except InputError as refusal:  # about the whole schema, or a part of it
            error = str(refusal)
    if as_json:
        keywords = [
            {"pointer": word.path, "name": word.name, "state": word.state, "reason": word.reason}
            for word in report.keywords
        ]
        put(json_line({"keywords": keywords, "error": error or None}))
    else:
        for keyword in report.keywords:
            reason = f": {keyword.reason}" if keyword.reason else ""
            put(f"{keyword.state:<9} {keyword.path}{reason}")
    counts = Counter(keyword.state for keyword in report.keywords)
    if error:
        say(f"error: {error}")
    elif not as_json:
        notes = "1 note" if counts["note"] == 1 else f"{counts['note']} notes"
        say(f"{counts['enforced']} enforced, {notes}, {counts['refused']} refused")
    if error or report.refused:
        raise Exit(1)
