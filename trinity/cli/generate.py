"""trinity generate: complete a prompt."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from trinity.cli import options
from trinity.cli.grammars import given_grammar
from trinity.cli.interrupt import interruptible
from trinity.cli.loading import load_model, model_or_demo
from trinity.cli.prompts import given_text
from trinity.cli.terminal import json_line, put, say
from trinity.cli.writing import shown
from trinity.process import INTERRUPTED

if TYPE_CHECKING:
    from trinity.model import Model
    from trinity.runtime.generation import Completion, Timings


@options.takes(generation=options.GENERATION, loading=options.LOADING)
def generate(
    model: options.ModelOrDemo = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="The prompt; - reads standard input.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read the prompt from a file."),
    ] = None,
    *,
    generation: options.Given,
    chat: Annotated[
        bool,
        typer.Option("--chat/--raw", help="Put the prompt into the model's chat format, or not."),
    ] = False,
    system: Annotated[
        str | None, typer.Option("--system", help="System message, with --chat.")
    ] = None,
    json_schema: Annotated[
        str | None,
        typer.Option(
            "--json-schema",
            metavar="SCHEMA",
            help="Answer in JSON of this schema: text, or a file.",
        ),
    ] = None,
    regex: Annotated[
        str | None,
        typer.Option("--regex", metavar="REGEX", help="Answer in what this expression matches."),
    ] = None,
    grammar_file: Annotated[
        str | None,
        typer.Option(
            "--grammar", metavar="FILE", help="Answer in what this grammar says: Lark or GBNF."
        ),
    ] = None,
    loading: options.Given,
    as_json: options.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No figures at the end.")] = False,
) -> None:
    """Complete a prompt: an option, a file, or standard input where it is piped.

    One newline at the end of a file or of standard input is not part of the prompt.
    """
    if system is not None and not chat:
        raise typer.BadParameter("--system needs --chat")
    usage = "use one of --prompt, --file and standard input"
    text = given_text(prompt, file, what="prompt", usage=usage)
    if prompt in (None, "-"):
        text = text.removesuffix("\n").removesuffix("\r")
    given = given_grammar(json_schema, regex, grammar_file)
    if given is not None:
        generation["grammar"] = given
    path = model_or_demo(model)
    with load_model(path, **loading) as loaded:
        ids = prompt_ids(loaded, text, generation, chat=chat, system=system)
        with interruptible() as cancel:
            completion = completed(loaded, ids, generation, cancel, show=not as_json)
    if as_json:
        put(json_line(as_object(path, completion)))
    if not quiet:
        say(figures(completion))
    if cancel.is_set():
        raise typer.Exit(INTERRUPTED)


def prompt_ids(
    model: Model, text: str, request: options.Given, *, chat: bool, system: str | None
) -> list[int]:
    """The prompt's token ids, raw or in the chat format."""
    if not chat:
        given = {key: request[key] for key in ("add_bos", "parse_special") if key in request}
        return model.tokenize(text, **given)
    messages = [{"role": "user", "content": text}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return model.apply_chat_template(messages)


def completed(
    model: Model,
    ids: list[int],
    request: options.Given,
    cancel: threading.Event,
    *,
    show: bool,
) -> Completion:
    """The whole answer, its text written to standard output as it comes."""
    from trinity.runtime.generation import collect

    request["cancel"] = cancel
    if not show:
        return collect(model.stream(ids, **request))
    completion = collect(shown(model.stream(ids, **request)))
    if not completion.text.endswith("\n"):
        put()
    return completion


def as_object(path: str, completion: Completion) -> dict[str, object]:
    """What --json prints."""
    return {"model": path, **asdict(completion), "timings": timings_object(completion.timings)}


def timings_object(timings: Timings) -> dict[str, object]:
    """Timings with their speeds."""
    return {
        **asdict(timings),
        "prompt_tokens_per_second": timings.prompt_tokens_per_second,
        "tokens_per_second": timings.tokens_per_second,
    }


def figures(completion: Completion) -> str:
    """One line of figures."""
    timings = completion.timings
    cached = f" ({timings.cached_tokens} cached)" if timings.cached_tokens else ""
    return (
        f"prompt {timings.prompt_tokens} tokens{cached} in {timings.prompt_seconds:.2f} s, "
        f"{timings.prompt_tokens_per_second:.1f} tokens/s | "
        f"answer {timings.completion_tokens} tokens, {timings.tokens_per_second:.1f} tokens/s | "
        f"{completion.finish_reason}"
    )
