"""<tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen, Granite 4, ..."""

from __future__ import annotations

from trinity.conversation.dialects.json_calls import JsonCalls


class Hermes(JsonCalls):
    """A JSON object between two tags for each call.

    A call at an answer's beginning may lack them, for small models forget them.
    """

    name = "hermes"
    marks = ("<tool_call>",)
    bare = True
    closes = ("</tool_call>",)
    opening, closing, inner = "<tool_call>", "</tool_call>", "\n"

    def claims(self, template: str) -> bool:
        """By its tag, where there are none for arguments."""
        return "<tool_call>" in template and "<invoke name=" not in template
