"""Options of the command line: those declared for the API, and its own."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import Annotated, Any

from trinity.cli.parameters import GIVEN, BadParameter, Flag
from trinity.cli.parameters import Given as GivenNames
from trinity.errors import InputError
from trinity.options.checks import check_choice
from trinity.options.load_options import LoadOptions
from trinity.options.option import Declared, declared
from trinity.runtime.options import generation_options
from trinity_kernels.isa import LEVELS

MODEL_HELP = "The model: a GGUF file, a Hugging Face directory, ollama:NAME or hf:USER/REPO"
ModelOrDemo = Annotated[
    str | None,
    Flag(f"{MODEL_HELP}; the demo model if not given.", "--model", "-m", metavar="MODEL"),
]
ModelOrChatDemo = Annotated[
    str | None,
    Flag(f"{MODEL_HELP}; the demo chat model if not given.", "--model", "-m", metavar="MODEL"),
]
ChatTemplate = Annotated[
    str | None,
    Flag(
        "Apply the Jinja2 chat template in this file instead of the model's own.",
        "--chat-template",
        "--template",
        "--chat-template-file",
        metavar="FILE",
    ),
]
TextFile = Annotated[
    str | None, Flag("The text; - reads standard input.", "--file", "-f", metavar="FILE")
]
Force = Annotated[bool, Flag("Replace OUT if it exists.", "--force")]
Json = Annotated[bool, Flag("Print one JSON object instead of text.", "--json")]

OnRay = Annotated[bool, Flag("Run on a Ray cluster, by default one that is started here.", "--ray")]
Replicas = Annotated[
    int | None, Flag("With --ray: processes that have the model.", "--replicas", min=1)
]
Cores = Annotated[
    int | None, Flag("With --ray: cores and threads of each replica.", "--cores", min=1)
]
RayAddress = Annotated[
    str | None,
    Flag(
        "With --ray: the cluster; by default RAY_ADDRESS, or else this machine.",
        "--ray-address",
        metavar="ADDRESS",
    ),
]

Options = tuple[Declared, ...]
Given = dict[str, Any]


def flagged(options: Iterable[Declared]) -> Options:
    """Return the declared options that have a flag."""
    return tuple(opt for opt in options if opt.option.flags)


GENERATION = flagged(generation_options())
LOADING = flagged(declared(LoadOptions))


def only(options: Options, *names: str) -> Options:
    """Return the options of these names."""
    by_name = {opt.name: opt for opt in options}
    return tuple(by_name[name] for name in names)


def without(options: Options, *names: str) -> Options:
    """Return all options except those of these names."""
    left = {opt.name: opt for opt in options}
    for name in names:
        del left[name]
    return tuple(left.values())


def takes(**groups: Options) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command: each parameter that names a group is replaced by the group's options.

    The command gets a dict of the options that were given, with the API's names; a model may have
    other defaults for the rest.
    """

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(*, given: GivenNames, **own: Any) -> None:
            values = {}
            for group, options in groups.items():
                checked = {opt.name: value_of(opt, own.pop(opt.name)) for opt in options}
                values[group] = {name: checked[name] for name in checked if name in given}
            command(**own, **values)

        taken: list[inspect.Parameter] = []
        for own in inspect.signature(command, eval_str=True).parameters.values():
            if own.name in groups:
                taken += map(parameter, groups[own.name])
            else:
                taken.append(own.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        signature = inspect.Signature([*taken, GIVEN])
        run.__signature__ = signature  # type: ignore[attr-defined]
        return run

    return wrap


def parameter(opt: Declared) -> inspect.Parameter:
    """A declared option as a parameter of a command."""
    option = opt.option
    default = opt.default
    kind: Any = opt.kind if opt.kind in (int, float, bool) else str
    if any("/" in flag for flag in option.flags):  # a switch
        kind = bool
    if option.read is not None:
        kind, default = str, None
    if option.repeated:
        kind, default = list[str], None
    info = Flag(option.help, *option.flags, metavar=option.metavar)
    return inspect.Parameter(
        opt.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind if default is not None else kind | None, info],
    )


def value_of(opt: Declared, given: Any) -> Any:
    """Convert an option's value from the command line. Raises BadParameter."""
    option = opt.option
    if given is None or given == []:
        return opt.default
    if option.none is not None and given == option.none:
        return None
    flag = option.flags[0].partition("/")[0]
    with wrong_usage():
        value = given if option.read is None else option.read(flag, given)
        replace(opt, name=flag).checked(value)
        if opt.name in NAMED:
            NAMED[opt.name](flag, str(value))
    return value


@contextmanager
def wrong_usage() -> Iterator[None]:
    """Turn an InputError, raised for an option's value, into a usage error."""
    try:
        yield
    except InputError as error:
        raise BadParameter(str(error)) from None


def check_level(flag: str, value: str) -> None:
    """Raise InputError unless ``value`` is an instruction-set level."""
    check_choice(flag, value, LEVELS)


def check_mix(flag: str, value: str) -> None:
    """Raise InputError unless ``value`` is a type that a model can be quantized to."""
    from trinity.quantization.mixes import find_mix

    try:
        find_mix(value)
    except InputError as error:
        raise InputError(f"{flag}: {error}") from None


# Checks that need other modules, which the declarations do not import.
NAMED: dict[str, Callable[[str, str], None]] = {"isa": check_level, "quantize": check_mix}


def integers(flag: str, texts: Sequence[str] | None, low: int, usual: int) -> tuple[int, ...]:
    """Parse comma-separated numbers of a flag that may be repeated. Raises BadParameter."""
    numbers = []
    for part in ",".join(texts or (str(usual),)).split(","):
        if re.fullmatch(r"\s*[0-9]{1,9}\s*", part, re.ASCII) is None or int(part) < low:
            raise BadParameter(
                f"{flag} is {part!r:.40}; it must be an integer of at least {low}, or several "
                "separated by commas"
            )
        numbers.append(int(part))
    return tuple(dict.fromkeys(numbers))
