"""to=NAME<|message|><atem:function_calls><atem:invoke name="NAME">...: Muse Glimmer."""

from __future__ import annotations

from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Mark
from trinity.conversation.dialects.minimax import Invoke
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool

_START, _MESSAGE, _END = "<|start|>", "<|message|>", "<|eom|>"


class Muse(Invoke):
    """Messages to the user, to a tool, or to the model itself, which is its reasoning."""

    answer_head = f" to=user{_MESSAGE}"

    def __init__(self) -> None:
        super().__init__("muse", "atem:", "atem:function_calls")

    @property
    def all_marks(self) -> tuple[str, ...]:
        """The tags, and the tokens of messages."""
        return (*super().all_marks, _START, _MESSAGE, _END, "<|eot|>")

    def dropped(self, reading: Reading) -> tuple[str, ...]:
        """The heads and ends of messages."""
        names = ("user", *reading.tools)
        # White space after a call is skipped before a mark is looked for.
        heads = tuple(f"{space}to={name}{_MESSAGE}" for space in (" ", "") for name in names)
        return (*heads, f"{_START}assistant", _END, "<|eot|>")

    def sequence(self, *, parallel: bool, mark: Mark) -> str:
        """Return a message for each call."""
        return lark.repeated("call", f'{mark(_END)} {mark(_START)} "assistant"', parallel)

    def head(self, tool: Tool, mark: Mark) -> str:
        """Return the head of a message, and the text before the arguments."""
        return f"{lark.text(f' to={tool.name}')} {mark(_MESSAGE)} {super().head(tool, mark)}"


MUSE = Muse()
