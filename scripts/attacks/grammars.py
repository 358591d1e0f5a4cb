"""Grammars and schemas that cost much to compile, or to follow."""

from __future__ import annotations

import itertools

from scripts.attacks.target import CHAT, Target, attack

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
    """Schemas of 20,000 properties."""
    properties = {f"p{i}": {"type": "string", "maxLength": i % 50} for i in range(20_000)}
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
