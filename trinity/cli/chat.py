"""trinity chat: a conversation of several turns."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from trinity.cli import options
from trinity.cli.interrupt import interruptible, raising
from trinity.cli.loading import load_model
from trinity.cli.prompts import given_text
from trinity.cli.terminal import put, put_raw, say
from trinity.cli.writing import shown
from trinity.errors import ContextLengthError, InputError

if TYPE_CHECKING:
    from trinity.model import Model

HELP = """\
/reset  forget the conversation
/exit   leave; so does Ctrl-D
/help   this text
Ctrl-C stops an answer; at the prompt, pressed twice, it leaves."""


# A conversation is shown as text alone, in the model's own format.
@options.takes(
    generation=options.without(options.GENERATION, "logprobs", "add_bos", "parse_special"),
    loading=options.LOADING,
)
def chat(
    model: options.ModelPath,
    system: Annotated[str | None, typer.Option("--system", help="System message.")] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--template", metavar="FILE", help="Chat template (Jinja2) instead of the model's."
        ),
    ] = None,
    *,
    generation: options.Given,
    loading: options.Given,
) -> None:
    """Talk with a model. /help lists what can be typed; input may be piped, a line per turn."""
    text = None
    if template is not None:
        from trinity.tokenizers.chat import LONGEST_TEMPLATE

        longest = 4 * LONGEST_TEMPLATE  # bytes of UTF-8
        text = given_text(
            None, template, what="template", usage="give another file", longest=longest
        )
    with load_model(model, **loading) as loaded:
        if text is None and not loaded.chat_templates:
            raise InputError(
                f"{model}: the file has no chat template; give one with --template FILE, "
                "or use `trinity generate`"
            )
        Conversation(loaded, generation, text, system).run()


class Conversation:
    """The messages so far, and what a typed line does to them."""

    def __init__(
        self, model: Model, request: options.Given, template: str | None, system: str | None
    ) -> None:
        self.model = model
        self.request = request
        self.template = template
        self.opening = [] if system is None else [{"role": "system", "content": system}]
        self.messages = list(self.opening)

    def run(self) -> None:
        """Take turns until the input ends."""
        for line in lines():
            command = line.strip()
            if command in ("/exit", "/quit"):
                return
            if command == "/reset":
                self.messages = list(self.opening)
                say("(the conversation starts anew)")
            elif command == "/help":
                for help_line in HELP.splitlines():
                    say(help_line)
            elif command.startswith("/") and command[1:].isalpha():
                say(f"(there is no {command}; /help lists what there is)")
            elif command:
                self.turn(line)

    def turn(self, text: str) -> None:
        """Answer one message; what an interrupted answer has said stays in the conversation."""
        messages = [*self.messages, {"role": "user", "content": text}]
        try:
            answer = self.answer(messages)
        except ContextLengthError as error:
            if not sys.stdin.isatty():
                raise
            say(f"error: {error}")
            say("(/reset starts anew)")
            return
        self.messages = [*messages, {"role": "assistant", "content": answer}]

    def answer(self, messages: list[dict[str, str]]) -> str:
        """The answer to ``messages``, written as it comes; Ctrl-C ends it early."""
        with interruptible() as cancel:
            self.request["cancel"] = cancel
            chunks = self.model.chat_stream(messages, template=self.template, **self.request)
            text = "".join(chunk.text for chunk in shown(chunks))
        put_raw("\n", flush=True)
        return text


def lines() -> Iterator[str]:
    """Typed or piped lines; ends at the end of input, and raises at a second Ctrl-C in a row."""
    if not sys.stdin.isatty():
        yield from (line.rstrip("\r\n") for line in sys.stdin)
        return
    with suppress(ImportError):  # line editing and history, where the system has them
        import readline  # noqa: F401
    interrupted = False
    while True:
        try:
            with raising():
                line = input("> ")
        except EOFError:
            put()
            return
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            say()
            say("(Ctrl-C again or Ctrl-D leaves)")
            continue
        interrupted = False
        yield line
