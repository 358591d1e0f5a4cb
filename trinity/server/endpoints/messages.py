"""Messages, tools and forms of answers in OpenAI's schema, as a ChatJob takes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from trinity.server.endpoints.tools import Function, arguments_of
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable, Ignored
from trinity.server.schemas import Body

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
TEXTS = {
    "text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal",
    "thinking": None, "reasoning": None,
}  # fmt: skip


Content = str | list[dict[str, Any]]  # with images, it is a list of parts


class TextPart(Body):
    """A part of a message's content; only text is supported."""

    type: Literal["text"]
    text: str


class CalledFunction(Body):
    """The function that an assistant's message called, with its arguments, as JSON text or not."""

    name: str
    arguments: str | dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The JSON text of the arguments."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments or {}, ensure_ascii=False)


class CalledCustom(Body):
    """The custom tool that an assistant's message called, with its input."""

    name: str
    input: str = ""


class ToolCall(Body):
    """A call in an assistant's message."""

    function: CalledFunction | None = None
    custom: CalledCustom | None = None
    id: str | None = None
    type: Literal["function", "custom"] = "function"
    index: int | None = None

    def as_template_has_it(self, where: str) -> dict[str, Any]:
        """Return the call for chat templates. Raises: ApiError for a call without a function."""
        if self.function is not None:
            called = {"name": self.function.name, "arguments": self.function.text}
        elif self.custom is not None:
            called = {"name": self.custom.name, "arguments": arguments_of(self.custom.input)}
        else:
            raise ApiError(400, f"{where}: a call needs a function", where)
        named = {} if self.id is None else {"id": self.id}
        return {**named, "type": "function", "function": called}


class Message(Body):
    """A message of a conversation.

    ``reasoning`` is vLLM's name of ``reasoning_content``; ``function_call`` and the role function
    are OpenAI's older ones of ``tool_calls`` and tool.
    """

    role: Role
    content: str | list[str | dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    function_call: CalledFunction | None = None
    # Fields of OpenAI's responses that clients may send back.
    annotations: Ignorable[list[None] | None] = None
    audio: Ignorable[None] = None

    @property
    def thought(self) -> str | None:
        """The reasoning before this message."""
        return self.reasoning_content or self.reasoning

    def as_template_has_it(
        self, ignored: Ignored, where: str, between: str = "\n"
    ) -> dict[str, Any]:
        """The message in the form of chat templates: only the given fields, content as one text.

        ``between`` joins the texts of the content. With images, it is a list of parts. Raises:
        ApiError for audio and files.
        """
        calls = [
            call.as_template_has_it(f"{where}.tool_calls[{number}]")
            for number, call in enumerate(self.tool_calls or ())
        ]
        if self.function_call is not None:
            calls.append(ToolCall(self.function_call).as_template_has_it(where))
        content: Content | None = None
        if isinstance(self.content, list):
            content = content_of(ignored, self.content, f"{where}.content", between)
        else:
            content = self.content
        if content is None and not calls:
            if self.refusal is None and self.role == "user":
                told = "is missing: give a text, or a list of parts"
                raise ApiError(400, f"{where}.content {told}", f"{where}.content")
            content = self.refusal or ""
        role = {"developer": "system", "function": "tool"}.get(self.role, self.role)
        message: dict[str, Any] = {"role": role, "content": content}
        given = {
            "name": self.name,
            "tool_call_id": self.tool_call_id,
            "reasoning_content": self.thought,
        }
        message |= {name: value for name, value in given.items() if value is not None}
        if calls:
            message["tool_calls"] = calls
        return message


def content_of(
    ignored: Ignored, content: Sequence[str | dict[str, Any]], where: str, between: str = "\n"
) -> str | list[dict[str, Any]]:
    """Return a message's parts as one text, or as a list if there are images.

    Raises: ApiError for audio and files, and for images that are not in the request.
    """
    return joined(_parts(ignored, content, where), between)


def joined(parts: Sequence[str | dict[str, Any]], between: str = "\n") -> Content:
    """Return texts and images as one text, or as a list of parts if there are images."""
    if all(isinstance(part, str) for part in parts):
        return between.join(str(part) for part in parts)
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]


def together(first: Content, second: Content) -> Content:
    """Return the contents of two messages as one."""
    return joined([
        part
        for content in (first, second)
        for part in (content if isinstance(content, list) else [content] if content else [])
    ])  # fmt: skip


def image_part(given: object, where: str) -> dict[str, Any]:
    """Return the part of an image for chat templates: of a URL, or of base64 alone.

    The image is fetched or decoded later, in a thread. Raises: ApiError for URLs of other kinds
    than data, http, https and file.
    """
    if not isinstance(given, str) or not given:
        raise ApiError(
            400, f"{where}: expected an image as a data URL or in base64, got {given!r:.60}", where
        )
    if given.startswith("data:"):
        return {"type": "image_url", "image_url": given}
    if given.startswith(("http://", "https://", "file://")):
        return {"type": "image", "fetched_url": given, "where": where}
    if ":" in given[:16]:
        raise ApiError(
            400,
            f"{where}: {given!r:.60} is not fetched; send the image itself, as a URL that begins "
            "with data:image/png;base64,",
            where,
        )
    return {"type": "image", "base64": given}


