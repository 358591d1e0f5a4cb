"""trinity launch: start a client program with the settings for a server."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from typing import Annotated, NoReturn

from trinity.cli.parameters import Argument, BadParameter, Exit, Flag
from trinity.cli.terminal import put, say
from trinity.errors import InputError
from trinity.tools.launch import (
    NO_KEY,
    PROGRAMS,
    ModelServer,
    Program,
    ProgramSettings,
    chosen_model,
    served_models,
)


def launch(
    program: Annotated[
        str, Argument("claude, codex, opencode, qwen-code or aider.", metavar="PROGRAM")
    ],
    arguments: Annotated[
        list[str] | None, Argument("Arguments of the program, after --.", metavar="ARGUMENT")
    ] = None,
    run: Annotated[bool, Flag("Start the program instead of printing the command.")] = False,
    model: Annotated[
        str | None,
        Flag("The model; by default the server's first.", "--model", "-m", metavar="NAME"),
    ] = None,
    url: Annotated[str, Flag("The server's address.", metavar="URL")] = "http://127.0.0.1:8080",
    key: Annotated[
        str | None,
        Flag("The server's key; by default TRINITY_API_KEY.", "--api-key", metavar="KEY"),
    ] = None,
) -> None:
    """Print the command that starts a coding agent with a running server, or start it."""
    known = PROGRAMS.get(program)
    if known is None:
        raise BadParameter(f"PROGRAM is {program!r:.80}; it must be one of {', '.join(PROGRAMS)}")
    url = url.rstrip("/").removesuffix("/v1")
    if not url.startswith(("http://", "https://")):
        raise BadParameter(
            f"--url is {url!r:.80}; it must begin with http:// or https://, as in http://127.0.0.1:8080"
        )
    key = key or os.environ.get("TRINITY_API_KEY") or NO_KEY
    served = chosen_model(served_models(url, key), model)
    if served.context is not None and served.context < known.context:
        say(
            f"warning: {served.name} has a context of {served.context} tokens, and {program} needs "
            f"about {known.context}; start the server with --ctx {known.context}"
        )
    settings = known.settings(ModelServer(url, key, served))
    words = [known.command, *settings.arguments, *(arguments or ())]
    if run:
        start(known, settings, words)
    for name, value in settings.variables.items():
        put(f"export {name}={shlex.quote(value)}")
    put(shlex.join(words))


def start(program: Program, settings: ProgramSettings, words: list[str]) -> NoReturn:
    """Become the program. Raises: InputError if it is not installed."""
    path = shutil.which(program.command)
    if path is None:
        raise InputError(f"{program.command} is not installed; install it: {program.install}")
    environment = {**os.environ, **settings.variables}
    sys.stdout.flush()
    if os.name == "posix":
        os.execve(path, words, environment)
    raise Exit(subprocess.call([path, *words[1:]], env=environment))
