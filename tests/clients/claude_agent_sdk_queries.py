"""Anthropic's Agent SDK for Python, which runs the Claude Code that it contains."""

# packages: claude-agent-sdk==0.2.184

from __future__ import annotations

import asyncio
import os
import tempfile
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ResultMessage,
    TextBlock,
    create_sdk_mcp_server,
    query,
    tool,
)
from rows import SCRIPTED, SCRIPTED_URL, main, row

os.environ |= {
    "ANTHROPIC_BASE_URL": SCRIPTED_URL, "ANTHROPIC_AUTH_TOKEN": "none", "ANTHROPIC_API_KEY": "",
    "HOME": tempfile.mkdtemp(), "IS_SANDBOX": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}  # fmt: skip
HELLO = "Hello! How can I help you today?"
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}


async def answered(text: str, **more: Any) -> tuple[str, ResultMessage]:
    said, result = "", None
    options = ClaudeAgentOptions(model=SCRIPTED, cwd=tempfile.mkdtemp(), **more)
    async for message in query(prompt=text, options=options):
        if isinstance(message, AssistantMessage):
            for block in message.content:
                said = block.text if isinstance(block, TextBlock) else said
        elif isinstance(message, ResultMessage):
            result = message
    assert result is not None
    assert not result.is_error
    return said, result


def ask(text: str, **more: Any) -> tuple[str, ResultMessage]:
    return asyncio.run(answered(text, **more))


@row("query")
def _() -> None:
    assert ask("Say hello.")[0] == HELLO


@row("query with partial messages")
def _() -> None:
    assert ask("Say hello.", include_partial_messages=True)[0] == HELLO


@row("query runs a command")
def _() -> None:
    text = "Write forty-two into answer.txt."
    allowed = {"allowed_tools": ["Bash"], "permission_mode": "acceptEdits"}
    assert ask(text, **allowed)[0] == "answer.txt now has 42."


@tool("get_weather", "The weather of a city", {"city": str})
async def get_weather(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"18 degrees in {arguments['city']}"}]}


@row("query finds an own tool by ToolSearch and calls it")
def _() -> None:
    servers = {"w": create_sdk_mcp_server("w", tools=[get_weather])}
    allowed = ["mcp__w__get_weather"]
    found = ask("What is the weather in Paris?", mcp_servers=servers, allowed_tools=allowed)
    assert found[0] == "It is 18 degrees in Paris."


@row("query with output_format")
def _() -> None:
    form = {"type": "json_schema", "schema": PERSON}
    found = ask("A Person called Ann as JSON, please.", output_format=form)
    assert found[1].structured_output == {"name": "Ann", "age": 40}


if __name__ == "__main__":
    main()
