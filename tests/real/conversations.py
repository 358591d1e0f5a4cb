"""Conversations of text only, for renderings in a model's chat format."""

from __future__ import annotations

SYSTEM = {"role": "system", "content": "You answer in one sentence."}
CONVERSATIONS: list[list[dict[str, str]]] = [
    [{"role": "user", "content": "Hi"}],
    [SYSTEM, {"role": "user", "content": "Hi"}],
    [{"role": "user", "content": ""}],
    [{"role": "user", "content": "  spaces, \n\n newlines and a tab\t  "}],
    [{"role": "user", "content": "Grüße, 你好, שלום, 👩‍👩‍👧"}],
    [
        {
            "role": "user",
            "content": "{{ messages }} {% raw %} {# no #} \\n \"quoted\" 'too' <b>&amp;",
        }
    ],
    [
        {"role": "user", "content": "What is 2 + 2?"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "And 3 + 3?"},
    ],
    [
        SYSTEM,
        {"role": "user", "content": "First"},
        {"role": "assistant", "content": "Second\n"},
        {"role": "user", "content": "Third"},
        {"role": "assistant", "content": "Fourth"},
    ],
    [{"role": "system", "content": ""}, {"role": "user", "content": "Empty system text"}],
]
