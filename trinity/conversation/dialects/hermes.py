"""<tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen, Granite 4, ..."""

from __future__ import annotations

from trinity.conversation.dialects.dialect import TAGS
from trinity.conversation.dialects.json_calls import JsonCalls
from trinity.conversation.reading import Reading


class Hermes(JsonCalls):
    """A JSON object between two tags for each call.

    A call at the beginning of a response may lack them, because small models forget them.
    """

    name = "hermes"
    marks = ("<tool_call>",)
    bare = True
    closes = ("</tool_call>",)
    opening, closing, inner = "<tool_call>", "</tool_call>", "\n"

    def claims(self, template: str) -> bool:
        """Recognize its tag in templates without tags for arguments."""
        return "<tool_call>" in template and "<invoke name=" not in template


class Ernie(Hermes):
    """Calls as in ``Hermes``; text is enclosed in tags of its own: ERNIE 4.5 Thinking."""

    name = "ernie"
    thinking = TAGS
    answer_head = "<response>\n"

    @property
    def all_marks(self) -> tuple[str, ...]:
        """The tags of calls and of text."""
        return (*super().all_marks, *_RESPONSE)

    def dropped(self, reading: Reading) -> tuple[str, ...]:
        """The tags of text."""
        return _RESPONSE

    def claims(self, template: str) -> bool:
        """Recognize both tags."""
        return super().claims(template) and _RESPONSE[0] in template


class LongCatJson(Hermes):
    """Calls as in ``Hermes``, with other tags: LongCat-Flash-Chat."""

    name = "longcat-json"
    marks = ("<longcat_tool_call>",)
    closes = ("</longcat_tool_call>",)
    opening, closing, between = "<longcat_tool_call>", "</longcat_tool_call>", ""

    def claims(self, template: str) -> bool:
        """Recognize its tag."""
        return self.opening in template


_RESPONSE = ("<response>", "</response>")
