"""Functions whose bodies are LLVM instructions, declared by their types."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

from trinity_kernels._jit import intrinsic
from trinity_kernels.isa import is_compiled_copy

_CONTEXT = Parameter("typingctx", Parameter.POSITIONAL_OR_KEYWORD)


def instructions(
    result: Any, *arguments: Any, python: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a function of compiled code by the types of its result and arguments.

    A type is the name of a Numba type, a vector ``f32x16``, a pointer ``float32*`` or a tuple
    ``f32x16[8]``; a factory may pass a type itself. The decorated function emits the code. Its
    first parameter is LLVM's builder. For an argument ``tag`` (a level or a quantization type) it
    receives the tag, for a ``literal`` the number, for others LLVM's value. It returns LLVM's
    value, a list for a tuple, None for ``void``. Without compilation ``python`` is called instead.
    """

    def declare(emit: Callable[..., Any]) -> Callable[..., Any]:
        if not is_compiled_copy():
            return python or emit

        def typed(_: Any, *given: Any) -> Any:
            from numba.core import types

            kinds, known = [], {}
            for i, (wanted, kind) in enumerate(zip(arguments, given, strict=True)):
                if wanted == "literal":
                    if not isinstance(kind, types.IntegerLiteral):
                        return None
                    known[i] = kind.literal_value
                elif wanted == "tag":
                    known[i] = kind
                kinds.append(kind if i in known else _type(wanted))

            def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
                value = emit(builder, *(known.get(i, arg) for i, arg in enumerate(args)))
                if isinstance(value, list):
                    return context.make_tuple(builder, sig.return_type, value)
                if result == "void":
                    return context.get_dummy_value()
                assert value is not None, emit.__name__
                return value

            return _type(result)(*kinds), codegen

        _, *parameters = signature(emit).parameters.values()
        typed.__name__, typed.__doc__ = emit.__name__, emit.__doc__
        typed.__signature__ = signature(emit).replace(  # type: ignore[attr-defined]
            parameters=[_CONTEXT, *parameters]
        )
        return intrinsic(typed)

    return declare


def _type(name: Any) -> Any:
    from numba.core import types

    from trinity_kernels.vectors import Vec

    if not isinstance(name, str):
        return name
    if several := re.fullmatch(r"(\w+)\[(\d+)\]", name):
        return types.UniTuple(_type(several[1]), int(several[2]))  # type: ignore[attr-defined]
    if name.endswith("*"):
        return types.CPointer(_type(name[:-1]))  # type: ignore[attr-defined]
    if vector := re.fullmatch(r"([if]\d+)x(\d+)", name):
        return Vec(vector[1], int(vector[2]))
    return getattr(types, name)
