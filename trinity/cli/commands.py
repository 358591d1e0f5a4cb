"""Exit codes: 0; 1 with the message of a TrinityError; 2 for wrong usage; 130 on Ctrl-C."""

from __future__ import annotations

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
