"""The subcommands, and the exit codes with which they end.

Exit codes: 0; 1 with the message of a TrinityError; 2 for wrong usage; 130 on Ctrl-C.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from trinity.cli.parameters import Exit
from trinity.cli.terminal import put_raw, say
from trinity.errors import TrinityError
from trinity.processes.command_line import INTERRUPTED
from trinity_kernels.isa import IsaError

P = ParamSpec("P")
# Each command's module and function.
COMMANDS: dict[str, tuple[str, str]] = {
    "generate": ("generate", "generate"),
    "chat": ("chat", "chat"),
    "serve": ("serve", "serve"),
    "launch": ("launch", "launch"),
    "batch": ("batch", "batch"),
    "pull": ("pull", "pull"),
    "list": ("listing", "list_models"),
    "rm": ("remove", "remove"),
    "embed": ("embed", "embed"),
    "rank": ("rank", "rank"),
    "inspect": ("inspect", "inspect"),
    "tokenize": ("tokenize", "tokenize"),
    "transcribe": ("transcribe", "transcribe"),
    "schema": ("schema", "schema"),
    "convert": ("convert", "convert"),
    "quantize": ("quantize", "quantize"),
    "perplexity": ("perplexity", "perplexity"),
    "imatrix": ("imatrix", "imatrix"),
    "recommend": ("recommend", "recommend"),
    "bench": ("bench", "bench"),
    "warmup": ("warmup", "warmup"),
    "selftest": ("selftest", "selftest"),
    "doctor": ("doctor", "doctor"),
}


def command_of(name: str) -> Callable[..., None]:
    """The function of a command, whose module is imported for it."""
    module, function = COMMANDS[name]
    command = getattr(importlib.import_module(f"trinity.cli.{module}"), function)
    return explained(command)


def explained(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap ``command``: errors become a line on standard error and an exit code."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            put_raw("", flush=True)
        except KeyboardInterrupt:
            say()
            raise Exit(INTERRUPTED) from None
        except BrokenPipeError:  # the reader of our output has closed it
            raise Exit from None
        except (TrinityError, IsaError, OSError) as error:
            say(f"error: {error}")
            raise Exit(1) from None
        # raised by an operation that needs little memory at a time, such as one on a text
        except MemoryError as error:
            say(f"error: out of memory {error}".rstrip())
            raise Exit(1) from None
        finally:
            tell_cache_problem()

    return run


def tell_cache_problem() -> None:
    """Print a note if kernels were compiled but could not be cached, once."""
    if "trinity_kernels.code_files" in sys.modules:
        from trinity_kernels.code_files import take_cache_problem

        problem = take_cache_problem()
        if problem is not None:
            say(f"warning: {problem}")
