"""Grammars and schemas that are slow to compile or to follow."""

from __future__ import annotations

import itertools

from tests.soak.attacks.target import CHAT, Target, attack

MESSAGES = [{"role": "user", "content": "x"}]
numbers = itertools.count()


def doubling() -> str:
    """A grammar of 1.2 KB whose states double with each rule; each call gives another one."""
    number = next(numbers)
    rules = "".join(f'a{i} ::= a{i + 1} a{i + 1} | "{i}{number}"\n' for i in range(60))
    return f'root ::= a0\n{rules}a60 ::= "z"\n'


@attack()
def doubling_grammars(target: Target) -> None:
    """Grammars that the compiler refuses after seconds, each another one, 20 at a time."""
    target.again(lambda: target.ask(CHAT, {"messages": MESSAGES, "grammar": doubling()}), 20)


@attack()
def the_same_doubling_grammar(target: Target) -> None:
    """One such grammar, asked for again and again by 20 clients."""
    body = {"messages": MESSAGES, "grammar": doubling()}
    target.again(lambda: target.ask(CHAT, body), 20)


@attack()
def huge_schemas(target: Target) -> None:
    """Schemas of 16,000 properties."""
    properties = {f"p{i}": {"type": "string", "maxLength": i % 50} for i in range(16_000)}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    chosen = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    target.again(lambda: target.ask(CHAT, {"messages": MESSAGES, "response_format": chosen}), 4)


@attack()
def patterns_that_explode(target: Target) -> None:
    """Patterns of strings with counters within counters, each another one."""

    def ask() -> None:
        pattern = f"^(((a{{1,90}}b?){{1,90}}c?){{1,90}}x{next(numbers)}){{1,90}}$"
        schema = {"type": "string", "pattern": pattern}
        chosen = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        target.ask(CHAT, {"messages": MESSAGES, "response_format": chosen})

    target.again(ask, 8)


@attack()
def many_tools(target: Target) -> None:
    """4,000 tools, one of which must be called."""
    tools = [
        {
            "type": "function",
            "function": {
                "name": f"tool_{i}",
                "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
            },
        }
        for i in range(4000)
    ]
    body = {"messages": MESSAGES, "tools": tools, "tool_choice": "required"}
    target.again(lambda: target.ask(CHAT, body), 4)


def form(schema: object) -> dict[str, object]:
    """A chat whose answer has a schema."""
    chosen = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return {"messages": MESSAGES, "max_tokens": 4, "response_format": chosen}


@attack()
def multiples_of_large_primes(target: Target) -> None:
    """Schemas that end the compiling process, each another one, 60 at a time."""

    def ask() -> None:
        target.ask(CHAT, form({"type": "integer", "multipleOf": 99_999_989 + 2 * next(numbers)}))

    target.again(ask, 60)


@attack()
def long_enums(target: Target) -> None:
    """Enums of 5,000 values, each another one, which are accepted and kept compiled."""

    def ask() -> None:
        number = next(numbers)
        target.ask(CHAT, form({"enum": [f"{number} {i * 7919 % 100_003}" for i in range(5000)]}))

    target.again(ask, 4)


@attack()
def choices_of_10000_texts(target: Target) -> None:
    """Choices of as many texts as the limit says, each another one."""

    def ask() -> None:
        number = next(numbers)
        texts = [f"{number} {i * 7919 % 100_003}" for i in range(10_000)]
        body = {"messages": MESSAGES, "max_tokens": 4, "structured_outputs": {"choice": texts}}
        target.ask(CHAT, body)

    target.again(ask, 4)


@attack()
def references_in_a_cycle(target: Target) -> None:
    """Schemas of 2,000 references each of which leads to the next, the last one to the first."""

    def ask() -> None:
        number = next(numbers)
        definitions = {f"d{i}": {"$ref": f"#/$defs/d{(i + 1) % 2000}"} for i in range(2000)}
        target.ask(CHAT, form({"$ref": f"#/$defs/d{number % 2000}", "$defs": definitions}))

    target.again(ask, 8)


@attack()
def blank_lines(target: Target) -> None:
    """Grammars of a million characters, nearly all of them ends of lines, each another one."""

    def ask() -> None:
        grammar = f'root ::= "{next(numbers)}"' + "\n" * 1_000_000
        target.ask(CHAT, {"messages": MESSAGES, "max_tokens": 4, "grammar": grammar})

    target.again(ask, 8)


@attack()
def tools_of_one_name(target: Target) -> None:
    """Send 58,000 tools with the same name; the server must refuse them before decoding."""
    body = {"messages": MESSAGES, "tools": [{"function": {"name": "x"}}] * 58_000}
    target.again(lambda: target.ask(CHAT, body), 8)


@attack()
def as_many_tools_as_are_decoded(target: Target) -> None:
    """16,000 tools of one name, which are decoded and then refused."""
    body = {"messages": MESSAGES, "tools": [{"function": {"name": "x"}}] * 16_000}
    target.again(lambda: target.ask(CHAT, body), 8)


@attack()
def tools_of_many_properties(target: Target) -> None:
    """Tools with 2,000 properties, others in each request, one of which must be called."""

    def ask() -> None:
        number = next(numbers)
        properties = {f"p{number}_{i}": {"type": "integer"} for i in range(2000)}
        parameters = {"type": "object", "properties": properties, "required": list(properties)}
        tool = {"type": "function", "function": {"name": "x", "parameters": parameters}}
        body = {"messages": MESSAGES, "tools": [tool], "tool_choice": "required", "max_tokens": 4}
        target.ask(CHAT, body)

    target.again(ask, 4)
