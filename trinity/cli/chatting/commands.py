"""The commands of a chat: a table, and one function per command."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from trinity.cli.chatting.chat_input import QUOTES
from trinity.cli.chatting.settings import (
    NONE,
    SETTING_WIDTH,
    SETTINGS,
    change,
    listed,
    setting,
    shown,
)
from trinity.cli.terminal import say, say_explained
from trinity.conversation.messages import text_of
from trinity.errors import InputError

if TYPE_CHECKING:
    from trinity.cli.chatting.dialogue import Dialogue

FORCE = "--force"
KEYS = (
    f"{QUOTES} begins and ends a message of several lines; \\ at the end of a line continues it.",
    "Tab completes, the arrow keys browse earlier entries, Ctrl-R searches them.",
    "Alt-Enter inserts a line break, Ctrl-X Ctrl-E opens the entry in $EDITOR.",
    "Ctrl-C stops a response; pressed twice at the prompt, it quits, as Ctrl-D does.",
)


@dataclass(frozen=True, slots=True)
class Command:
    """A command."""

    name: str
    takes: str  # its argument, for messages; in brackets if it is optional
    help: str
    run: Callable[[Dialogue, str], None]
    also: tuple[str, ...] = ()  # other names
    words: Sequence[str] | None = ()  # completions of its argument; None for a path


def run_command(dialogue: Dialogue, name: str, argument: str) -> None:
    """Run the command of that name.

    Raises InputError if there is none, and the command's errors.
    """
    command = BY_NAME.get(name.lower())
    if command is None:
        near = get_close_matches(name.lower(), BY_NAME, 3, 0.5)
        raise InputError(
            f"there is no command /{name:.40}"
            + (f" (did you mean {', '.join('/' + name for name in near)}?)" if near else "")
            + (
                "; /help lists all commands. Put a message that begins with a slash between two "
                f"{QUOTES}"
            )
        )
    if argument and not command.takes:
        raise InputError(f"/{name} takes no argument, but {argument!r:.60} was given")
    if not argument and command.takes and not command.takes.endswith("]"):
        raise InputError(f"/{name} needs a file name: /{name} {command.takes}")
    command.run(dialogue, argument)


def set_system(dialogue: Dialogue, text: str) -> None:
    """Show, set or remove the system message."""
    if not text:
        session = dialogue.session
        system = session.system
        if system is None and session.model.defaults.system:
            system = session.model.defaults.system
            say("(of the model's own)")
        say("(there is no system message)" if system is None else system, "\n\t")
    elif text.lower() == NONE:
        dialogue.session.system = None
        say("(system message removed)")
    else:
        dialogue.session.system = text
        say("(system message set)")


def regenerate(dialogue: Dialogue, _: str) -> None:
    """Generate another response to the last message."""
    dialogue.show(dialogue.session.answer_again)


def undo(dialogue: Dialogue, _: str) -> None:
    """Remove the last turn."""
    content = text_of(dialogue.session.undo())
    first, *more = content.splitlines() or [""]
    say(f"(removed: {first[:60]}{' ...' if more or len(first) > 60 else ''})")


def reset(dialogue: Dialogue, _: str) -> None:
    """Clear the conversation."""
    dialogue.session.reset()
    say("(conversation cleared)")


def add_image(dialogue: Dialogue, argument: str) -> None:
    """Show an image to the model with the next message."""
    from trinity.images.reading import data_url

    if not dialogue.session.model.reads_images:
        raise InputError(
            "the model reads only text: start the chat with a vision model, or a GGUF model with "
            "its --mmproj FILE"
        )
    path = os.path.expanduser(argument)
    dialogue.session.images.append(data_url(path))
    say(f"({path} goes with your next message)")


def save(dialogue: Dialogue, argument: str) -> None:
    """Save the conversation; an older file is replaced if it is the session's own, or by force."""
    from trinity.tools.saved_conversation import write_conversation

    if not dialogue.session.messages:
        raise InputError("the conversation has no messages yet")
    force = argument == FORCE or argument.startswith(f"{FORCE} ")
    path = os.path.expanduser(argument.removeprefix(FORCE).strip() if force else argument)
    if not path:
        raise InputError(f"/save {FORCE} needs a file name")
    own = os.path.realpath(path) in dialogue.files
    write_conversation(path, dialogue.session.messages, overwrite=force or own)
    dialogue.files.add(os.path.realpath(path))
    say(f"(saved {len(dialogue.session.messages)} messages to {path})")


