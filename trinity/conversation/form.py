"""How the answers to one request are to be read, and what they must be where calls are forced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trinity.conversation.dialects import dialect_of
from trinity.conversation.dialects.dialect import Dialect, Mark
from trinity.conversation.parts import Part
from trinity.conversation.reader import Reader
from trinity.conversation.reading import Reading
from trinity.conversation.scribe import Scribe, joined
from trinity.conversation.thinking import Thinking, thinking_of
from trinity.conversation.tools import Tool, chosen, read_tools


@dataclass(frozen=True, slots=True)
class Form:
    """Reads answers to one prompt.

    ``tools`` are those that may be called. ``inside``: the prompt ends within reasoning.
    ``forced``: an answer must be calls.
    """

    dialect: Dialect
    thinking: Thinking
    tools: tuple[Tool, ...] = ()
    forced: bool = False
    parallel: bool = True
    inside: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """What must not be left out of an answer's text, even where it is a special token."""
        calls = self.dialect.all_marks if self.tools else ()
        return (self.thinking.begin, self.thinking.end, *calls)

    def reader(self) -> Reader:
        """A reader for one answer."""
        scribe = Scribe(self.dialect.id_prefix, self.dialect.id_length)
        reading = Reading(self.tools, scribe, parallel=self.parallel)
        return Reader(reading, self.dialect.read(reading, self.thinking, self.inside))

    def grammar(self, mark: Mark) -> str | None:
        """The Lark grammar of an answer where calls are forced; see Dialect.grammar for ``mark``."""
        if not self.forced:
            return None
        rules = self.dialect.grammar(self.tools, parallel=self.parallel, mark=mark)
        if not self.inside:
            return "start: calls\n" + rules
        thought = f"thought: /(.|\\n)*/ {mark(self.thinking.end)} /\\s*/\n"
        return "start: thought calls\n" + thought + rules


def form_of(
    template: str,
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    tool_choice: str = "auto",
    parallel: bool = True,
    prompt: str = "",
) -> Form:
    """The form of answers to ``prompt``, which ``template`` has made.

    ``tool_choice`` is "none", "auto", "required" or the name of a tool. Raises InputError for
    malformed tools and a choice that cannot be met.
    """
    dialect, thinking = dialect_of(template), thinking_of(template)
    return Form(
        dialect,
        thinking,
        chosen(read_tools(tools), tool_choice),
        tool_choice not in ("none", "auto"),
        parallel,
        thinking.is_open(prompt),
    )


def parse(
    text: str, template: str, *, tools: Sequence[Mapping[str, Any]] = (), prompt: str = ""
) -> tuple[Part, ...]:
    """The parts of a whole answer, whose text must have its special tokens (skip_special=False)."""
    reader = form_of(template, tools=tools, prompt=prompt).reader()
    return joined([*reader.push(text), *reader.finish()])
