"""Jinja2's sandbox for chat templates: what templates may use, all of it counted.

The set-up is that of `transformers`, for which chat templates are written: trimmed blocks, loop
controls, raise_exception, strftime_now, tojson without HTML escapes, the generation tag.
Source: transformers utils/chat_template_utils.py, _compile_jinja_template.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import _PassArg
from jinja2.visitor import NodeTransformer

from trinity.tokenizers import template_budget as limits
from trinity.tokenizers.template_budget import CURRENT

# Filters that make much of little and that no chat template needs.
_WITHOUT_FILTERS = "center filesizeformat pprint random striptags sum urlize wordwrap xmlattr"
_WITHOUT_METHODS = "center ljust rjust zfill expandtabs translate maketrans to_bytes"
# Names that no template can write.
_STEPS, _CHARGED = "bounded steps", "charged value"


class RefusedMessagesError(TemplateError):
    """A template called raise_exception: it cannot take these messages."""


class GenerationTag(Extension):
    """{% generation %} marks what a model wrote, for training; the text is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - as the base class declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """The environment of all chat templates; rendering needs a budget in CURRENT."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # nothing runs while compiling
            extensions=["jinja2.ext.loopcontrols", GenerationTag],
        )
        for name in _WITHOUT_FILTERS.split():
            del self.filters[name]
        self.filters["tojson"] = _tojson
        for name, filter_ in list(self.filters.items()):
            self.filters[name] = _counted(name, filter_)
        self.filters[_STEPS] = pass_context(_bounded_steps)
        self.filters[_CHARGED] = pass_context(_charged)
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Counting().visit(tree)
        tree.set_environment(self)
        return tree

    def concat(self, pieces: Iterable[str]) -> str:
        """Join the pieces of a template, macro or block."""
        budget, size, kept = CURRENT.get(), 0, []
        for piece in pieces:
            size += len(piece)
            budget.check_size(size)
            kept.append(piece)
        text = "".join(kept)
        budget.charge(text)
        return text

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Also refuse methods that pad."""
        if attr in _WITHOUT_METHODS.split() and isinstance(obj, str | bytes | int):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Also refuse formats that pad."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            limits.check_braces_format(value.__self__)
        return wrapped

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic, counted."""
        limits.check_operation(operator, left, right)
        result = super().call_binop(context, operator, left, right)
        CURRENT.get().charge(result)
        return result

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, method or macro, counted."""
        CURRENT.get().step()
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if isinstance(owner, str) and name == "replace" and len(args) >= 2:
            limits.check_replacement(owner, args[0], args[1])
        elif isinstance(owner, str) and name == "join" and len(args) == 1:
            args = (list(args[0]),)
            limits.check_join(owner, args[0])
        result = super().call(context, obj, *args, **kwargs)
        CURRENT.get().charge(result)
        return result


class _Counting(NodeTransformer):
    """Counts what Jinja2 compiles to plain Python: loops, ~, slices, displays."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        """The node, wrapped where it must be counted."""
        is_slice = isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        self.generic_visit(node)
        if isinstance(node, nodes.For):
            node.iter = _through(_STEPS, node.iter)
        elif isinstance(node, nodes.Tuple):
            return _through(_CHARGED, node) if node.ctx == "load" else node
        elif is_slice or isinstance(node, nodes.Concat | nodes.List | nodes.Dict):
            return _through(_CHARGED, node)
        return node


def _through(filter_name: str, node: nodes.Node) -> nodes.Filter:
    return nodes.Filter(node, filter_name, [], [], None, None, lineno=node.lineno)


def _bounded_steps(context: Context, iterable: Iterable[object]) -> Iterable[object]:
    return limits.bounded_steps(iterable)


def _charged(context: Context, value: Any) -> Any:
    CURRENT.get().charge(value)
    return value


def _counted(name: str, filter_: Callable[..., Any]) -> Callable[..., Any]:
    """``filter_`` with its result weighed; a filter with a context never runs while compiling."""
    wants = _PassArg.from_obj(filter_)

    @pass_context
    @functools.wraps(filter_, updated=())
    def counted(context: Context, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        CURRENT.get().step()
        if name in _BEFORE:
            value = _BEFORE[name](value, *args, **kwargs)
        first: tuple[Any, ...] = ()
        if wants is _PassArg.context:
            first = (context,)
        elif wants is _PassArg.eval_context:
            first = (context.eval_ctx,)
        elif wants is _PassArg.environment:
            first = (context.environment,)
        result = filter_(*first, value, *args, **kwargs)
        CURRENT.get().charge(result)
        return result

    return counted


def _before_replace(value: Any, old: Any, new: Any, count: Any = None) -> Any:
    limits.check_replacement(str(value), old, new)
    return value


def _before_join(value: Any, d: str = "", attribute: Any = None) -> Any:
    items = list(value)
    limits.check_join(str(d), items)
    return items


def _before_indent(value: Any, width: Any = 4, first: Any = False, blank: Any = False) -> Any:
    limits.check_indent(str(value), width)
    return value


def _before_format(value: Any, *args: Any, **kwargs: Any) -> Any:
    limits.check_percent_format(str(value))
    return value


def _before_split(value: Any, count: int, *args: Any, **kwargs: Any) -> Any:
    CURRENT.get().check_size(count)
    return value


_BEFORE: dict[str, Callable[..., Any]] = {
    "replace": _before_replace,
    "join": _before_join,
    "indent": _before_indent,
    "format": _before_format,
    "batch": _before_split,
    "slice": _before_split,
}


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if not (indent is None or (isinstance(indent, int) and indent <= 16)):
        raise limits.TemplateLimitError(f"tojson indents by {str(indent)[:40]!r}")
    if separators is not None and sum(map(len, separators)) > 16:
        raise limits.TemplateLimitError("tojson has long separators")
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: object) -> None:
    raise RefusedMessagesError(str(message))


def _strftime_now(format: str) -> str:
    limits.check_time_format(format)
    return datetime.now().strftime(format)
