"""Chat templates: a conversation to the text that a model was trained on.

A model file's template is a stranger's program. It is compiled and rendered in a confined process
(`trinity.confined`) that has no files, no network and little time and memory, and there in
Jinja2's sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trinity.confined import Confined
from trinity.errors import ConfinedError, TokenizerError

LONGEST_TEMPLATE = 1 << 17  # characters; the longest in use have some 30,000

_OTHERWISE = "pass another template, or write the prompt in the model's own format"
# Real templates take some 10 ms to compile and a few to render. The limits, and the length of the
# text beyond the first MiB, grow with the conversation.
_RENDERER = Confined(
    "trinity.template_sandbox",
    memory_bytes=160_000_000,
    seconds=1.0,
    reply_bytes=1 << 20,
)


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, object]],
    *,
    bos_token: str = "",
    eos_token: str = "",
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, object]] | None = None,
    **variables: object,
) -> str:
    """The text of a conversation in the model's format.

    ``messages`` are mappings with "role" and "content". Most templates write ``bos_token``
    themselves: encode the result with ``parse_special=True``, which adds no second one. With
    ``add_generation_prompt`` the text ends where the assistant's answer starts. ``variables`` are
    further names that the template may use. All values are such as JSON has; a tuple arrives at
    the template as a list.

    Raises TokenizerError for a template that is broken, refuses the messages, fails, or takes
    more than a second of processor time or too much memory, and InputError for a value that JSON
    does not have.
    """
    if len(template) > LONGEST_TEMPLATE:
        raise TokenizerError(
            f"the chat template has {len(template)} characters; at most {LONGEST_TEMPLATE} are"
            f" compiled; {_OTHERWISE}"
        )
    request = {
        **variables,
        "messages": [dict(message) for message in messages],
        "tools": None if tools is None else [dict(tool) for tool in tools],
        "bos_token": bos_token,
        "eos_token": eos_token,
        "add_generation_prompt": add_generation_prompt,
        "": template,
    }
    try:
        answer: dict[str, Any] = _RENDERER.call(request)
    except ConfinedError as error:
        raise TokenizerError(
            f"the chat template was stopped: {error.reason}; {_OTHERWISE}"
        ) from error
    ((outcome, what),) = answer.items()
    if outcome == "text":
        return str(what)
    if outcome == "refused":
        raise TokenizerError(f"the chat template refuses these messages: {_printable(what)}")
    if outcome == "invalid":
        line, message = what
        raise TokenizerError(
            f"the chat template is broken at line {line}: {_printable(message)}; {_OTHERWISE}"
        )
    verb = "cannot be compiled" if outcome == "uncompiled" else "failed"
    raise TokenizerError(f"the chat template {verb}: {_printable(what)}; {_OTHERWISE}")


def _printable(text: str) -> str:
    """A template's words without what moves a terminal's cursor."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
