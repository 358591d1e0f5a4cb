"""How code depends on its level and on its quantization type.

A kernel gets both as tags, ``isa`` and ``qt``: values without data that Numba distinguishes by
type, so that one body is compiled for each level and type. There are four ways to depend on them,
all resolved when a kernel is compiled:

    @constant       a function of tags alone becomes a constant of the compiled code.
    @per_level      the decorated body is that of ``portable``; other levels have the bodies named.
    @chosen         the decorated function picks the body to use by the type of any argument.
    emitters        functions that write LLVM instructions get the level's name as text.

A level that lacks a variant altogether is missing from the variant's table of sizes by level
(``TOKENS``), and so from the table of variants (ops/matmul/variants.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

from trinity_kernels._jit import choose

F = TypeVar("F", bound=Callable[..., Any])


def constant(function: F) -> F:
    """A function of one or two tags whose value compiled code knows: numbers, or a tuple of them.

    It runs in Python, also while a kernel is compiled, and may look into any table.
    """
    count = len(signature(function).parameters)

    def chooser(*tags: Any) -> Any:
        value = function(*tags)
        return (lambda tag: value) if count == 1 else (lambda isa, qt: value)

    choose(function)(chooser)
    return function


def chosen(chooser: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose body ``chooser`` returns for the types of its arguments.

    The body has the chooser's parameters. A chooser that needs a literal returns None for others.
    """

    @wraps(chooser)
    def stub(*arguments: Any) -> Any:
        return chooser(*arguments)(*arguments)

    choose(stub)(chooser)
    return stub


def per_level(vector: Callable[..., Any], **levels: Callable[..., Any]) -> Callable[[F], F]:
    """Give a function of ``isa`` and more other bodies on other levels than ``portable``.

    ``levels`` names those of single levels, ``vector`` is that of the others. All have the same
    parameters by name. The decorated body uses no intrinsics, so it also runs uncompiled.
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
    """A plain function of numbers that Python and compiled code call alike."""
    choose(function)(lambda *arguments: function)
    return function
