"""<invoke name="..."> and a tag for each argument: MiniMax, DeepSeek V3.2 and V4, dots."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trinity.conversation.cursor import Cursor, Give, NoCallError, Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Mark
from trinity.conversation.dialects.tagged import Tagged, Tags, definitions_of
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool
from trinity.conversation.values import as_json, escaped, is_cut, member_of, types_in
from trinity.grammar.schema import closed_schema

_TOKEN = "]<]minimax[>["  # before each tag of MiniMax M3
_CALL, _CALL_END = "<tool_call>", "</tool_call>"
_DEEPEST = 64  # elements within elements


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


class _Element:
    """An argument, or a part of one: it contains a text or other elements."""

    def __init__(self, name: str, schema: object) -> None:
        self.name, self.schema = name, schema
        self.text: list[str] = []
        self.members: list[tuple[str, str]] = []

    @property
    def is_empty(self) -> bool:
        """Whether it has no text yet."""
        return not "".join(self.text).strip()

    def inner(self, name: str) -> _Element:
        """Return a new element within this one."""
        items = self.schema.get("items") if isinstance(self.schema, Mapping) else None
        return _Element(name, items if self._is_list(name) else member_of(self.schema, name))

    def json(self) -> str:
        """Return the value as JSON. An empty element is an empty list or object if its type is."""
        types = types_in(self.schema)
        if self.members and all(self._is_list(name) for name, _ in self.members):
            values = [value for _, value in self.members]
            begins = {value[0] for value in values if value != '""'}
            empty = '""' if not begins or '"' in begins else "null"
            empty = {"[": "[]", "{": "{}"}.get("".join(begins), empty)  # as the others
            values = [empty if value == '""' else value for value in values]
            return f"[{', '.join(values)}]"
        if self.members:
            named = dict(self.members).items()
            pairs = (f"{json.dumps(name, ensure_ascii=False)}: {value}" for name, value in named)
            return f"{{{', '.join(pairs)}}}"
        if self.is_empty and types and "string" not in types:
            return "[]" if "array" in types else "{}" if "object" in types else '""'
        return as_json("".join(self.text), types)

    def _is_list(self, name: str) -> bool:
        types = types_in(self.schema)
        return name == "item" if not types or {"array", "object"} <= types else "array" in types


class MiniMaxM3(Invoke):
    """A tag has the name of its argument. Objects are tags in tags, lists are tags "item"."""

    name = "minimax-m3"
    tags = Tags(
        (_TOKEN + _CALL, _TOKEN + _CALL_END),
        (f'{_TOKEN}<invoke name="', '">'),
        f"{_TOKEN}</invoke>",
        (f"{_TOKEN}<", ">"),
        f"{_TOKEN}</",
    )

    def __init__(self) -> None:
        """Take the tags of the class."""

    @property
    def all_marks(self) -> tuple[str, ...]:
        """The tags, and the tokens in them."""
        return (*super().all_marks, _TOKEN, _CALL, _CALL_END)

    def claims(self, template: str) -> bool:
        """Recognize the token before tags."""
        return _TOKEN in template and "<invoke name=" in template

    def _argument(
        self, reading: Reading, tool: Tool, before: str, strays: list[str]
    ) -> Steps[bool]:
        """Parse one argument after the beginning of its tag, and return whether it was given."""
        name = yield from self._name(reading.cursor)
        if not name or name.startswith("/"):  # the end of another argument
            return False
        head = f"{before}{json.dumps(name, ensure_ascii=False)}: "
        schema = member_of(tool.parameters, name)
        if types_in(schema) != {"string"}:
            value = yield from self._nested(reading, _Element(name, schema))
            reading.give(head + value if value else "")
            return bool(value)
        reading.give(head + '"')
        yield from self._text(reading.cursor, name, lambda text: reading.give(escaped(text)))
        reading.give('"')
        return True

    def _name(self, cursor: Cursor) -> Steps[str]:
        """Return the name in a tag, "" if it has no end."""
        try:
            name, _ = yield from cursor.name((">",))
        except NoCallError as problem:
            if problem.at_end:
                cursor.at = len(cursor.text)
            return ""
        return name

    def _text(self, cursor: Cursor, name: str, give: Give) -> Steps[bool]:
        """Read text up to the next tag. If that ends ``name``, skip it and return True.

        Models sometimes omit the token before the end.
        """
        bare = f"</{name}>"
        end = yield from cursor.until((bare + _TOKEN, _TOKEN), give, part=False)
        cursor.at -= len(_TOKEN) * bool(end)
        return end == bare + _TOKEN or (yield from cursor.skip(_TOKEN + bare))

    def _nested(self, reading: Reading, element: _Element) -> Steps[str]:
        """Return the JSON of an element that has begun, "" if the text ends within a number."""
        cursor, path = reading.cursor, [element]

        def close() -> str:
            closed = path.pop()
            if path:
                path[-1].members.append((closed.name, closed.json()))
            return closed.name

        while path:
            newest = path[-1]
            if (yield from self._text(cursor, newest.name, newest.text.append)):
                close()
                continue
            if (yield from reading.at(self.closers)) or not (yield from cursor.peek()):
                break
            begin = cursor.at
            yield from cursor.skip(_TOKEN)
            if not (yield from cursor.skip("<")) or not (name := (yield from self._name(cursor))):
                continue
            if name.startswith("/"):
                while any(one.name == name[1:] for one in path) and close() != name[1:]:
                    pass
            elif not newest.is_empty:  # the end of a text is missing
                close()
                cursor.at = begin
            elif len(path) < _DEEPEST:
                path.append(newest.inner(name))
        newest = path[-1] if path else element
        at_end = not (yield from cursor.peek())
        if path and at_end and types_in(newest.schema) and is_cut("".join(newest.text)):
            path.pop()
            if newest is element:
                return ""
        while path:
            close()
        return element.json()

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Return elements in the schema's order; a string is any text up to its end."""
        rules: list[str] = []
        token = mark(_TOKEN)

        def body(tool: Tool) -> str:
            head = f"{token} {lark.text(f'<invoke name={json.dumps(tool.name)}>')}"
            parts = members(tool.parameters, definitions_of(tool))
            return f"{head} {parts} {token} {lark.text('</invoke>' + chr(10))}"

        def members(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
            required = schema.get("required") or ()
            elements = (
                element(name, one, definitions) + ("" if name in required else "?")
                for name, one in (schema.get("properties") or {}).items()
            )
            return " ".join(elements)

        def element(name: str, schema: Any, definitions: Mapping[str, Any]) -> str:
            rule = f"element_{len(rules)}"
            rules.append("")
            end = f"{token} {lark.text(f'</{name}>')}"
            whole = closed_schema(
                {**(schema if isinstance(schema, Mapping) else {}), **definitions}
            )
            kinds, items = types_in(schema), whole.get("items")
            if kinds == {"string"} and "enum" in whole:
                value = "(" + " | ".join(lark.text(str(one)) for one in whole["enum"]) + f") {end}"
            elif kinds == {"string"} and token.startswith("<"):  # no text contains a token
                rules.append(f"{rule}_text: /(.|\\n)*/")
                value = f"{rule}_text {end}"
            elif kinds == {"string"}:
                suffix = lark.text(f"{_TOKEN}</{name}>")
                rules.append(f"{rule}_text[suffix={suffix}]: /(.|\\n)*/")
                value = f"{rule}_text"
            elif kinds == {"object"} and whole.get("properties"):
                value = f"{members(whole, definitions)} {end}"
            elif kinds == {"array"} and isinstance(items, Mapping):
                value = f"{element('item', items, definitions)}* {end}"
            else:
                value = f"%json {json.dumps(whole)} {end}"
            rules[int(rule.removeprefix("element_"))] = (
                f"{rule}: {token} {lark.text(f'<{name}>')} {value}"
            )
            return rule

        first = f'{token} {mark(_CALL)} "\\n"'
        calls = f"calls: {first} call{'+' if parallel else ''} {token} {mark(_CALL_END)}\n"
        calls += lark.for_each(tools, "call", body, arguments=False)
        return calls + "\n".join(rules) + "\n"


MINIMAX = Invoke("minimax", "", "minimax:tool_call")
DSML_CALLS = Dsml("dsml", "function_calls")
MINIMAX_M3 = MiniMaxM3()
DOTS = Invoke("dots", "", "dots_function_call")
DSML_TOOLS = Dsml("dsml-tools", "tool_calls")
