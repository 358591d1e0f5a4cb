"""<invoke name="..."><parameter name="key">value</parameter>: MiniMax M2, DeepSeek V3.2 and V4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Mark
from trinity.conversation.dialects.tagged import Tagged, Tags


class Invoke(Tagged):
    """Several functions may be within one pair of delimiters; ``prefix`` begins each tag's name."""

    def __init__(self, name: str, prefix: str, calls: str) -> None:
        self.name = name
        self.tags = Tags(
            (f"<{calls}>", f"</{calls}>"),
            (f'<{prefix}invoke name="', '">'),
            f"</{prefix}invoke>",
            (f'<{prefix}parameter name="', '">'),
            f"</{prefix}parameter>",
        )

    def claims(self, template: str) -> bool:
        """Recognize the delimiter around calls."""
        return self.tags.call[0] in template

    def foot(self, mark: Mark) -> str:
        """Return the end of a call as the templates write it."""
        return f"{lark.text(self.tags.function_end + chr(10))} {mark(self.tags.call[1])}"


class Dsml(Invoke):
    """DeepSeek's variant: each argument says whether it is a string."""

    def __init__(self, name: str, calls: str) -> None:
        super().__init__(name, "｜DSML｜", f"｜DSML｜{calls}")
        self._calls = calls

    def claims(self, template: str) -> bool:
        """Recognize words that its templates combine."""
        return "DSML" in template and f">{self._calls}" in template.replace("'", "").replace(
            "dsml_token + ", ">"
        )

    def key_of(self, said: str, types: frozenset[str]) -> tuple[str, frozenset[str]]:
        """Split ``key" string="true``, which contains the name and the type."""
        key, _, is_string = said.partition('" string="')
        if is_string not in ("true", "false"):
            return key, types
        return key, frozenset(("string",)) if is_string == "true" else types - {"string"}

    def key_text(self, key: str, schema: Any) -> str:
        """Return the name with its attribute."""
        is_string = isinstance(schema, Mapping) and schema.get("type") == "string"
        return f'{key}" string="{"true" if is_string else "false"}'


MINIMAX = Invoke("minimax", "", "minimax:tool_call")
DSML_CALLS = Dsml("dsml", "function_calls")
DSML_TOOLS = Dsml("dsml-tools", "tool_calls")
