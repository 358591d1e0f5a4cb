"""Render a conversation to the text of a prompt with the model's chat template."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trinity.conversation.dialects import GENERAL, dialect_of
from trinity.conversation.dialects.dialect import Dialect
from trinity.conversation.histories import (
    count_images,
    keeps_texts,
    marked,
    one_call_each,
    texts_before_calls,
    variants,
    without_system,
)
from trinity.conversation.messages import Message, read_messages
from trinity.conversation.parallel import renders_all_calls, renders_calls_of_texts
from trinity.conversation.tools import read_tools
from trinity.conversation.traits import Traits, traits_of
from trinity.errors import InputError
from trinity.formats.defaults import ChatTemplate
from trinity.tokenizers.chat import RefusedHistoryError, first_known, render_listing

_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
ROLES = ("system", "user", "assistant", "tool", "developer", "function")
_NOTHING = Traits(tools=False, calls=False, results=False)
_GO_VARIABLES = {"enable_thinking": "Think|IsThinkSet"}
_RESERVED = {"messages", "tools", "bos_token", "eos_token", "add_generation_prompt"}


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt's text, the template that rendered it, and its format of tool calls."""

    text: str
    template: ChatTemplate
    dialect: Dialect


def render_conversation(
    templates: Sequence[ChatTemplate],
    messages: Sequence[Message],
    *,
    opened: Callable[[Sequence[Message]], list[Message]] | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
    variables: Mapping[str, object] | None = None,
    general: bool = False,
    mark: str = "",
    joint: str = "",
    **names: object,
) -> Rendered:
    """Render with the first template whose language and words are supported.

    ``opened`` adds the model's own messages before the request's.

    If the template refuses a history or drops parts of it, another form is rendered: system
    messages in user messages, several calls in sequence, adjacent messages of one role joined; see
    ``histories``.

    If a template does not list ``tools``, ``general`` puts them into a system text. Calls and
    results of tools that it does not write become text. ``variables`` are additional variables.
    ``mark`` is what the templates of the model write for an image; the text has it once for each.
    ``joint`` is between an image and other parts if a template reads only text.

    Raises InputError for malformed messages and tools, for an unknown role, for tools if the
    template lists none and ``general`` is not set, and for a variable that the template does not
    have; TokenizerError for a template that fails.
    """
    read = read_messages(messages)
    _check_roles(read, templates)
    if opened is not None:
        read = read_messages(opened(read))
    read_tools(tools)
    given = [dict(tool) for tool in tools]
    variables = {k: v for k, v in (variables or {}).items() if v is not None}

    def by(template: ChatTemplate) -> Rendered:
        traits = traits_of(template) if given or _has_calls(read) else None
        dialect, listed = dialect_of(template.text), given
        shown: list[Mapping[str, Any]] = list(read)
        if given and traits and not traits.tools:
            if not general:
                raise InputError(
                    "the chat template does not list tools: describe them in a message, or use "
                    "chat_prompt, which does this"
                )
            dialect = GENERAL
        in_text = general and dialect is GENERAL and bool(given)
        if traits:
            known = _NOTHING if in_text else traits
            shown = [dialect.as_text(message, known) for message in shown]
        if traits and traits.calls and _calls_at_once(shown) and not renders_all_calls(template):
            shown = one_call_each(shown)
        if traits and traits.calls and _has_texts_with_calls(shown):
            shown = shown if renders_calls_of_texts(template) else texts_before_calls(shown)
        if in_text:
            has_system = traits is None or traits.system
            shown = shown if has_system else without_system(shown)
            shown, listed = GENERAL.with_tools(shown, given, system=has_system), []
        _check_variables(template, variables)

        def made(history: Sequence[Mapping[str, Any]]) -> str:
            fitted = [_fitted(message, template, dialect, traits) for message in history]
            return render_listing(template, fitted, listed, **variables, **names)

        # Ollama drops what Go templates drop; they refuse nothing.
        is_go = template.language == "go"
        if is_go:
            text = made(marked(shown, mark, joint))
        else:
            text = _first_kept(shown, dialect, made, mark, joint)
        return Rendered(text, template, dialect)

    return first_known(templates, by)


