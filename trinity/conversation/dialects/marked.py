"""JSON calls between delimiters of a model family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Mark
from trinity.conversation.dialects.json_calls import JsonCalls
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool


class Marked(JsonCalls):
    """Calls between two delimiters, of which the second may be missing; most in a list."""

    bare = True

    def __init__(
        self, name: str, opening: str, closing: str = "", *, arguments_key: str = "arguments",
        in_list: bool = True,
    ) -> None:  # fmt: skip
        self.in_list = in_list
        self.name = name
        self.marks = (opening,)
        self.closes = (closing,) if closing else ()
        self.opening, self.closing = opening, closing
        self.arguments_key = arguments_key

    def claims(self, template: str) -> bool:
        """Recognize the delimiters."""
        return self.opening in template and self.closing in template


class InLines(Marked):
    """All calls between one pair of delimiters, each in a line: MiniMax M1."""

    def claims(self, template: str) -> bool:
        """Recognize the delimiters, and its beginning of a message."""
        return super().claims(template) and "<beginning_of_sentence>" in template

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Return objects in lines."""
        more = "+" if parallel else ""
        calls = f'calls: {mark(self.opening)} "\\n" one{more} {mark(self.closing)}\n'
        rest = lark.for_each(tools, "call", self.body)
        return calls + 'one: call "\\n"\n' + rest

    def written(self, functions: Sequence[Mapping[str, Any]]) -> str:
        """Write objects in lines."""
        texts = [super(InLines, self).written([function]) for function in functions]
        inner = (text.removeprefix(self.opening).removesuffix(self.closing) for text in texts)
        return "\n".join((self.opening, *inner, self.closing))


class FunctionRole(Marked):
    """A message of the role "function call": GigaChat 3."""

    def __init__(self) -> None:
        super().__init__("gigachat-3", f"{_SEPARATOR}\n\nfunction call{_ROLE}\n", in_list=False)

    @property
    def all_marks(self) -> tuple[str, ...]:
        """The tokens within the delimiter."""
        return (self.opening, _SEPARATOR, _ROLE)

    def dropped(self, reading: Reading) -> tuple[str, ...]:
        """Texts to drop: the end of a message, and the header of a following one."""
        return (f"{_SEPARATOR}\n\nassistant{_ROLE}\n", _SEPARATOR) if reading.tools else ()

    def claims(self, template: str) -> bool:
        """Recognize the tokens and the role."""
        return _SEPARATOR in template and _ROLE in template and "function call" in template

    def open_in(self, mark: Mark) -> str:
        """Return the delimiter with its tokens."""
        return lark.spelled(self.opening, mark)


_SEPARATOR, _ROLE = "<|message_sep|>", "<|role_sep|>"
MINIMAX_M1 = InLines("minimax-m1", "<tool_calls>", "</tool_calls>", in_list=False)
GIGACHAT_3 = FunctionRole()
GRANITE = Marked("granite", "<|tool_call|>")
PHI = Marked("phi", "<|tool_call|>", "<|/tool_call|>")
NEMOTRON = Marked("nemotron", "<TOOLCALL>", "</TOOLCALL>")
APRIEL = Marked("apriel", "<tool_calls>", "</tool_calls>")
COMMAND = Marked("command", "<|START_ACTION|>", "<|END_ACTION|>", arguments_key="parameters")
GIGACHAT = Marked("gigachat", "<|function_call|>", in_list=False)
