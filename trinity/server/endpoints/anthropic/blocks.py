"""Anthropic's content blocks and their conversion to messages for chat templates.

Documents and search results become text. Images are refused: the models read only text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from trinity.server.endpoints.messages import Content, image_part, joined, together
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable, Ignored
from trinity.server.schemas import Body, encode

FAILED = "Error: "  # prefix of a failed tool's result; chat templates have no flag for it
# A mark of a prefix to cache. It has no effect: the server caches every prompt.
CacheControl = Any


class CacheableBlock(Body, kw_only=True):
    """A block after which a request may ask to cache the prompt."""

    cache_control: CacheControl = None


class CitationsConfig(Body):
    """Whether the response may cite the block. It has no effect: responses have no citations."""

    enabled: Ignorable[Literal[False] | None] = None


class TextBlock(CacheableBlock, tag_field="type", tag="text"):
    """A block of text."""

    text: str
    citations: Any = None  # of an earlier response


class ImageSource(Body, tag_field="type", tag="base64"):
    """An image in base64."""

    data: str
    media_type: str | None = None


class ImageUrl(Body, tag_field="type", tag="url"):
    """The URL of an image."""

    url: str


class ImageBlock(CacheableBlock, tag_field="type", tag="image"):
    """An image in the request, or its URL, which is refused."""

    source: ImageSource | ImageUrl


class PlainSource(Body, tag_field="type", tag="text"):
    """The text of a document."""

    data: str
    media_type: str | None = None


class ContentSource(Body, tag_field="type", tag="content"):
    """The text of a document in several blocks."""

    content: str | list[TextBlock | ImageBlock]


class PdfSource(Body, tag_field="type", tag="base64"):
    """A PDF file; refused."""

    data: Any = None
    media_type: str | None = None


class UrlSource(Body, tag_field="type", tag="url"):
    """The URL of a document; refused, since the server fetches nothing."""

    url: Any = None


class FileSource(Body, tag_field="type", tag="file"):
    """A file in Anthropic's storage; refused."""

    file_id: Any = None


class DocumentBlock(CacheableBlock, tag_field="type", tag="document"):
    """A document."""

    source: PlainSource | ContentSource | PdfSource | UrlSource | FileSource
    title: str | None = None
    context: str | None = None
    citations: CitationsConfig | None = None


class SearchResultBlock(CacheableBlock, tag_field="type", tag="search_result"):
    """A result of the client's own search."""

    content: list[TextBlock]
    source: str
    title: str
    citations: CitationsConfig | None = None


class BrowserStateBlock(CacheableBlock, tag_field="type", tag="browser_state"):
    """The tabs of the client's browser; the model reads them as JSON."""

    tabs: list[Any]
    state_changes: list[Any] | None = None


class ToolReferenceBlock(CacheableBlock, tag_field="type", tag="tool_reference"):
    """The name of a tool that the client's tool search found."""

    tool_name: str


class ThinkingBlock(Body, tag_field="type", tag="thinking"):
    """Reasoning of an earlier response."""

    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Body, tag_field="type", tag="redacted_thinking"):
    """Encrypted reasoning of another server's model; ignored."""

    data: str


class CompactionBlock(CacheableBlock, tag_field="type", tag="compaction"):
    """A summary of earlier messages by another server; null if that failed."""

    content: str | None = None
    encrypted_content: Any = None
    signature: Any = None
    tool_changes: Any = None


class ToolUseBlock(CacheableBlock, tag_field="type", tag="tool_use"):
    """A tool call of an earlier response. ``caller`` has no effect."""

    id: str
    name: str
    input: dict[str, Any]
    caller: Any = None


class ServerBlock(CacheableBlock):
    """A tool call that Anthropic's server made in an earlier answer, or its result."""

    id: Any = None
    tool_use_id: Any = None
    name: Any = None
    server_name: Any = None
    input: Any = None
    content: Any = None
    is_error: Any = None
    caller: Any = None


class ServerToolUseBlock(ServerBlock, tag_field="type", tag="server_tool_use"):
    """A call."""


class WebSearchResultBlock(ServerBlock, tag_field="type", tag="web_search_tool_result"):
    """Pages that a search found, with encrypted content."""


