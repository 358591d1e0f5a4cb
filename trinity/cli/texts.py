"""Texts of a command: arguments, or the lines of a file."""

from __future__ import annotations

from typing import Annotated

from trinity.cli.parameters import Argument, BadParameter, Flag
from trinity.cli.prompts import from_argument, given_text

Texts = Annotated[
    list[str] | None, Argument("The texts; the lines of standard input if none is given.")
]
TextFile = Annotated[
    str | None, Flag("Read a text from each line of a file.", "--file", "-f", metavar="FILE")
]


def given_texts(texts: list[str] | None, file: str | None) -> list[str]:
    """Return the texts, or the lines of ``file``, or of standard input if neither is given.

    Raises a usage error if both are given, or none; InputError for a file that cannot be read.
    """
    if texts and file is not None:
        raise BadParameter("texts are given twice; give them as arguments or with --file")
    if texts:
        return [from_argument(text, "text") for text in texts]
    usage = "give them as arguments, or one per line with --file or on a pipe"
    lines = given_text(None, file, what="text", usage=usage).splitlines()
    if not lines:
        raise BadParameter(f"there is no text; {usage}")
    return lines