def load(dialogue: Dialogue, argument: str) -> None:
    """Load a saved conversation."""
    from trinity.tools.saved_conversation import read_conversation

    path = os.path.expanduser(argument)
    messages, rest = read_conversation(path)
    dialogue.session.load(messages)
    dialogue.files.add(os.path.realpath(path))
    say(f"({len(messages)} {'message' if len(messages) == 1 else 'messages'} of {path})")
    if rest:
        say(f"(not used from the file: {', '.join(rest)})")
    if messages and messages[-1]["role"] == "user":
        say("(the last message has no response; /regen generates one)")


def set_option(dialogue: Dialogue, argument: str) -> None:
    """Show all options, show one, or set one."""
    if not argument:
        for named, meaning in listed(dialogue.session):
            say_explained(named, meaning, SETTING_WIDTH)
        return
    name, *value = argument.split(maxsplit=1)
    opt = setting(name)
    if value:
        change(dialogue.session, opt, value[0])
    say_explained(*shown(dialogue.session, opt), SETTING_WIDTH)


def stats(dialogue: Dialogue, _: str) -> None:
    """Print the length of the conversation and the speed of the responses."""
    session = dialogue.session
    unsent = f", {session.unsent} of them no longer sent" if session.unsent else ""
    say(f"turns: {session.turns}; messages: {len(session.messages)}{unsent}")
    if not session.answers:
        return
    parts = session.answers[-1].timings
    used = parts[-1].prompt_tokens + parts[-1].completion_tokens
    say(f"context: {used} of {session.model.context_length} tokens after the last response")
    for name, timings in (
        ("last response", parts),
        ("all responses", [timing for answer in session.answers for timing in answer.timings]),
    ):
        evaluated = sum(timing.prompt_tokens - timing.cached_tokens for timing in timings)
        cached = sum(timing.cached_tokens for timing in timings)
        prompting = sum(timing.prompt_seconds for timing in timings)
        tokens = sum(timing.completion_tokens for timing in timings)
        steps = sum(timing.decode_steps for timing in timings)
        seconds = sum(timing.completion_seconds for timing in timings)
        say(
            f"{name}: prompt {evaluated} tokens computed, {cached} "
            f"cached{speed(evaluated, prompting)}; response {tokens} tokens{speed(steps, seconds)}",
            indent=2,
        )


def speed(count: int, seconds: float) -> str:
    """Format a speed; empty if none was measured."""
    return f", {count / seconds:.1f} tokens/s" if count and seconds else ""


def show_help(dialogue: Dialogue, _: str) -> None:
    """List the commands and keys."""
    usages = [f"/{command.name} {command.takes}".rstrip() for command in COMMANDS]
    width = max(map(len, usages))
    for usage, command in zip(usages, COMMANDS, strict=True):
        also = f" (also {', '.join('/' + name for name in command.also)})" if command.also else ""
        say_explained(usage, f"{command.help}{also}", width + 2)
    for line in KEYS:
        say(line, indent=2)


def leave(dialogue: Dialogue, _: str) -> None:
    """End the dialogue."""
    dialogue.over = True


COMMANDS = (
    Command("system", f"[TEXT | {NONE}]", "show, set or remove the system message", set_system),
    Command("image", "FILE", "show an image with your next message", add_image, words=None),
    Command("regen", "", "generate another response to your last message", regenerate),
    Command("undo", "", "remove your last message and its response", undo),
    Command("reset", "", "clear the conversation, except the system message", reset, ("clear",)),
    Command("save", f"[{FORCE}] FILE", "write the conversation as JSON", save, words=None),
    Command("load", "FILE", "load a saved conversation", load, words=None),
    Command(
        "set", "[NAME [VALUE]]", "show or set options of generation", set_option,
        words=[opt.name for opt in SETTINGS],
    ),
    Command("stats", "", "show tokens and speed", stats),
    Command("help", "", "show this", show_help, ("?",)),
    Command("exit", "", "leave", leave, ("quit", "bye")),
)  # fmt: skip
BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.also)}
