"""How a command ends: 0; 1 with the message of a TrinityError; 2 for wrong usage; 130 on Ctrl-C."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import ParamSpec

import typer

from trinity.errors import TrinityError
from trinity_kernels.isa import IsaError

INTERRUPTED = 130
P = ParamSpec("P")


def explained(command: Callable[P, None]) -> Callable[P, None]:
    """``command`` with its errors turned into a line on standard error and an exit code."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except KeyboardInterrupt:
            print(file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            leave_pipe()
            raise typer.Exit from None
        except (TrinityError, IsaError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        except MemoryError as error:  # of what asks for little at a time, such as a text
            print(f"error: out of memory {error}".rstrip(), file=sys.stderr)
            raise typer.Exit(1) from None

    return run


def leave_pipe() -> None:
    """Send what is still buffered nowhere: the reader of our output has had enough."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for output in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # not a real file in some hosts
            try:
                output.flush()
            except BrokenPipeError:
                os.dup2(nowhere, output.fileno())
    os.close(nowhere)
