"""Compiles and renders chat templates: what runs in the confined process of `render_chat`.

The set-up is that of `transformers`, for which chat templates are written: Jinja2's immutable
sandbox, trimmed blocks, loop controls, raise_exception, strftime_now, tojson without HTML escapes,
the generation tag, and dict and namespace as below. Source: transformers 5.23,
utils/chat_template_utils.py, _compile_jinja_template.

The sandbox keeps a template from Python's inside; its time and memory are the process's limits.
Nothing can be opened there, so all that Jinja2 imports when it needs it is imported here.
"""

from __future__ import annotations

import functools
import html  # noqa: F401 - by striptags
import json
import pprint  # noqa: F401 - by the filter of that name
import textwrap  # noqa: F401 - by wordwrap
import unicodedata  # noqa: F401 - by names of characters in literals
import warnings
from collections.abc import Callable
from datetime import datetime
from typing import Any

import jinja2.constants
import jinja2.debug  # noqa: F401 - by every error
from jinja2 import Template, nodes, pass_eval_context
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

_MESSAGE_CHARACTERS = 500

warnings.simplefilter("ignore")  # the Python compiler's, about a template's code
datetime.now().astimezone()  # reads the time zone's file
rb"\N{EM DASH}".decode("unicode-escape")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Render the template under the empty key with the other keys as its variables.

    The answer has one key: ``text``, or what went wrong: ``refused`` (by raise_exception),
    ``failed``, ``invalid`` (with the line) or ``uncompiled``.
    """
    try:
        template = _compiled(request.pop(""))
    except MemoryError:
        raise
    except TemplateSyntaxError as error:
        return {"invalid": [error.lineno, str(error.message)[:_MESSAGE_CHARACTERS]]}
    except Exception as error:  # too deeply nested, too large a number, ...
        return {"uncompiled": _told(error)}
    try:
        return {"text": template.render(request)}
    except MemoryError:
        raise
    except RefusedMessagesError as error:
        return {"refused": str(error)[:_MESSAGE_CHARACTERS]}
    except Exception as error:  # a template can raise anything
        return {"failed": _told(error)}


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:_MESSAGE_CHARACTERS]}"


class RefusedMessagesError(TemplateError):
    """A template called raise_exception: it cannot take these messages."""


class GenerationTag(Extension):
    """The tag {% generation %}, which marks generated text for training.

    Its content is rendered unchanged. Like transformers' tag it is a call block, so variables set
    inside are not visible outside.
    """

    tags = {"generation"}  # noqa: RUF012 - as the base class declares it

    def parse(self, parser: Parser) -> nodes.Node:
        """The statements between the tags."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        block = nodes.CallBlock(self.call_method("_text"), [], [], body)
        return block.set_lineno(line)

    @pass_eval_context
    def _text(self, context: EvalContext, caller: Callable[[], str]) -> str:
        return caller()


class TemplateDict:
    """dict() and dict.fromkeys() only; other methods of the type could change immutable values."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """As dict()."""
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """As dict.fromkeys."""
        return dict.fromkeys(*args)


class TemplateNamespace(Namespace):
    """A namespace whose names have no special meaning in Python or Jinja2."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # so that "self" may be a name
        names = dict(*args[1:], **kwargs)
        for name in names:
            TemplateNamespace._check(name)
        Namespace.__init__(args[0], names)

    def __setitem__(self, name: str, value: Any) -> None:
        TemplateNamespace._check(name)
        Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name: object) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(
                f"a namespace takes no name with an underscore first: {name[:40]!r}"
            )


@functools.cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["dict"] = TemplateDict()
    environment.globals["namespace"] = TemplateNamespace
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


@functools.lru_cache(maxsize=8)
def _compiled(template: str) -> Template:
    return _environment().from_string(template)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: object) -> None:
    raise RefusedMessagesError(str(message))


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


answer({"": "{% for x in 'ab' %}{{ x | tojson }}{% endfor %}{{ 1 / 0 }}"})
_compiled.cache_clear()
