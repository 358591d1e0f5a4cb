"""trinity generate: complete a prompt."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from trinity.cli import options
from trinity.cli.interrupt import interruptible
from trinity.cli.loading import check_has_template, load_model, model_or_demo, note_of_purpose
from trinity.cli.parameters import Argument, BadParameter, Exit, Flag
from trinity.cli.prompts import given_template, given_text, one_of
from trinity.cli.terminal import json_line, put, say
from trinity.cli.writing import shown, write_piece
from trinity.errors import InputError
from trinity.processes.command_line import INTERRUPTED

if TYPE_CHECKING:
    from trinity.formats.defaults import ChatTemplate
    from trinity.model import Model
    from trinity.runtime.generation import Completion, Timings


@options.takes(generation=options.GENERATION, loading=options.LOADING)
def generate(
    model: options.ModelOrDemo = None,
    prompt: Annotated[
        str | None,
        Argument("The prompt; standard input if it is - or not given.", metavar="PROMPT"),
    ] = None,
    flagged: Annotated[
        str | None, Flag("The prompt, as an option.", "--prompt", "-p", metavar="PROMPT")
    ] = None,
    file: Annotated[
        str | None, Flag("Read the prompt from a file.", "--file", "-f", metavar="FILE")
    ] = None,
    *,
    generation: options.Given,
    chat: Annotated[
        bool | None,
        Flag(
            "Apply the model's chat template to the prompt, or do not (the default).",
            "--chat/--raw",
            show_default=False,
        ),
    ] = None,
    template: options.ChatTemplate = None,
    system: Annotated[str | None, Flag("System message, with --chat or --chat-template.")] = None,
    image: Annotated[
        list[str] | None,
        Flag(
            "Show the model this image; may be given several times. Implies --chat.", metavar="FILE"
        ),
    ] = None,
    echo: Annotated[
        bool, Flag("Print the prompt before the completion, as the model reads it.")
    ] = False,
    json_schema: Annotated[
        str | None,
        Flag(
            "Constrain the output to JSON of this schema: JSON text, or a file.", metavar="SCHEMA"
        ),
    ] = None,
    regex: Annotated[
        str | None, Flag("Constrain the output to this regular expression.", metavar="REGEX")
    ] = None,
    grammar_file: Annotated[
        str | None,
        Flag(
            "Constrain the output to this grammar (a file): Lark or GBNF.",
            "--grammar",
            metavar="FILE",
        ),
    ] = None,
    loading: options.Given,
    as_json: options.Json = False,
    quiet: Annotated[bool, Flag("Do not print statistics at the end.", "--quiet", "-q")] = False,
) -> None:
    """Complete a prompt: an argument, a file, or piped standard input.

    One newline at the end of a file or of standard input is removed.
    """
    if template is not None and chat is False:
        raise BadParameter(
            "--chat-template applies a chat template, but --raw forbids it: give one of them"
        )
    if image and chat is False:
        raise BadParameter("--image needs the chat template, but --raw forbids it: omit --raw")
    in_format = bool(chat) or template is not None or bool(image)
    if system is not None and not in_format:
        raise BadParameter("--system needs a chat template: add --chat or --chat-template FILE")
    prompt = one_of(prompt, flagged, "prompt")
    usage = "give it as an argument, with --prompt or --file, or on standard input"
    text = given_text(prompt, file, what="prompt", usage=usage)
    if prompt in (None, "-"):
        text = text.removesuffix("\n").removesuffix("\r")
    if not text and not in_format and not quiet:
        say(f"note: the prompt is empty, so the model begins a text of its own; {usage}")
    own = None if template is None else given_template(template)
    if (json_schema, regex, grammar_file) != (None, None, None):
        from trinity.cli.grammars import given_grammar

        generation["grammar"] = given_grammar(json_schema, regex, grammar_file)
    path = model_or_demo(model)
    with load_model(path, **loading) as loaded:
        note_of_purpose(loaded)
        if chat is None and not in_format and loaded.chat_templates and not quiet:
            say("note: the model has a chat template: --chat applies it, --raw hides this note")
        if image and not loaded.reads_images:
            raise InputError(
                f"{path}: the model reads only text: use a vision model, or a GGUF model with its "
                "--mmproj FILE"
            )
        if in_format:
            check_has_template(loaded, path, own, "omit --chat")
            text, ids = in_chat_format(loaded, text, own, system, image or ())
        else:
            ids = raw_ids(loaded, text, generation)
        weights = loaded.weights
        if echo and not as_json:
            write_piece(text)
        with interruptible() as cancel:
            completion = completed(loaded, ids, generation, cancel, show=not as_json)
    if as_json:
        named = {"model": path, "path": path if weights is None else weights.path}
        echoed = {"prompt": text} if echo else {}
        put(json_line({**named, **echoed, **as_object(completion)}))
    if not quiet:
        say(statistics(completion))
    if cancel.is_set():
        raise Exit(INTERRUPTED)


def raw_ids(model: Model, text: str, request: options.Given) -> list[int]:
    """Return the token ids of a prompt without a chat template."""
    given = {key: request[key] for key in ("add_bos", "parse_special") if key in request}
    return model.tokenize(text, add_eos=False, **given)


def in_chat_format(
    model: Model, text: str, template: ChatTemplate | None, system: str | None,
    images: Sequence[str] = (),
) -> tuple[str, list[int]]:  # fmt: skip
    """Return a conversation of system message, images and prompt, as text and as token ids."""
    content: object = text
    if images:
        shown = [{"type": "image", "image": path} for path in images]
        content = [*shown, {"type": "text", "text": text}]
    messages: list[dict[str, object]] = [{"role": "user", "content": content}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    ids = model.apply_chat_template(messages, template=template)
    from trinity.runtime.image_rows import is_token

    return model.tokenizer.decode(list(filter(is_token, ids))), ids


def completed(
    model: Model, ids: list[int], request: options.Given, cancel: threading.Event, *, show: bool
) -> Completion:
    """Generate the completion, and write its text to standard output as it arrives."""
    from trinity.runtime.generation import collect

    request["cancel"] = cancel
    if not show:
        return collect(model.stream(ids, **request))
    completion = collect(shown(model.stream(ids, **request)))
    if not completion.text.endswith("\n"):
        put()
    return completion


def as_object(completion: Completion) -> dict[str, object]:
    """Return the object that --json prints."""
    return {**asdict(completion), "timings": timings_object(completion.timings)}


def timings_object(timings: Timings) -> dict[str, object]:
    """Return timings and speeds."""
    return {
        **asdict(timings),
        "prompt_tokens_per_second": timings.prompt_tokens_per_second,
        "tokens_per_second": timings.tokens_per_second,
    }


def statistics(completion: Completion) -> str:
    """Return one line of statistics."""
    timings = completion.timings
    cached = f" ({timings.cached_tokens} cached)" if timings.cached_tokens else ""
    return (
        f"prompt {_tokens(timings.prompt_tokens)}{cached} in {timings.prompt_seconds:.2f} "
        f"s{speed(timings.prompt_tokens_per_second)} | output "
        f"{_tokens(timings.completion_tokens)}{speed(timings.tokens_per_second)} | "
        f"{completion.finish_reason}"
    )


def _tokens(number: int) -> str:
    return f"{number} token{'s' * (number != 1)}"


def speed(tokens_per_second: float) -> str:
    """Format a speed; empty if none was measured."""
    return f", {tokens_per_second:.1f} tokens/s" if tokens_per_second else ""
