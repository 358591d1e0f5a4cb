"""A fallback for templates without tools: a system text lists the tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trinity.conversation.dialects.hermes import Hermes

_TEXT = """\
You may call functions to help with what the user asks. To call one, write a JSON object with its \
name and its arguments within <tool_call></tool_call>:
<tool_call>
{"name": "function's name", "arguments": {"argument's name": "value"}}
</tool_call>
Its result then comes within <tool_response></tool_response>. The functions, as JSON:
"""


class General(Hermes):
    """The tags of Hermes, which models without a format of their own are most likely to know."""

    name = "general"

    def claims(self, template: str) -> bool:
        """Return False: this format is the fallback."""
        return False

    def with_tools(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        *,
        system: bool,
    ) -> list[Mapping[str, Any]]:
        """Add a text about the tools to a system message or, if not ``system``, the first message.

        Some templates refuse system messages.
        """
        functions = (json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
        listed = _TEXT + "\n".join(functions)
        first = messages[0].get("content")
        if messages[0]["role"] in ("system", "developer"):
            told = f"{first}\n\n{listed}" if first else listed
            return [{**messages[0], "content": told}, *messages[1:]]
        if not system and messages[0]["role"] == "user" and isinstance(first, list):
            parts = [{"type": "text", "text": listed}, *first]
            return [{**messages[0], "content": parts}, *messages[1:]]
        if not system and messages[0]["role"] == "user":
            return [{**messages[0], "content": f"{listed}\n\n{first}"}, *messages[1:]]
        return [{"role": "system", "content": listed}, *messages]
