"""<function=name><parameter=key>value</parameter></function>: Qwen 3 Coder and 3.5, Nemotron 3."""

from __future__ import annotations

from trinity.conversation.dialects.tagged import Tagged, Tags


class QwenCoder(Tagged):
    """Calls in <tool_call></tool_call>; Seed-OSS has a prefix there, and values on one line."""

    def __init__(self, name: str, prefix: str, *, break_lines: bool) -> None:
        self.name = name
        self.tags = Tags(
            (f"<{prefix}tool_call>", f"</{prefix}tool_call>"),
            ("<function=", ">"),
            "</function>",
            ("<parameter=", ">"),
            "</parameter>",
            break_lines=break_lines,
        )

    def claims(self, template: str) -> bool:
        """Recognize its tags."""
        tags = self.tags
        return all(mark in template for mark in (tags.call[0], tags.function[0], tags.key[0]))


QWEN_CODER = QwenCoder("qwen-coder", "", break_lines=True)
SEED = QwenCoder("seed", "seed:", break_lines=False)
