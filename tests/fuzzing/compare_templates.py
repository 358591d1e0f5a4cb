"""Render chat templates with trinity and with plain Jinja2, and compare the texts.

    python tests/fuzzing/compare_templates.py FOLDER_OR_SOURCE_PACKAGE

Takes every *.jinja file below a folder, or in a .tar.gz: llama.cpp's lie in the source package of
llama-cpp-python (`pip download --no-deps --no-binary llama-cpp-python llama-cpp-python`). The other
side is transformers' own compiler of templates where it is installed, else Jinja2 set up in the
same way. Both must give the same text, or both fail. Ends with status 1 where they differ.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import nodes, pass_eval_context
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from trinity.tokenizers.chat import render_chat

Render = Callable[[dict[str, Any]], str]


class Generation(Extension):
    """transformers' tag {% generation %}."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_support")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    @pass_eval_context
    def _support(self, context: Any, caller: Any) -> str:
        return caller()


def plain_compiler(source: str) -> Any:
    """Compile a template in Jinja2 with transformers' settings."""

    def raise_exception(message: str) -> None:
        raise ValueError(message)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(source)


def compiler() -> tuple[str, Callable[[str], Any]]:
    """Return the name and the compiler of the reference."""
    try:
        import transformers
        from transformers.utils.chat_template_utils import _compile_jinja_template
    except ImportError:
        return "Jinja2 with transformers' settings", plain_compiler
    return f"transformers {transformers.__version__}", _compile_jinja_template


def templates(where: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of each template."""
    if where.is_dir():
        for path in sorted(where.rglob("*.jinja")):
            yield path.name, path.read_text("utf-8")
        return
    with tarfile.open(where) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            file = archive.extractfile(member) if member.name.endswith(".jinja") else None
            if file is not None:
                yield Path(member.name).name, file.read().decode("utf-8")


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def called(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": "call00001", "type": "function", "function": function, **more}


def conversations() -> dict[str, list[dict[str, Any]]]:
    """Return conversations as clients send them."""
    ask, reply = said("user", "What is 2 + 2?"), said("assistant", "4")
    system = said("system", "You are  terse.\n")
    call = said("assistant", "", tool_calls=[called("weather", {"city": "Zürich", "days": 3})])
    result = said("tool", '{"temp": 21.5}', name="weather", tool_call_id="call00001")
    as_text = said("assistant", None, tool_calls=[called("f", '{"a": 1}')])
    parts = [{"type": "text", "text": "Look:"}, {"type": "image"}, {"type": "text", "text": "ok?"}]
    thought = said("assistant", "Four.", reasoning_content="2 and 2\nis 4")
    tagged = said("assistant", "<think>\nhm\n</think>\n\nFour.")
    return {
        "one": [ask],
        "system": [system, ask],
        "turns": [ask, reply, said("user", "And 3 + 3?")],
        "turns with system": [system, ask, reply, said("user", "More"), reply, said("user", "!")],
        "ends with the assistant": [ask, reply],
        "unicode": [
            said("system", "é\u0301"),
            said("user", "日本 🙂 \u200d <b> & \"q\" 'a' {{ x }}"),
        ],
        "empty": [said("user", "")],
        "spaces": [said("user", "  \n a \t\n\n")],
        "parts": [system, said("user", parts)],
        "one part": [said("user", [{"type": "text", "text": "Hi"}]), reply, ask],
        "null content": [ask, said("assistant", None), ask],
        "call": [system, ask, call, result],
        "call answered": [ask, call, result, said("assistant", "21.5 degrees"), said("user", "Ta")],
        "call as text": [ask, as_text, result],
        "two calls": [
            ask,
            said("assistant", "So:", tool_calls=[called("f", {}), called("g", {"x": [1, None]})]),
            said("tool", "1", name="f", tool_call_id="call00001"),
            said("tool", "2", name="g", tool_call_id="call00002"),
        ],
        "reasoning": [ask, thought, said("user", "Sure?"), thought, said("user", "Go on")],
        "think tags": [ask, tagged, said("user", "Sure?")],
        "reasoning and call": [ask, {**call, "reasoning_content": "look it up"}, result],
        "developer": [said("developer", "Be kind."), ask],
        "only system": [system],
        "assistant first": [reply, ask],
        "users in a row": [ask, ask],
        "unknown role": [said("narrator", "Once"), ask],
        "nothing": [],
        "long": [system, *[ask, reply] * 200, ask],
        "long, 290 kB": [
            *[said("user", "Word. " * 120), said("assistant", "Reply " * 120)] * 200,
            ask,
        ],
    }


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather <now> in a city's centre",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Its name"},
                    "days": {"type": "integer", "enum": [1, 3], "default": 1},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["city"],
            },
        },
    }
]


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and variables of each rendering."""
    for (name, messages), prompt, tools in itertools.product(
        conversations().items(), (True, False), (None, TOOLS)
    ):
        variables = {
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": prompt,
            "bos_token": "<s>",
            "eos_token": "</s>",
        }
        more = f"{name}, prompt {prompt}, tools {tools is not None}"
        yield more, variables
        if name in ("system", "reasoning"):
            for thinking in (True, False):
                yield f"{more}, thinking {thinking}", {**variables, "enable_thinking": thinking}


def outcome(render: Render, variables: dict[str, Any]) -> str | None:
    """Return the rendered text, or None for an error."""
    try:
        return render(json.loads(json.dumps(variables)))
    except Exception:  # a template may raise anything
        return None


def compare(source: str, compile_other: Callable[[str], Any]) -> Iterator[tuple[str, str]]:
    """Yield each case and its result: same text, both fail, or different."""
    other: Render = lambda variables: compile_other(source).render(**variables)  # noqa: E731
    try:
        template = compile_other(source)
        other = lambda variables: template.render(**variables)  # noqa: E731
    except Exception:  # then it fails in every case
        pass

    def ours(variables: dict[str, Any]) -> str:
        return render_chat(source, **variables)

    for name, variables in cases():
        for _ in range(2):  # a template may show the time
            texts = outcome(ours, variables), outcome(other, variables)
            if texts[0] == texts[1]:
                break
        if texts[0] != texts[1]:
            yield name, "differs"
        else:
            yield name, "both fail" if texts[0] is None else "same text"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("where", type=Path, help="a folder or a .tar.gz with *.jinja files")
    arguments = parser.parse_args()
    side, compile_other = compiler()
    try:
        found = list(templates(arguments.where))
    except (OSError, tarfile.TarError, UnicodeDecodeError) as error:
        raise SystemExit(f"{arguments.where}: {error}") from error
    total: Counter[str] = Counter()
    for name, source in found:
        results = list(compare(source, compile_other))
        total.update(result for _, result in results)
        counts = Counter(result for _, result in results)
        print(f"{name:60} " + ", ".join(f"{counts[r]} {r}" for r in sorted(counts)))
        for case, result in results:
            if result == "differs":
                print(f"    differs: {case}")
    print(f"{len(found)} templates, {total.total()} renderings against {side}: {dict(total)}")
    return 0 if found and not total["differs"] else 1


if __name__ == "__main__":
    sys.exit(main())