def _first_kept(
    shown: Sequence[Mapping[str, Any]],
    dialect: Dialect,
    made: Callable[[Sequence[Mapping[str, Any]]], str],
    mark: str,
    joint: str,
) -> str:
    """Return the first variant of a history that a template renders completely.

    Without one, the first text that it renders. Raises the first refusal if it renders none.
    """
    text: str | None = None
    refusal: RefusedHistoryError | None = None
    images = sum(count_images(message) for message in shown)
    for history in variants(shown, lambda message: dialect.as_text(message, _NOTHING), mark, joint):
        try:
            rendered = made(history)
        except RefusedHistoryError as error:
            refusal = refusal or error
            continue
        if keeps_texts(rendered, shown) and (not images or rendered.count(mark) == images):
            return rendered
        text = rendered if text is None else text
    if text is None:
        assert refusal is not None
        raise refusal
    return text


def has_variable(template: ChatTemplate, name: str) -> bool:
    """Whether a template uses the variable ``name``."""
    known = _GO_VARIABLES.get(name, "$^") if template.language == "go" else re.escape(name)
    return re.search(rf"\b{known}\b", template.text) is not None


def _check_roles(messages: Sequence[Message], templates: Sequence[ChatTemplate]) -> None:
    """Raise InputError for a role that is neither usual nor named in a template."""
    for number, message in enumerate(messages):
        role = str(message["role"])
        if role not in ROLES and not any(role in template.text for template in templates):
            raise InputError(
                f"message {number} has the role {role!r:.40}; it must be one of {', '.join(ROLES)}"
            )


def _has_calls(messages: Sequence[Mapping[str, Any]]) -> bool:
    return any("tool_calls" in message or message["role"] == "tool" for message in messages)


def _has_texts_with_calls(messages: Sequence[Mapping[str, Any]]) -> bool:
    return any(message.get("tool_calls") and message.get("content") for message in messages)


def _calls_at_once(messages: Sequence[Mapping[str, Any]]) -> bool:
    return any(len(message.get("tool_calls") or ()) > 1 for message in messages)


def _check_variables(template: ChatTemplate, variables: Mapping[str, object]) -> None:
    for name in variables:
        if name in _RESERVED:
            raise InputError(
                f"{name} is set by trinity; it cannot be given as a variable of the chat template"
            )
        if not has_variable(template, name):
            raise InputError(f"the chat template has no variable {name!r:.80}")


def _fitted(
    message: Mapping[str, Any], template: ChatTemplate, dialect: Dialect, traits: Traits | None
) -> dict[str, Any]:
    """Adapt a message's names and types of values to the template."""
    out = dict(message)
    if out["role"] == "developer" and "developer" not in template.text:
        out["role"] = "system"
    thought = out.pop("reasoning_content", None)
    for key in _THOUGHTS if thought else ():
        if key in template.text or (key == "thinking" and template.language == "go"):
            out[key] = thought
    if not out.get("content"):
        wants_none = out.get("tool_calls") and traits and not traits.empty_content
        out["content"] = None if wants_none else ""
    if out.get("tool_calls"):
        calls = [dict(call) for call in out["tool_calls"]]
        for call in calls:
            call["id"] = _fitted_id(call["id"], dialect)
            if traits and traits.arguments_as_text:
                function = dict(call["function"])
                function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
                call["function"] = function
        out["tool_calls"] = calls
    if out.get("tool_call_id"):
        out["tool_call_id"] = _fitted_id(out["tool_call_id"], dialect)
    return dialect.fitted(out)


def _fitted_id(id: str, dialect: Dialect) -> str:
    """Replace an id from elsewhere if a template refuses all but its own kind."""
    if dialect.id_prefix or re.fullmatch(f"[a-zA-Z0-9]{{{dialect.id_length}}}", id):
        return id
    return hashlib.sha256(id.encode()).hexdigest()[: dialect.id_length]
