"""Messages, tools and forms of answers in OpenAI's schema, as a ChatJob takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from trinity.server.errors import ApiError
from trinity.server.schemas import Body

Role = Literal["system", "developer", "user", "assistant", "tool"]


class TextPart(Body):
    """A part of a message's content; only text is understood."""

    type: Literal["text"]
    text: str


class CalledFunction(Body):
    """The function that an assistant's message called, with the JSON text of its arguments."""

    name: str
    arguments: str


class ToolCall(Body):
    """A call in an assistant's message."""

    function: CalledFunction
    id: str | None = None
    type: Literal["function"] = "function"
    index: int | None = None


class Message(Body):
    """A message of a conversation."""

    role: Role
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    # What an answer of OpenAI's has, and may come back with: only empty.
    annotations: list[None] | None = None
    audio: None = None
    function_call: None = None

    def as_template_has_it(self) -> dict[str, Any]:
        """The message as chat templates know it: what is given, content as one text."""
        content = self.content
        if isinstance(content, list):
            content = "\n".join(part.text for part in content)
        if content is None and not self.tool_calls:
            content = self.refusal or ""
        found: dict[str, Any] = {
            "role": "system" if self.role == "developer" else self.role,
            "content": content,
        }
        for name in ("name", "tool_call_id", "reasoning_content"):
            value = getattr(self, name)
            if value is not None:
                found[name] = value
        if self.tool_calls:
            found["tool_calls"] = [
                {
                    **({} if call.id is None else {"id": call.id}),
                    "type": "function",
                    "function": {
                        "name": call.function.name,
                        "arguments": call.function.arguments,
                    },
                }
                for call in self.tool_calls
            ]
        return found


class Function(Body):
    """A function that may be called; ``parameters`` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Body):
    """A tool; functions are the only kind."""

    function: Function
    type: Literal["function"] = "function"


class NamedFunction(Body):
    """The name of a function."""

    name: str


class ToolChoice(Body):
    """The one function to call."""

    function: NamedFunction
    type: Literal["function"] = "function"

    @property
    def name(self) -> str:
        """Its name."""
        return self.function.name


def tools_of(tools: Sequence[Tool] | None) -> list[dict[str, Any]]:
    """Tools as chat templates know them."""
    found = []
    for tool in tools or ():
        function = {
            "name": tool.function.name,
            "description": tool.function.description,
            "parameters": tool.function.parameters,
            "strict": tool.function.strict,
        }
        given = {name: value for name, value in function.items() if value is not None}
        found.append({"type": "function", "function": given})
    return found


class TextForm(Body, tag_field="type", tag="text"):
    """Any text."""


class ObjectForm(Body, tag_field="type", tag="json_object"):
    """A JSON object, or as llama.cpp has it JSON that a schema allows."""

    schema: dict[str, Any] | bool | None = None


class Schema(Body):
    """A JSON schema and its name."""

    name: str | None = None
    schema: dict[str, Any] | bool | None = None
    description: str | None = None
    strict: bool | None = None


class SchemaForm(Body, tag_field="type", tag="json_schema"):
    """JSON that a schema allows."""

    json_schema: Schema


class ChoiceForm(Body, tag_field="type", tag="choice"):
    """One of several texts."""

    choices: list[str]


class GrammarForm(Body, tag_field="type", tag="grammar"):
    """A text that a grammar or a regular expression allows."""

    definition: str
    syntax: Literal["gbnf", "lark", "regex"]


ResponseFormat = TextForm | ObjectForm | SchemaForm | ChoiceForm | GrammarForm
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


def messages_of(messages: Sequence[Message], *, continues: bool = False) -> list[dict[str, Any]]:
    """Messages as chat templates know them.

    ``continues``: answers go on with the last one, whose parts are paragraphs then, as in
    llama.cpp's server.
    """
    found = [message.as_template_has_it() for message in messages]
    if continues and isinstance(messages[-1].content, list):
        found[-1]["content"] = "\n\n".join(part.text for part in messages[-1].content)
    return found


def continued(
    messages: Sequence[Message], add_generation_prompt: bool | None,
    continue_final_message: bool | None,
) -> bool:  # fmt: skip
    """Whether an answer goes on with the text of the last message.

    Where the request does not say it, it does if that is the assistant's, as in llama.cpp's
    server. Raises: ApiError where it cannot.
    """
    if continue_final_message and add_generation_prompt:
        raise ApiError(
            400, "an answer is begun or continued: add_generation_prompt and "
            "continue_final_message cannot both be true", "continue_final_message",
        )  # fmt: skip
    last = messages[-1]
    possible = last.role == "assistant" and not (last.tool_calls or last.reasoning_content)
    if continue_final_message and not possible:
        raise ApiError(
            400, "continue_final_message needs a last message that is a text of the assistant's",
            "continue_final_message",
        )  # fmt: skip
    if continue_final_message is None:
        found = possible and bool(last.content) and add_generation_prompt is None
    else:
        found = continue_final_message
    if found and len(messages) > 1 and messages[-2].role == "assistant":
        raise ApiError(
            400, "the answer would go on with the last of two messages of the assistant's; make "
            "them one", f"messages[{len(messages) - 1}]",
        )  # fmt: skip
    return found
