"""The prompt in which a reranker reads a query and a document, if its files define one.

Two formats are supported. llama.cpp's converter writes a text with the placeholders {query} and
{document} as the chat template named "rerank". sentence-transformers and vLLM render the model's
chat template with a message of the role "query" and one of the role "document". Source: llama.cpp
tools/server, format_prompt_rerank; sentence_transformers base/modality.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from trinity.errors import ConfigError, TokenizerError, UnsupportedError
from trinity.formats.defaults import ChatTemplate
from trinity.tokenizers import Tokenizer
from trinity.tokenizers.chat import render

_QUERY, _DOCUMENT = "{query}", "{document}"
_PLACES = re.compile(r"\{query\}|\{document\}")
_RERANK = "rerank"
_MOST_PLACES = 8  # of each kind: the texts are inserted into all of them


def pair_prompt(tokenizer: Tokenizer, templates: Iterable[ChatTemplate]) -> str | None:
    """Return the text with the placeholders {query} and {document}, or None without one.

    A chat template is used if its output contains both messages; those of chat models drop or
    refuse unknown roles. Raises ConfigError for a template "rerank" that lacks a placeholder or has
    too many.
    """
    own = tokenizer.chat_templates.get(_RERANK)
    if own is not None:
        for place in (_QUERY, _DOCUMENT):
            if not 0 < own.count(place) <= _MOST_PLACES:
                raise ConfigError(
                    f"the model's file: tokenizer.chat_template.rerank contains {place} "
                    f"{own.count(place)} times; it must contain {_QUERY} and {_DOCUMENT} 1 to "
                    f"{_MOST_PLACES} times each: convert the model again"
                )
        return own
    bos, eos = (
        "" if token is None else tokenizer.token_text(token)
        for token in (tokenizer.bos_id, tokenizer.eos_id)
    )
    return prompt_of_roles(templates, {"bos_token": bos, "eos_token": eos})


def prompt_of_roles(templates: Iterable[ChatTemplate], names: Mapping[str, object]) -> str | None:
    """Return the prompt from the first template that accepts both roles, or None.

    ``names`` are variables for the template in addition to the messages.
    """
    messages = [{"role": "query", "content": _QUERY}, {"role": "document", "content": _DOCUMENT}]
    for template in templates:
        try:
            text = render(template, messages, **{"add_generation_prompt": False, **names})
        except (TokenizerError, UnsupportedError):
            continue
        if all(0 < text.count(place) <= _MOST_PLACES for place in (_QUERY, _DOCUMENT)):
            return text
    return None


def filled(prompt: str, query: str, document: str) -> str:
    """Insert both texts into the prompt; placeholders within them are not replaced."""
    texts = {_QUERY: query, _DOCUMENT: document}
    return _PLACES.sub(lambda place: texts[place[0]], prompt)


def after_document(prompt: str, query: str) -> str:
    """Return what follows the text in a filled prompt; a long text is truncated before it."""
    return filled(prompt.rpartition(_DOCUMENT)[2], query, "")
