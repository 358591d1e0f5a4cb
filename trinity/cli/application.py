"""The command line as an application of typer: help, completion, and what explains wrong usage."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, wraps
from typing import Annotated, Any

import typer

from trinity.cli.commands import COMMANDS, command_of
from trinity.cli.llama_cpp import Group, LlamaCommand
from trinity.cli.parameters import (
    GIVEN,
    Argument,
    BadParameter,
    Exit,
    Given,
    Parameter,
    parameters_of,
    takes_given,
)  # fmt: skip
from trinity.cli.terminal import put

CONTEXT = inspect.Parameter(
    "typer_context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context
)


@cache
def application(
    names: tuple[str, ...] = tuple(COMMANDS), wrong: BadParameter | None = None
) -> typer.Typer:
    """Typer's application of these commands; with ``wrong`` they do nothing but explain it."""
    app = typer.Typer(
        name="trinity",
        cls=Group,
        help="Run language models on a CPU, especially quantized and ternary ones.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "obj": wrong},
    )
    for name in names:
        app.command(name, cls=LlamaCommand)(for_typer(command_of(name)))
    app.callback()(root)
    return app


def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=lambda wanted: show_version(wanted),
            is_eager=True,
            help="Show the version.",
        ),
    ] = False,
) -> None:
    """Run language models on a CPU, especially quantized and ternary ones."""


def show_version(wanted: bool) -> None:
    """Print the version and end, where it is wanted."""
    if wanted:
        from trinity import __version__

        put(f"trinity {__version__}")
        raise typer.Exit


def for_typer(command: Callable[..., None]) -> Callable[..., None]:
    """A command as typer reads and calls it."""
    named = takes_given(command)

    @wraps(command)
    def run(typer_context: typer.Context, **values: Any) -> None:
        if named:
            values[GIVEN.name] = Given(filter(lambda name: _is_given(typer_context, name), values))
        try:
            command(**values)
        except BadParameter as error:
            raise typer.BadParameter(str(error), param_hint=error.param_hint) from None
        except Exit as ended:
            raise typer.Exit(ended.code) from None

    parameters = [CONTEXT, *map(_of_typer, parameters_of(command))]
    # The parameters as typer reads them.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _of_typer(parameter: Parameter) -> inspect.Parameter:
    declared = parameter.declared
    shown: dict[str, Any] = {"help": declared.help, "metavar": declared.metavar}
    info: Any
    if isinstance(declared, Argument):
        info = typer.Argument(**shown, show_default=declared.show_default)
    else:
        info = typer.Option(
            *declared.flags, **shown, show_default=declared.show_default,
            min=declared.min, max=declared.max,
        )  # fmt: skip
    kind: Any = list[parameter.kind] if parameter.many else parameter.kind  # type: ignore[name-defined]
    if not parameter.required and parameter.default is None:
        kind = kind | None
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if parameter.required else parameter.default,
        annotation=Annotated[kind, info],
    )
