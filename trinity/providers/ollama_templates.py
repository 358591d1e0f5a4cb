"""Choose the chat template of a model in Ollama's store: the store's or the file's own.

Source of the order: Ollama, server/images.go, shouldPreferChatTemplate and the functions near it.
If trinity cannot render a Go template, the file's Jinja template is used.
"""

from __future__ import annotations

import os

from trinity.errors import TokenizerError, UnsupportedError
from trinity.formats.defaults import ChatTemplate
from trinity.formats.ollama.model import Layers
from trinity.providers.kind import Notice
from trinity.tokenizers.go_template import GoTemplate

_FALSE = ("0", "f", "F", "FALSE", "false", "False")
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_TOOL_ANSWERS = (
    "tool_response", "tool_results", "role'] == 'tool'", "role'] == \"tool\"",
    "role\"] == 'tool'", 'role"] == "tool"', "message.role == 'tool'", 'message.role == "tool"',
    "ipython",
)  # fmt: skip


def templates_of(layers: Layers, jinja: object, notice: Notice) -> tuple[ChatTemplate, ...]:
    """Return the template that overrides ``jinja``, the one in the weights' files: one or none.

    For a model without any template it is one that concatenates the messages. ``notice`` is called
    if the result is not the store's own template.
    """
    name, own = layers.manifest.typed, layers.template
    jinja = jinja if isinstance(jinja, str) else None
    if layers.renderer is not None:
        if jinja is None:
            notice(
                f"{name}: its chat format {layers.renderer!r} is built into Ollama, and the file "
                "has no chat template"
            )
        return ()
    if own is None:
        if jinja is not None:
            return ()
        notice(f"{name}: it has no chat template, so messages are concatenated without one")
        return (ChatTemplate("{{ .Prompt }}", "go", "the template of models without one"),)
    if jinja is None:
        return (own,)
    try:
        parsed = GoTemplate(own.text)
        parsed.try_out()
    except (UnsupportedError, TokenizerError) as error:
        notice(f"{name}: {error}; using the chat template of its own files instead")
        return ()
    return () if _prefers(jinja, parsed, own.text) else (own,)


def _prefers(jinja: str, parsed: GoTemplate, text: str) -> bool:
    """Whether the file's template is preferred to a Go template that can be rendered."""
    chosen = os.environ.get("OLLAMA_GO_TEMPLATE", "").strip().strip("\"'")
    if chosen in (*_FALSE, *_TRUE):
        return chosen in _FALSE
    of_jinja = {"tools": "tools" in jinja or "tool_call" in jinja, "thinking": _thinks(jinja)}
    of_go = {
        "tools": "tools" in parsed.names,
        "insert": "suffix" in parsed.names,
        "thinking": "thinking" in parsed.names,
    }
    offered = {feature for feature, has in of_jinja.items() if has}
    known = {feature for feature, has in of_go.items() if has}
    jinja_answers = bool(offered & {"tools"}) and _takes_answers(jinja)
    go_answers = {"tools", "toolcalls"} <= parsed.names and any(
        mark in text for mark in ('eq .Role "tool"', "tool_response", "TOOL_RESULTS")
    )
    if len(offered) > len(known):
        return jinja_answers or not go_answers
    return offered == known and "tools" in known and jinja_answers and not go_answers


def _thinks(jinja: str) -> bool:
    if "<think>" in jinja and "</think>" in jinja:
        return True
    cuts = any(f"content.split({quote}</think>{quote})" in jinja for quote in "'\"")
    return cuts and "reasoning_content" not in jinja and "<SPECIAL_12>" not in jinja


def _takes_answers(jinja: str) -> bool:
    calls = "tool_calls" in jinja or "assistant_tool_call" in jinja
    return calls and any(mark in jinja for mark in _TOOL_ANSWERS)
