"""/set: the options of generation, by name, with values as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from trinity.cli import options
from trinity.errors import InputError
from trinity.options.option import Declared, Option

if TYPE_CHECKING:
    from trinity.tools.chat_session import ChatSession

CONTEXT_SHIFT = Declared(
    "context_shift",
    bool,
    False,
    Option("When the context is full, drop the oldest turns.", ("--context-shift", "--ctx-shift")),
)
# Chats lack these options: they print only text (logprobs), use the model's own format (add_bos,
# parse_special), and drop whole turns instead of tokens (context_shift, keep).
_OTHERS = "logprobs", "add_bos", "parse_special", "context_shift", "keep"
SETTINGS = (*options.without(options.GENERATION, *_OTHERS), CONTEXT_SHIFT)
NONE = "none"
NAME_WIDTH, SETTING_WIDTH = 20, 30  # columns of an option's name, and of its name and value
_BOOLS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


def setting(name: str) -> Declared:
    """Return the option of a name, or of a flag without dashes.

    Raises InputError with similar names.
    """
    wanted = name.lower().lstrip("-").replace("-", "_")
    for opt in SETTINGS:
        flags = (flag.lstrip("-").replace("-", "_") for flag in opt.option.flags)
        if wanted == opt.name or wanted in flags:
            return opt
    names = [opt.name for opt in SETTINGS]
    near = get_close_matches(wanted, names, 3, 0.5)
    raise InputError(
        f"there is no option {name!r:.40}"
        + (f" (did you mean {', '.join(near)}?)" if near else "")
        + "; /set lists all"
    )


def change(session: ChatSession, opt: Declared, text: str) -> None:
    """Set an option from text; "none" restores its default.

    Raises InputError for an invalid value.
    """
    given = text.strip().lower() != NONE
    value = parsed(opt, text) if given else opt.default
    if opt is CONTEXT_SHIFT:
        session.shifts = bool(value)
    elif given:
        session.options[opt.name] = value
    else:
        session.options.pop(opt.name, None)


def parsed(opt: Declared, text: str) -> object:
    """Parse the value of an option. Raises InputError."""
    value: object = text
    try:
        if opt.option.repeated:
            words = shlex.split(text)
            value = words if opt.option.read is None else opt.option.read("/set", words)
        elif opt.option.read is not None:
            value = opt.option.read(opt.name, ";".join(shlex.split(text)))
        elif opt.kind is float:
            value = float(text)
        elif opt.kind is int:
            value = int(text)
            if value == opt.option.none:
                return None
        elif text.lower() in _BOOLS:
            value = _BOOLS[text.lower()]
        elif opt.kind is not bool:
            value = int(text)  # an option that is a switch or a number
    except ValueError:
        raise InputError(f"{opt.name} is {text!r:.40}; it must be {opt.values}") from None
    return opt.checked(value)


def shown(session: ChatSession, opt: Declared) -> tuple[str, str]:
    """Return an option's name and value, and its help."""
    defaults = session.model.defaults.options
    if opt is CONTEXT_SHIFT:
        value: object = session.shifts
    else:
        value = session.options.get(opt.name, defaults.get(opt.name, opt.default))
    return f"{opt.name:<{NAME_WIDTH}} {value_text(value)}", opt.option.help


def value_text(value: object) -> str:
    """Format a value as /set accepts it."""
    if value is None or value == ():
        return NONE
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        return " ".join(f"{token}={number:g}" for token, number in value.items())
    if isinstance(value, Sequence):
        return shlex.join([value] if isinstance(value, str) else value)
    if isinstance(value, float):
        return f"{value:.7g}"  # 0.2 for a file's float32, which is 0.20000000298
    return str(value)


def listed(session: ChatSession) -> Iterator[tuple[str, str]]:
    """Yield every option's name and value, and its help."""
    return (shown(session, opt) for opt in SETTINGS)
