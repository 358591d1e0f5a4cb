"""The command line: one small module per subcommand, listed in commands.py and nowhere else."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from trinity.cli.commands import COMMANDS, command_of
from trinity.cli.parameters import BadParameter, Exit
from trinity.cli.plain_words import read
from trinity.cli.terminal import finish, say, take_streams, unwritable
from trinity.errors import TrinityError


def _run(words: list[str]) -> None:
    """Run the command of the words. Raises Exit, or SystemExit where typer runs it."""
    name = words[0] if words and words[0] in COMMANDS else None
    wrong = None
    if name is not None and "_TRINITY_COMPLETE" not in os.environ:
        command = command_of(name)
        try:
            values = read(command, words[1:])
            if values is not None:
                command(**values)
                return
        except BadParameter as error:
            wrong = error
    from trinity.cli.application import application

    application(tuple(COMMANDS) if name is None else (name,), wrong)(prog_name="trinity")


def main() -> NoReturn:
    """Run the command line of this process; never returns."""
    take_streams()
    streams = sys.stdout, sys.stderr
    status = 0
    try:
        _run(sys.argv[1:])
    except Exit as ended:
        status = ended.code
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except TrinityError as error:  # from printing --version
        say(f"error: {error}")
        status = 1
    except OSError as error:
        if error.filename is None:  # from printing --help
            say(f"error: {unwritable(error)}")
        else:  # from --install-completion
            say(
                f"error: {error.filename}: cannot be written ({error.strerror}); "
                "--show-completion prints the lines for your shell instead"
            )
        status = 1
    if sys.stdout is not streams[0]:  # typer closes the stream if its reader has gone
        sys.stdout, sys.stderr = streams
        status = 0
    sys.exit(finish(status))
