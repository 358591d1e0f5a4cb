"""The prompt in which a reranker reads a query and a text, where its files have one.

Two forms of it are known. llama.cpp's converter writes a text with the places {query} and
{document} as the chat template named "rerank". sentence-transformers and vLLM render the model's
own chat template with a message of the role "query" and one of the role "document".
Source: llama.cpp tools/server, format_prompt_rerank; sentence_transformers base/modality.py.
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
_MOST_PLACES = 8  # of each kind: texts are written into all of them


def pair_prompt(tokenizer: Tokenizer, templates: Iterable[ChatTemplate]) -> str | None:
    """The text with the places {query} and {document}, or None where nothing gives one.

    A chat template counts where both messages reach what it makes: those of models that chat
    leave out roles that they do not know, or refuse them.
    Raises: ConfigError for a template "rerank" without one of the places, or with many.
    """
    own = tokenizer.chat_templates.get(_RERANK)
    if own is not None:
        for place in (_QUERY, _DOCUMENT):
            if not 0 < own.count(place) <= _MOST_PLACES:
                raise ConfigError(
                    f"the model's file: tokenizer.chat_template.rerank has {place} "
                    f"{own.count(place)} times, but a query and a text belong at {_QUERY} and "
                    f"{_DOCUMENT}, each once to {_MOST_PLACES} times: convert the model again"
                )
        return own
    bos, eos = (
        "" if token is None else tokenizer.token_text(token)
        for token in (tokenizer.bos_id, tokenizer.eos_id)
    )
    return prompt_of_roles(templates, {"bos_token": bos, "eos_token": eos})


def prompt_of_roles(templates: Iterable[ChatTemplate], names: Mapping[str, object]) -> str | None:
    """What the first template makes of both roles that lets both messages through, else None.

    ``names`` are those that the template may use beside the messages.
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
    """The prompt with both texts in their places; what looks like a place in them is none."""
    texts = {_QUERY: query, _DOCUMENT: document}
    return _PLACES.sub(lambda place: texts[place[0]], prompt)


def after_document(prompt: str, query: str) -> str:
    """What follows the text in a filled prompt; a long text is cut before it."""
    return filled(prompt.rpartition(_DOCUMENT)[2], query, "")
