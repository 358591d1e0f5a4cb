"""Code that depends on the level and on the quantization type.

A kernel receives both as tags, ``isa`` and ``qt``: arguments without data, each of a Numba type of
its own, so one body is compiled for each level and type. Code depends on tags in four ways, all
resolved during compilation:

    @constant       a function of tags becomes a constant of the compiled code
    @per_level      the decorated body is for ``portable``; other levels have bodies of their own
    @chosen         the decorated function returns the body for the types of its arguments
    @instructions   a function that emits LLVM code receives tags (instructions.py)

A level without a variant is missing from the variant's table (such as ``TOKENS``), and therefore
from the table of variants (ops/matmul/variants.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from trinity_kernels._jit import choose, declare_constant

F = TypeVar("F", bound=Callable[..., Any])


def constant(function: F) -> F:
    """Declare a function of one or two tags whose result is a constant of compiled code.

    The function runs in Python, during compilation, and may use any table. It returns a number or
    a tuple of numbers.
    """
    declare_constant(function)
    return function


def chosen(chooser: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a function whose body ``chooser`` returns for the types of the arguments.

    The body has the chooser's parameters. A chooser that needs a literal returns None for others.
    """

    @wraps(chooser)
    def stub(*arguments: Any) -> Any:
        return chooser(*arguments)(*arguments)

    choose(stub)(chooser)
    return stub


def per_level(vector: Callable[..., Any], **levels: Callable[..., Any]) -> Callable[[F], F]:
    """Give a function of ``isa`` and more arguments other bodies on other levels than ``portable``.

    ``levels`` are the bodies of single levels, ``vector`` that of all others. The parameters have
    the same names. The decorated body uses no intrinsics, so it also runs uncompiled.
    """

    def decorate(portable: F) -> F:
        def chooser(isa: Any, *others: Any) -> Any:
            if isa.value == "portable":
                return portable
            return levels.get(isa.value, vector)

        choose(portable)(chooser)
        return portable

    return decorate


def shared(function: F) -> F:
    """Declare a function of numbers that Python and compiled code both call."""
    choose(function)(lambda *arguments: function)
    return function
