"""A Go template, and its rendering of a conversation as in Ollama.

Source: Ollama's template/template.go, Parse, Vars, Execute and deleteNode.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from trinity.errors import TokenizerError, UnsupportedError
from trinity.tokenizers.go_template import nodes
from trinity.tokenizers.go_template.budget import Budget
from trinity.tokenizers.go_template.evaluator import Evaluator
from trinity.tokenizers.go_template.functions import NAMES
from trinity.tokenizers.go_template.messages import (
    TemplateMessage,
    characters,
    collated,
    read_messages,
)
from trinity.tokenizers.go_template.parser import parse
from trinity.tokenizers.go_template.tools import read_tools
from trinity.tokenizers.go_template.values import NOTHING, Map, Slice, Value

LONGEST_TEMPLATE = 1 << 17  # in characters, as for Jinja templates
_RESPONSE = "Response"
_TRIALS: tuple[tuple[dict[str, str], ...], ...] = (
    ({"role": "user", "content": "Hello"},),
    (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "Who is there?"},
    ),
)


class GoTemplate:
    """A parsed template. ``names``: the fields and variables in it, in lower case.

    Raises TokenizerError if it is malformed, UnsupportedError if it uses unsupported features.
    """

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST_TEMPLATE:
            raise TokenizerError(
                f"the Go template has {len(text)} characters; at most {LONGEST_TEMPLATE} are "
                "allowed"
            )
        self._tree = parse(text, NAMES)
        self.names = {name.lower() for name in self._identifiers()}
        if not self.names & {"messages", "response"}:
            response = nodes.Pipe(0, commands=[[nodes.FieldNode([_RESPONSE])]])
            self._tree.body.append(nodes.Action(response))
            self.names.add("response")
        self._last = [] if "messages" in self.names else _cut(self._tree.body)

    def try_out(self) -> None:
        """Render plain conversations. Raises as ``render``."""
        for trial in _TRIALS:
            self.render(trial)

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        prompt: str = "",
        suffix: str = "",
        tools: Sequence[Mapping[str, object]] | None = None,
        think: bool | None = None,
    ) -> str:
        """Render a conversation, up to where the assistant's response starts.

        With ``prompt`` and ``suffix``, render a text with a gap instead. A template with .Prompt
        for each turn does not list ``tools``. ``think`` is None if the request does not set it.

        Raises TokenizerError if the template fails or costs too much, UnsupportedError for
        unsupported features, InputError for malformed messages and tools.
        """
        read = read_messages(messages)
        system, joined = collated(read)
        listed = read_tools(tools)
        size = characters(read) + len(prompt) + len(suffix) + len(json.dumps(tools or ()))
        budget = Budget(len(read), size)
        thinking: dict[str, Value] = {
            "Think": bool(think),
            "ThinkLevel": "",
            "IsThinkSet": think is not None,
        }
        if prompt and suffix:
            return self._once(
                budget, {"Prompt": prompt, "Suffix": suffix, _RESPONSE: "", **thinking}
            )
        if "messages" in self.names:
            whole = Slice.of([message.value() for message in joined] if joined else None)
            values = {"System": system, "Messages": whole, "Tools": listed, **thinking}
            return self._once(budget, {**values, _RESPONSE: ""})
        return self._in_turns(joined, budget, thinking)

    def _once(self, budget: Budget, values: dict[str, Value]) -> str:
        return Evaluator(budget, self._tree.defined).text(self._tree.body, Map(values))

    def _in_turns(
        self, messages: Sequence[TemplateMessage], budget: Budget, thinking: dict[str, Value]
    ) -> str:
        """Render turn by turn; the last one ends at the response."""
        parts: list[str] = []
        turn = {"System": "", "Prompt": "", _RESPONSE: ""}
        for message in messages:
            if (message.role == "system" and (turn["Prompt"] or turn[_RESPONSE])) or (
                message.role == "user" and turn[_RESPONSE]
            ):
                parts.append(self._once(budget, {**turn, **thinking}))
                turn = dict.fromkeys(turn, "")
            key = {"system": "System", "user": "Prompt", "assistant": _RESPONSE}.get(message.role)
            if key is not None:
                turn[key] = message.content
        # Ollama makes a new template of the rest, without its functions and other templates.
        last = Evaluator(budget, {}, missing=NOTHING, go_only=True)
        parts.append(last.text(self._last, Map({**turn, **thinking})))
        return "".join(parts)

    def _identifiers(self) -> Iterator[str]:
        for body in (self._tree.body, *self._tree.defined.values()):
            yield from _names_in(body)


def _names_in(part: nodes.Body | nodes.Statement | nodes.Operand) -> Iterator[str]:
    """Yield the names of fields and variables, except those within chains, as Ollama does."""
    if isinstance(part, list):
        for statement in part:
            yield from _names_in(statement)
    elif isinstance(part, nodes.Action | nodes.CallNode):
        yield from _names_in(part.pipe)
    elif isinstance(part, nodes.Branch):
        yield from _names_in(part.pipe)
        yield from _names_in(part.body)
        yield from _names_in(part.otherwise or [])
    elif isinstance(part, nodes.Pipe):
        for command in part.commands:
            for operand in command:
                yield from _names_in(operand)
    elif isinstance(part, nodes.FieldNode):
        yield from part.names
    elif isinstance(part, nodes.Variable):
        yield part.name
        yield from part.names


def _cut(body: nodes.Body) -> nodes.Body:
    """Return the body up to its response, without anything after it.

    As in Ollama, arguments after the response are removed, and with them an action with an empty
    command. Raises UnsupportedError for an {{else}} after it, on which Ollama fails.
    """
    return _Cut().body(body)


class _Cut:
    def __init__(self) -> None:
        self.done = False

    def body(self, body: nodes.Body) -> nodes.Body:
        kept: nodes.Body = []
        for statement in body:
            if self.done:
                break
            if isinstance(statement, nodes.Action):
                pipe = self.pipe(statement.pipe)
                if pipe is not None:
                    kept.append(nodes.Action(pipe))
            elif isinstance(statement, nodes.Branch):
                kept.append(self.branch(statement))
            else:
                kept.append(statement)
        return kept

    def branch(self, branch: nodes.Branch) -> nodes.Branch:
        body, otherwise = self.body(branch.body), branch.otherwise
        if otherwise is not None:
            if self.done:
                raise UnsupportedError(
                    "the Go template has an {{else}} after its .Response, which is not supported"
                )
            otherwise = self.body(otherwise)
        return nodes.Branch(branch.kind, branch.pipe, body, otherwise)

    def pipe(self, pipe: nodes.Pipe) -> nodes.Pipe | None:
        commands = []
        for command in pipe.commands:
            kept = [operand for operand in map(self.operand, command) if operand is not None]
            if not kept:
                return None
            commands.append(kept)
        return nodes.Pipe(pipe.line, pipe.declared, pipe.assigns, commands)

    def operand(self, operand: nodes.Operand) -> nodes.Operand | None:
        if isinstance(operand, nodes.FieldNode) and _RESPONSE in operand.names:
            self.done = True
            return operand
        if self.done:
            return None
        return self.pipe(operand) if isinstance(operand, nodes.Pipe) else operand
