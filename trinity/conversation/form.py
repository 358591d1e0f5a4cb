"""How the answers to one request are to be read, and what they must be where calls are forced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trinity.conversation.dialects import dialect_of, lark
from trinity.conversation.dialects.dialect import Dialect, Thinking, thinking_of
from trinity.conversation.parts import Part
from trinity.conversation.reading import Reader, Reading
from trinity.conversation.scribe import Scribe, joined
from trinity.conversation.tools import Tool, chosen, read_tools
from trinity.errors import InputError


@dataclass(frozen=True, slots=True)
class Form:
    """Reads answers to one prompt.

    ``tools`` are those that may be called. ``inside``: the prompt ends within reasoning.
    ``forced``: an answer must be calls. ``formed``: an answer that is not calls has a form of its
    own, so what begins like JSON is a call only after a mark, where the dialect has one.
    """

    dialect: Dialect
    thinking: Thinking
    tools: tuple[Tool, ...] = ()
    forced: bool = False
    parallel: bool = True
    inside: bool = False
    formed: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """What must not be left out of an answer's text, even where it is a special token."""
        calls = self.dialect.all_marks if self.tools else ()
        return (self.thinking.begin, self.thinking.end, *calls)

    def reader(self) -> Reader:
        """A reader for one answer."""
        scribe = Scribe(self.dialect.id_prefix, self.dialect.id_length)
        bare = self.dialect.bare and not (self.formed and self.dialect.marks_forced_calls)
        reading = Reading(self.tools, scribe, parallel=self.parallel, bare=bare, forced=self.forced)
        return Reader(reading, self.dialect.read(reading, self.thinking, self.inside))

    def grammar(
        self, mark: Callable[[str], str | int], answer: str | None = None, budget: int | None = None
    ) -> str | None:
        """The Lark grammar that an answer needs, None where it may be anything.

        It is calls where they are forced. Otherwise it is ``answer``, a Lark expression such as
        ``%json {...}``, or calls where there are tools. Reasoning may come first, of ``budget``
        tokens at most. ``mark`` gives the id of a mark that is one token, else its text.

        Raises InputError for a budget where the end of reasoning is no single token.
        """
        thinking, end = self.thinking, mark(self.thinking.end)
        if budget is not None and not isinstance(end, int):
            raise InputError(
                f"reasoning cannot have a budget: its end, {thinking.end!r}, is not a token"
            )
        if answer is not None:
            answer = f"{lark.pieces(self.dialect.answer_head, mark)} {answer}\n"
        said = "calls"
        if self.forced or (answer is not None and self.tools):
            rest = self.dialect.grammar(
                self.tools, parallel=self.parallel, mark=lambda text: lark.mark(mark(text))
            )
            if answer is not None and not self.forced:
                said = "(calls | answer)"
                rest += f"answer: {answer}"
        elif answer is not None:
            rest = f"calls: {answer}"
        elif budget is not None:
            rest = "calls: (<[*]>)*\n"
        else:
            return None
        if isinstance(end, int):
            most = "*" if budget is None else f"{{0,{budget}}}"
            thought = f"<[{end}]>" if budget == 0 else f"(<[^{end}]>){most} <[{end}]>"
            thought += f" {lark.pieces(thinking.then, mark)} WHITE"
            if not self.inside:
                thought = f"({lark.pieces(thinking.begin, mark)} {thought})?"
            return f"start: {thought} {said}\nWHITE: /[ \\t\\r\\n]*/\n" + rest
        if self.inside:
            return f"start: thought {said}\nthought[suffix={lark.text(end)}]: /(.|\\n)*/\n" + rest
        return f"start: {said}\n" + rest


def form_of(
    template: str,
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    tool_choice: str = "auto",
    parallel: bool = True,
    prompt: str = "",
    dialect: Dialect | None = None,
) -> Form:
    """The form of answers to ``prompt``, which ``template`` has made.

    ``tool_choice`` is "none", "auto", "required" or the name of a tool. ``dialect`` goes before
    the template's own. Raises InputError for malformed tools and a choice that cannot be met.
    """
    thinking = thinking_of(template)
    return Form(
        dialect or dialect_of(template),
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