class WebFetchResultBlock(ServerBlock, tag_field="type", tag="web_fetch_tool_result"):
    """A page."""


class CodeResultBlock(ServerBlock, tag_field="type", tag="code_execution_tool_result"):
    """The output of a program."""


class BashResultBlock(ServerBlock, tag_field="type", tag="bash_code_execution_tool_result"):
    """The output of a command."""


class ToolSearchResultBlock(ServerBlock, tag_field="type", tag="tool_search_tool_result"):
    """Names of tools. The model has all tools already."""


class EditorResultBlock(
    ServerBlock, tag_field="type", tag="text_editor_code_execution_tool_result"
):
    """The result of a change to a file."""


class AdvisorResultBlock(ServerBlock, tag_field="type", tag="advisor_tool_result"):
    """Another model's advice."""


class McpListingBlock(ServerBlock, tag_field="type", tag="mcp_tool_listing"):
    """The tools of an MCP server."""

    mcp_server_name: Any = None
    tools: Any = None


class FallbackBlock(ServerBlock, tag_field="type", tag="fallback", rename={"source": "from"}):
    """The place in a response after which another model wrote it."""

    source: Any = None
    to: Any = None
    trigger: Any = None


class McpToolUseBlock(ServerBlock, tag_field="type", tag="mcp_tool_use"):
    """A call to an MCP server."""


class McpResultBlock(ServerBlock, tag_field="type", tag="mcp_tool_result"):
    """The result of a call to an MCP server."""


ServerBlocks = (
    ServerToolUseBlock | WebSearchResultBlock | WebFetchResultBlock | CodeResultBlock
    | BashResultBlock | ToolSearchResultBlock | EditorResultBlock | AdvisorResultBlock
    | McpListingBlock | FallbackBlock | McpToolUseBlock | McpResultBlock
)  # fmt: skip
Readable = TextBlock | DocumentBlock | SearchResultBlock | ToolReferenceBlock | ImageBlock


class ToolResultBlock(CacheableBlock, tag_field="type", tag="tool_result"):
    """The result of a tool call."""

    tool_use_id: str
    content: str | list[Readable | BrowserStateBlock] | None = None
    is_error: bool | None = None


Block = (
    Readable | ThinkingBlock | RedactedThinkingBlock | CompactionBlock | ToolUseBlock
    | ToolResultBlock | ServerBlocks
)  # fmt: skip
_ASKED = (TextBlock, DocumentBlock, SearchResultBlock, ImageBlock, ToolResultBlock)
_KINDS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "user": _ASKED,
    "assistant": (
        TextBlock,
        ThinkingBlock,
        RedactedThinkingBlock,
        CompactionBlock,
        ToolUseBlock,
        ServerBlock,
    ),
    "system": (TextBlock,),
}