def _parts(
    ignored: Ignored, content: Sequence[str | dict[str, Any]], where: str
) -> list[str | dict[str, Any]]:
    parts: list[str | dict[str, Any]] = []
    for number, part in enumerate(content):
        at = f"{where}[{number}]"
        if isinstance(part, str):
            parts.append(part)
            continue
        kind = part.get("type", "text")
        if kind in ("image_url", "input_image"):
            given = part.get("image_url")
            given = given.get("url") if isinstance(given, dict) else given
            parts.append(image_part(given, f"{at}.image_url"))
            continue
        if not isinstance(kind, str) or kind not in TEXTS:
            raise ApiError(
                400,
                f"{at}.type is {kind!r:.80}; models read text and images, not audio or files",
                f"{at}.type",
            )
        key = TEXTS[kind]
        if key is None:
            ignored.add(at)
            continue
        text = part.get(key)
        if not isinstance(text, str):
            raise ApiError(400, f"{at}.{key}: expected a text, got {text!r:.80}", f"{at}.{key}")
        for name in part.keys() - {"type", key}:
            if part[name] is not None:
                ignored.add(f"{at}.{name}")
        parts.append(text)
    return parts


class ToolBody(Body):
    """A tool; functions are the only kind."""

    function: Function
    type: Literal["function"] = "function"


def tools_of(tools: Sequence[ToolBody] | None) -> list[dict[str, Any]]:
    """Convert tools for chat templates."""
    functions = []
    for tool in tools or ():
        function = {
            "name": tool.function.name,
            "description": tool.function.description,
            "parameters": tool.function.parameters,
            "strict": tool.function.strict,
        }
        given = {name: value for name, value in function.items() if value is not None}
        functions.append({"type": "function", "function": given})
    return functions


class TextForm(Body, tag_field="type", tag="text"):
    """Any text."""


class ObjectForm(Body, tag_field="type", tag="json_object"):
    """A JSON object; with llama.cpp's ``schema``, JSON that fits the schema."""

    schema: dict[str, Any] | bool | None = None


class Schema(Body):
    """A JSON schema and its name."""

    name: str | None = None
    schema: dict[str, Any] | bool | None = None
    description: str | None = None
    strict: bool | None = None


class SchemaForm(Body, tag_field="type", tag="json_schema"):
    """JSON that fits a schema."""

    json_schema: Schema


class ChoiceForm(Body, tag_field="type", tag="choice"):
    """One of several texts."""

    choices: list[str]


class GrammarForm(Body, tag_field="type", tag="grammar"):
    """A text that fits a grammar or a regular expression."""

    definition: str
    syntax: Literal["gbnf", "lark", "regex"]


ResponseFormat = TextForm | ObjectForm | SchemaForm | ChoiceForm | GrammarForm
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


def messages_of(
    ignored: Ignored, messages: Sequence[Message], *, continues: bool = False
) -> list[dict[str, Any]]:
    """Messages as chat templates know them.

    ``continues``: answers go on with the last one, whose parts are paragraphs then, as in
    llama.cpp's server.
    """
    last = len(messages) - 1
    return [
        message.as_template_has_it(
            ignored, f"messages[{number}]", "\n\n" if continues and number == last else "\n"
        )
        for number, message in enumerate(messages)
    ]


def continued(
    messages: Sequence[Message],
    add_generation_prompt: bool | None,
    continue_final_message: bool | None,
) -> bool:
    """Whether a response continues the text of the last message.

    Where the request does not say it, it does if that is the assistant's, as in llama.cpp's
    server. Raises: ApiError where it cannot.
    """
    if continue_final_message and add_generation_prompt:
        raise ApiError(
            400,
            "add_generation_prompt and continue_final_message cannot both be true",
            "continue_final_message",
        )
    last = messages[-1]
    possible = last.role == "assistant" and not (
        last.tool_calls or last.function_call or last.thought
    )
    if continue_final_message and not possible:
        raise ApiError(
            400,
            "continue_final_message needs text of the assistant as the last message",
            "continue_final_message",
        )
    if continue_final_message is None:
        continues = possible and bool(last.content) and add_generation_prompt is None
    else:
        continues = continue_final_message
    if continues and len(messages) == 1:
        raise ApiError(
            400,
            "the only message is the assistant's; there must be a message before it",
            "messages",
        )
    if continues and messages[-2].role == "assistant":
        raise ApiError(
            400,
            "the response would continue the last of two assistant messages; join them into one",
            f"messages[{len(messages) - 1}]",
        )
    return continues
