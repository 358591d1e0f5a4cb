"""JSON calls between delimiters of a model family."""

from __future__ import annotations

from trinity.conversation.dialects.json_calls import JsonCalls


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


GRANITE = Marked("granite", "<|tool_call|>")
PHI = Marked("phi", "<|tool_call|>", "<|/tool_call|>")
NEMOTRON = Marked("nemotron", "<TOOLCALL>", "</TOOLCALL>")
APRIEL = Marked("apriel", "<tool_calls>", "</tool_calls>")
COMMAND = Marked("command", "<|START_ACTION|>", "<|END_ACTION|>", arguments_key="parameters")
GIGACHAT = Marked("gigachat", "<|function_call|>", in_list=False)