class AnthropicMessage(Body):
    """A message. For chat templates each tool result in it is a message of its own."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


def text_of(content: str | Sequence[TextBlock]) -> str:
    """Return the text of a string, or of text blocks joined by newlines."""
    return content if isinstance(content, str) else "\n".join(block.text for block in content)


def conversation_of(ignored: Ignored, messages: Sequence[AnthropicMessage]) -> list[dict[str, Any]]:
    """Convert messages for chat templates. Raises: ApiError for a block in the wrong role.

    Consecutive plain messages of one role are joined, as in Anthropic's API.
    """
    joined: list[dict[str, Any]] = []
    for number, message in enumerate(messages):
        for turn in _messages_of(ignored, message, f"messages[{number}]"):
            last = joined[-1] if joined else {}
            if turn["role"] != "system" and turn["role"] == last.get("role") and _plain(turn, last):
                last["content"] = together(last["content"], turn["content"])
            else:
                joined.append(turn)
    return joined


def _plain(*messages: dict[str, Any]) -> bool:
    return all(message.keys() == {"role", "content"} for message in messages)


def _messages_of(ignored: Ignored, message: AnthropicMessage, place: str) -> list[dict[str, Any]]:
    content, role = message.content, message.role
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    for number, block in enumerate(content):
        if not isinstance(block, _KINDS[role]):
            tag, where = block.__struct_config__.tag, f"{place}.content[{number}]"
            raise ApiError(400, f"{where}: {tag} cannot be part of a {role} message", where)
    if role == "assistant":
        return [_answered(ignored, content, place)]
    return _asked(role, content, place)


def _asked(role: str, content: Sequence[Block], place: str) -> list[dict[str, Any]]:
    """Convert a user message: tool results, and the texts and images between them."""
    results: list[dict[str, Any]] = []
    parts: list[str | dict[str, Any]] = []
    for number, block in enumerate(content):
        where = f"{place}.content[{number}]"
        if isinstance(block, ToolResultBlock):
            if parts:
                results.append({"role": role, "content": joined(parts)})
                parts = []
            result = _result(block, where)
            results.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": result})
        else:
            parts.append(_part(block, where))
    if parts or not results:
        results.append({"role": role, "content": joined(parts)})
    return results


def _result(block: ToolResultBlock, where: str) -> Content:
    content: Content = block.content if isinstance(block.content, str) else ""
    if isinstance(block.content, list):
        content = joined([
            _part(part, f"{where}.content[{i}]") for i, part in enumerate(block.content)
        ])  # fmt: skip
    if not block.is_error:
        return content
    return FAILED + content if isinstance(content, str) else joined([FAILED, *content])


def _part(block: Block | BrowserStateBlock, where: str) -> str | dict[str, Any]:
    """Return a block as text, or an image as a part. Raises: ApiError."""
    if not isinstance(block, ImageBlock):
        return _read(block, where)
    source, at = block.source, f"{where}.source"
    return image_part(source.data if isinstance(source, ImageSource) else source.url, at)


def _read(block: Block | BrowserStateBlock, where: str) -> str:
    """Return the text of a block, in the tags that Anthropic recommends. Raises: ApiError."""
    if isinstance(block, TextBlock):
        return block.text
    if isinstance(block, ToolReferenceBlock):
        return block.tool_name
    if isinstance(block, BrowserStateBlock):
        changes = {"state_changes": block.state_changes} if block.state_changes else {}
        return encode({"tabs": block.tabs, **changes}).decode()
    if isinstance(block, SearchResultBlock):
        return _tagged("search_result", block.source, block.title, None, text_of(block.content))
    if isinstance(block, DocumentBlock):
        source, at = block.source, f"{where}.source"
        if isinstance(source, PlainSource):
            return _tagged("document", None, block.title, block.context, source.data)
        if isinstance(source, ContentSource):
            texts = (
                [source.content]
                if isinstance(source.content, str)
                else [_read(part, f"{at}.content[{i}]") for i, part in enumerate(source.content)]
            )
            return _tagged("document", None, block.title, block.context, "\n".join(texts))
        raise ApiError(
            400,
            f"{at}.type: a document needs its text: PDF files, addresses and stored files are "
            "not supported; send its text as a source of the type text",
            f"{at}.type",
        )
    raise ApiError(
        400,
        f"{where}.type: images in documents are not supported; send them as blocks of the message",
        f"{where}.type",
    )


def _tagged(tag: str, source: str | None, title: str | None, context: str | None, text: str) -> str:
    named = {"source": source, "title": title, "context": context}
    lines = [f"<{name}>{value}</{name}>" for name, value in named.items() if value]
    return "\n".join([f"<{tag}>", *lines, text, f"</{tag}>"])


def _answered(ignored: Ignored, content: Sequence[Block], place: str) -> dict[str, Any]:
    given = [
        block.text if isinstance(block, TextBlock) else block.content
        for block in content
        if isinstance(block, TextBlock | CompactionBlock)
    ]
    texts = [text for text in given if text is not None]
    calls = [
        {
            "id": block.id,
            "type": "function",
            "function": {"name": block.name, "arguments": encode(block.input).decode()},
        }
        for block in content
        if isinstance(block, ToolUseBlock)
    ]
    for number, block in enumerate(content):
        failed = isinstance(block, CompactionBlock) and block.content is None
        if failed or isinstance(block, RedactedThinkingBlock | ServerBlock):
            ignored.add(f"{place}.content[{number}]")
    thought = [block.thinking for block in content if isinstance(block, ThinkingBlock)]
    answer: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts) if texts else None}
    if not texts and not calls:
        answer["content"] = ""
    if any(thought):
        answer["reasoning_content"] = "\n".join(filter(None, thought))
    if calls:
        answer["tool_calls"] = calls
    return answer
