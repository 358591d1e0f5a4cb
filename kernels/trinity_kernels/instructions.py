"""Functions whose bodies are LLVM instructions, declared by their types."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

from trinity_kernels._jit import intrinsic
from trinity_kernels.isa import jit_disabled

_CONTEXT = Parameter("typingctx", Parameter.POSITIONAL_OR_KEYWORD)


def instructions(
    result: str, *arguments: str, python: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a function of compiled code by the types of its result and arguments.

    Types are Numba's by name, ``float32*`` a pointer. The decorated function gets LLVM's builder
    and the arguments' values, and returns the result's value, or None for a ``void`` function.
    Uncompiled, ``python`` takes its place.
    """

    def declare(emit: Callable[..., Any]) -> Callable[..., Any]:
        if jit_disabled():
            return emit if python is None else python

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            value = emit(builder, *args)
            return context.get_dummy_value() if value is None else value

        def typed(*_: Any) -> Any:
            return _type(result)(*map(_type, arguments)), codegen

        _, *parameters = signature(emit).parameters.values()
        typed.__name__, typed.__doc__ = emit.__name__, emit.__doc__
        typed.__signature__ = signature(emit).replace(  # type: ignore[attr-defined]
            parameters=[_CONTEXT, *parameters]
        )
        return intrinsic(typed)

    return declare


def _type(name: str) -> Any:
    from numba.core import types

    if name.endswith("*"):
        return types.CPointer(_type(name[:-1]))  # type: ignore[attr-defined]
    return getattr(types, name)
