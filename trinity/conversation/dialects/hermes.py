"""<tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen, Granite 4, ..."""

from __future__ import annotations

from trinity.conversation.dialects.json_calls import JsonCalls


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
