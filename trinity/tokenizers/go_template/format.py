"""printf: the verbs %v %s %q %d %t %% with flags, width and precision.

Other verbs, and values that do not match their verb, raise UnsupportedError. Source: Go's
fmt/print.go and format.go.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trinity.errors import UnsupportedError
from trinity.tokenizers.go_template.budget import Budget
from trinity.tokenizers.go_template.printing import printed, quoted
from trinity.tokenizers.go_template.values import Value, type_name

_VERB = re.compile(r"%([-+0]*)([0-9]{0,6})(?:\.([0-9]{0,6}))?([vsqdt%])|%", re.DOTALL)
_KINDS = {"s": str, "q": str, "d": int, "t": bool}


def formatted(form: str, arguments: Sequence[Value], budget: Budget) -> str:
    """Return ``form`` with its verbs replaced by the arguments."""
    parts, at, left = [], 0, list(arguments)
    for match in _VERB.finditer(form):
        budget.step()
        flags, width, precision, verb = match.groups()
        if verb is None:
            raise UnsupportedError("the Go template calls printf with a verb that is not supported")
        if verb == "%":
            text = "%"
        elif not left:
            raise UnsupportedError("the Go template gives printf too few arguments")
        else:
            text = _one(left.pop(0), verb, flags, int(width or 0), precision, budget)
        parts += [form[at : match.start()], text]
        at = match.end()
    if left:
        raise UnsupportedError("the Go template gives printf too many arguments")
    text = "".join([*parts, form[at:]])
    budget.make(len(text))
    return text


def _one(
    value: Value, verb: str, flags: str, width: int, precision: str | None, budget: Budget
) -> str:
    budget.make(width)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    wanted = _KINDS.get(verb, type(value))
    unknown = (precision is not None and number) or (flags and isinstance(value, float))
    if type(value) is not wanted or unknown:
        raise UnsupportedError(
            f"the Go template prints {type_name(value)} with %{verb}, which is not supported for "
            "this type or with these flags"
        )
    if isinstance(value, str):
        text = value if precision is None else value[: int(precision or 0)]
        text = quoted(text) if verb == "q" else text
        if "+" in flags and verb == "q":
            raise UnsupportedError(
                "the Go template prints a string with %+q, which is not supported"
            )
    else:
        text = printed(value)
        if not number and not isinstance(value, bool) and (flags or width or precision is not None):
            raise UnsupportedError(
                "the Go template pads a list, a map or nil, which is not supported"
            )
    if number and "+" in flags and not text.startswith("-"):
        text = "+" + text
    if "-" in flags:
        return text.ljust(width)
    if "0" not in flags:
        return text.rjust(width)
    if not number:
        raise UnsupportedError("the Go template pads text with zeros, which is not supported")
    return text.zfill(width)
