"""How models delimit reasoning and tool calls, and how a response is parsed by that."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from trinity.conversation.cursor import WHITE, Give, NoCallError, Steps
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool
from trinity.conversation.traits import Traits

Mark = Callable[[str], str]
"""Returns a delimiter in Lark: its text in quotes, or the special token for it."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """Marks of reasoning: ``begin``, ``end``, and what follows before the response (``then``).

    ``around``: marks that may enclose the text after reasoning. ``also``: other spellings of
    ``begin`` and ``end``.
    """

    begin: str
    end: str
    then: str = ""
    around: tuple[str, ...] = ()
    also: tuple[tuple[str, str], ...] = ()

    @property
    def begins(self) -> tuple[str, ...]:
        """All spellings of ``begin``."""
        return (self.begin, *(begin for begin, _ in self.also))

    @property
    def ends(self) -> tuple[str, ...]:
        """All spellings of ``end``."""
        return (self.end, *(end for _, end in self.also))

    def is_open(self, prompt: str) -> bool:
        """Whether a prompt ends with ``begin``, so that the response starts with reasoning."""
        return prompt.rstrip(WHITE).endswith(tuple(begin.rstrip(WHITE) for begin in self.begins))

    def encloses(self, text: str) -> int:
        """How many of the marks around the text after reasoning are open at the end of ``text``."""
        after = max(text.rfind(end) for end in self.ends)
        if not self.around or after < 0:
            return 0
        opening, closing = self.around
        return max(text.count(opening, after) - text.count(closing, after), 0)


TAGS = Thinking("<think>", "</think>")
_KNOWN = (
    Thinking("<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant"),  # gpt-oss
    Thinking("<|channel>thought", "<channel|>"),  # Gemma 4
    Thinking("<|START_THINKING|>", "<|END_THINKING|>"),  # Command
    Thinking("[THINK]", "[/THINK]"),  # Magistral, Ministral
    Thinking("<seed:think>", "</seed:think>"),
    Thinking("<longcat_think>", "</longcat_think>"),
    Thinking("<mm:think>", "</mm:think>"),  # MiniMax M3
    Thinking("<think:opensource>", "</think:opensource>"),  # Hunyuan
    Thinking("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    Thinking(" to=self<|message|>", "<|eom|>", "<|start|>assistant"),  # Muse
    Thinking("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),  # Apriel
    Thinking(
        "Here is my thought process:", "Here is my response:",
        also=(("Here's my thought process:", "Here's my response:"),),
    ),  # Granite 3.2
    Thinking("<think>", "</think>", around=("<response>", "</response>")),  # Granite 3.3
)  # fmt: skip


@lru_cache(maxsize=16)
def thinking_of(template: str) -> Thinking:
    """The marks that a chat template writes; if it writes none, those of most models."""
    return next((marks for marks in _KNOWN if all(map(template.__contains__, _all(marks)))), TAGS)


def _all(thinking: Thinking) -> tuple[str, ...]:
    return (thinking.begin.partition(">")[0], thinking.end, *thinking.around)


class Dialect:
    """A format in which models write tool calls.

    ``marks`` open calls anywhere; if ``bare``, a call may also begin a response without one.
    ``thinking``: the marks of reasoning, if templates combine them from parts.
    ``marks_forced_calls``: ``grammar`` includes them. ``answer_head`` is the text before a
    response. ``id_prefix`` and ``id_length`` describe the ids of calls.
    """

    name = ""
    marks: tuple[str, ...] = ()
    bare = False
    thinking: Thinking | None = None
    marks_forced_calls = True
    answer_head = ""
    id_prefix = "call_"
    id_length = 24

    @property
    def all_marks(self) -> tuple[str, ...]:
        """All delimiters that the parser looks for."""
        return self.marks

    @property
    def closers(self) -> tuple[str, ...]:
        """Delimiters that close calls; after a call they are not text."""
        return ()

    def dropped(self, reading: Reading) -> tuple[str, ...]:
        """Delimiters around text, which are not part of it."""
        return ()

    def claims(self, template: str) -> bool:
        """Whether a chat template uses this format."""
        raise NotImplementedError

    def read_calls(self, reading: Reading, mark: str) -> Steps[None]:
        """Parse what follows ``mark`` ("" for a bare call). Raises NoCallError."""
        raise NotImplementedError

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Return Lark rules for a response that consists of calls; ``calls`` is the first rule."""
        raise NotImplementedError

    def fitted(self, message: dict[str, Any]) -> dict[str, Any]:
        """Adapt a message to the templates of this dialect; common changes were made before."""
        return message

    def as_text(self, message: Mapping[str, Any], traits: Traits) -> Mapping[str, Any]:
        """Turn calls and tool results that the template would drop into text."""
        if message["role"] == "tool" and not (traits.results and traits.calls):
            answer = f"<tool_response>\n{message.get('content') or ''}\n</tool_response>"
            return {"role": "user", "content": answer}
        if message.get("tool_calls") and not traits.calls:
            kept = {key: value for key, value in message.items() if key != "tool_calls"}
            texts = [message["content"]] if message.get("content") else []
            texts.append(self.written([call["function"] for call in message["tool_calls"]]))
            return {**kept, "content": "\n".join(texts)}
        return message

    def written(self, functions: Sequence[Mapping[str, Any]]) -> str:
        """Write calls of functions, with their names and arguments, as text."""
        said = (
            {"name": function["name"], "arguments": function["arguments"]} for function in functions
        )
        texts = (json.dumps(call, ensure_ascii=False) for call in said)
        return "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in texts)

    def read(self, reading: Reading, thinking: Thinking, inside: bool) -> Steps[list[str]]:
        """Parse a whole response; ``inside``: it begins within reasoning.

        Returns the reasons why text that looked like a call was not one.
        """
        cursor, scribe, problems = reading.cursor, reading.scribe, list[str]()
        opening = self.marks if reading.tools else ()
        closing = self.closers if reading.tools else ()
        if inside:
            yield from cursor.white()
            for begin in thinking.begins:
                yield from cursor.skip(begin.lstrip(WHITE))
            yield from self._think(reading, thinking, problems)
        dropped = self.dropped(reading)
        ours = (*thinking.begins, *thinking.ends, *thinking.around)
        marks = (*ours, *opening, *closing, *dropped)
        while not reading.complete:
            if scribe.fresh and (scribe.calls or reading.forced):
                yield from cursor.white()
                if (yield from cursor.ends_within(marks)):
                    break
            bare = reading.bare and scribe.fresh and not (yield from reading.at(opening))
            if bare and (yield from self._try(reading, "", problems)):
                continue
            mark = yield from cursor.until(marks, scribe.text, final=True)
            if not mark:
                break
            if mark in dropped:
                scribe.turn()
            elif mark in opening:
                yield from self._try(reading, mark, problems)
            elif mark in thinking.around:
                self._enclose(reading, mark, thinking)
            elif not scribe.fresh or (mark in closing and not scribe.calls):
                scribe.text(mark)
            elif mark in thinking.begins:
                yield from self._think(reading, thinking, problems)
            else:  # the end of reasoning that did not take place, or of a finished call
                scribe.turn()
        scribe.end()
        return problems

    def _think(self, reading: Reading, thinking: Thinking, problems: list[str]) -> Steps[None]:
        """Parse reasoning, which may contain calls, up to its end or to a delimiter of text."""
        cursor, scribe = reading.cursor, reading.scribe
        ends = ("", *thinking.ends, *self.dropped(reading))
        marks = (*ends[1:], *(self.marks if reading.tools else ()))
        scribe.turn()
        while not reading.complete:
            mark = yield from cursor.until(marks, scribe.reasoning, final=True)
            if mark in ends:
                break
            yield from self._try(reading, mark, problems, scribe.reasoning)
        scribe.turn()
        for opening in thinking.around[:1]:
            yield from cursor.white()
            if (yield from cursor.ends_within((opening,))):
                cursor.at = len(cursor.text)
            elif (yield from cursor.skip(opening)):
                reading.enclosed = 1

    def _enclose(self, reading: Reading, mark: str, thinking: Thinking) -> None:
        """Drop the mark that closes the text after reasoning; others are text."""
        scribe = reading.scribe
        if reading.enclosed:
            reading.enclosed += 1 if mark == thinking.around[0] else -1
            if not reading.enclosed:
                scribe.turn()
                return
        scribe.text(mark)

    def _try(
        self, reading: Reading, mark: str, problems: list[str], give: Give | None = None
    ) -> Steps[bool]:
        """Parse calls, and return whether there was one; other text goes to ``give``.

        If only calls may follow, a call that ends before its tool is known is dropped.
        """
        cursor, scribe = reading.cursor, reading.scribe
        calls, begin = scribe.calls, cursor.at
        reading.commit()
        try:
            yield from self.read_calls(reading, mark)
            scribe.turn()
        except NoCallError as problem:
            if mark:
                problems.append(str(problem))
            if problem.at_end and (reading.cut or scribe.calls or reading.forced):
                cursor.at = len(cursor.text)
            else:
                cursor.at = reading.committed
                if scribe.calls == calls:
                    cursor.at = begin
                    (give or scribe.text)(mark)
            if scribe.calls > calls:
                scribe.turn()
        reading.in_call = False
        return scribe.calls > calls
