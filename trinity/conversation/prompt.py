"""A conversation as the tokens of a prompt, and how its responses are parsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.conversation.dialects import dialect_of, lark
from trinity.conversation.dialects.dialect import Dialect, Thinking, thinking_of
from trinity.conversation.parallel import allows_parallel
from trinity.conversation.parts import Part
from trinity.conversation.reading import Reader, Reading
from trinity.conversation.scribe import Scribe, joined
from trinity.conversation.tools import Tool, chosen, read_tools
from trinity.errors import InputError

if TYPE_CHECKING:
    from trinity.conversation.rendering import Rendered
    from trinity.tokenizers import Tokenizer


Tokenize = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class Form:
    """Parses the responses to one prompt.

    ``tools`` are those that may be called. ``inside``: the prompt ends within reasoning.
    ``enclosed``: it ends within so many marks around the text after reasoning. ``forced``: a
    response must consist of calls. ``formed``: a response that is not a call has its own grammar,
    so text that begins like JSON is a call only after a delimiter, if the dialect has one.
    """

    dialect: Dialect
    thinking: Thinking
    tools: tuple[Tool, ...] = ()
    forced: bool = False
    parallel: bool = True
    inside: bool = False
    formed: bool = False
    enclosed: int = 0

    @property
    def marks(self) -> tuple[str, ...]:
        """Delimiters that must stay in the response's text even if they are special tokens."""
        calls = self.dialect.all_marks if self.tools else ()
        return (*self.thinking.begins, *self.thinking.ends, *self.thinking.around, *calls)

    def reader(self) -> Reader:
        """Return a parser for one response."""
        scribe = Scribe(self.dialect.id_prefix, self.dialect.id_length)
        bare = self.dialect.bare and not (self.formed and self.dialect.marks_forced_calls)
        reading = Reading(
            self.tools, scribe, parallel=self.parallel, bare=bare, forced=self.forced,
            enclosed=self.enclosed,
        )  # fmt: skip
        return Reader(reading, self.dialect.read(reading, self.thinking, self.inside))

    def grammar(
        self, mark: Callable[[str], str | int], answer: str | None = None, budget: int | None = None
    ) -> str | None:
        """Return the Lark grammar of a response, or None if it may be anything.

        If calls are forced, it consists of them. Otherwise it is ``answer``, a Lark expression such
        as ``%json {...}``, or calls if there are tools. Reasoning of up to ``budget`` tokens may
        come first. ``mark`` returns the id of a delimiter that is one token, or its text.

        Raises InputError for a budget if the end of reasoning is not a single token.
        """
        thinking, end = self.thinking, mark(self.thinking.end)
        if budget is not None and not isinstance(end, int):
            raise InputError(
                "a reasoning budget is not supported by this model: the end of reasoning, "
                f"{thinking.end!r}, is not a single token"
            )
        if answer is not None:
            answer = f"{lark.pieces(self.dialect.answer_head, mark)} {answer}\n"
        said = "calls"
        if self.forced or (answer is not None and self.tools):
            rest = self.dialect.grammar(
                self.tools, parallel=self.parallel, mark=lambda text: lark.mark(mark(text))
            )
            if answer is not None and not self.forced:
                said = "(calls | answer)"
                rest += f"answer: {answer}"
        elif answer is not None:
            rest = f"calls: {answer}"
        elif budget is not None:
            rest = "calls: (<[*]>)*\n"
        else:
            return None
        if isinstance(end, int):
            most = "*" if budget is None else f"{{0,{budget}}}"
            thought = f"<[{end}]>" if budget == 0 else f"(<[^{end}]>){most} <[{end}]>"
            thought += f" {lark.pieces(thinking.then, mark)} WHITE"
            if not self.inside:
                thought = f"({lark.pieces(thinking.begin, mark)} {thought})?"
            return f"start: {thought} {said}\nWHITE: /[ \\t\\r\\n]*/\n" + rest
        if self.inside:
            return f"start: thought {said}\nthought[suffix={lark.text(end)}]: /(.|\\n)*/\n" + rest
        return f"start: {said}\n" + rest


def form_of(
    template: str,
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    tool_choice: str = "auto",
    parallel: bool = True,
    prompt: str = "",
    dialect: Dialect | None = None,
) -> Form:
    """Return the form of responses to ``prompt``, which ``template`` rendered.

    ``tool_choice`` is "none", "auto", "required" or the name of a tool. ``dialect`` overrides the
    template's own. Raises InputError for malformed tools and a choice that cannot be satisfied.
    """
    own = dialect_of(template)
    thinking = own.thinking or thinking_of(template)
    return Form(
        dialect or own,
        thinking,
        chosen(read_tools(tools), tool_choice),
        tool_choice not in ("none", "auto"),
        parallel,
        thinking.is_open(prompt),
    )


def parse(
    text: str, template: str, *, tools: Sequence[Mapping[str, Any]] = (), prompt: str = ""
) -> tuple[Part, ...]:
    """Parse a whole response, whose text must include special tokens (skip_special=False)."""
    reader = form_of(template, tools=tools, prompt=prompt).reader()
    return joined([*reader.push(text), *reader.finish()])


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A prompt, and the form of its responses."""

    ids: list[int]  # tokens of ``text``
    text: str  # the output of the chat template
    form: Form
    skip_special: bool  # for generation: False if the form's delimiters are special tokens
    tokenizer: Tokenizer
    tokenize: Tokenize  # the tokens of such a text, with the images of the conversation

    def continued(self, text: str) -> ChatPrompt:
        """Return the prompt followed by the beginning of the response, to be continued."""
        whole, thinking = self.text + text, self.form.thinking
        closed = any(end in text for end in thinking.ends)
        inside = (self.form.inside and not closed) or thinking.is_open(whole)
        form = replace(self.form, inside=inside, enclosed=thinking.encloses(text))
        return replace(self, ids=self.tokenize(whole), text=whole, form=form)

    def reader(self) -> Reader:
        """Return a parser for one response."""
        return self.form.reader()

    def grammar(self, answer: str | None = None, budget: int | None = None) -> str | None:
        """Return the Lark grammar of a response; see Form.grammar."""
        return self.form.grammar(self.mark, answer, budget)

    def mark(self, text: str) -> str | int:
        """Return a delimiter as the one token that it is, or as its text."""
        token = token_of(text, self.tokenizer)
        return text if token is None else token


def prompt_of(
    rendered: Rendered,
    tokenizer: Tokenizer,
    tools: Sequence[Mapping[str, Any]],
    tool_choice: str,
    parallel: bool | None,
    tokenize: Tokenize | None = None,
) -> ChatPrompt:
    """Return the prompt of a rendered conversation.

    ``tokenize`` gives the tokens of the text, by default those of ``rendered_ids``.
    ``parallel``: whether a response may have several calls; None follows the template. Raises
    InputError for malformed tools and a choice that cannot be satisfied.
    """
    form = form_of(
        rendered.template.text,
        tools=tools,
        tool_choice=tool_choice,
        parallel=bool(tools) and allows_parallel(rendered.template, parallel, tool_choice),
        prompt=rendered.text,
        dialect=rendered.dialect,
    )
    tokenize = tokenize or partial(rendered_ids, tokenizer=tokenizer)
    ids, shows = tokenize(rendered.text), hides(form, tokenizer)
    return ChatPrompt(ids, rendered.text, form, not shows, tokenizer, tokenize)


def rendered_ids(text: str, tokenizer: Tokenizer) -> list[int]:
    """Tokenize rendered text, which may already contain the BOS token."""
    bos = "" if tokenizer.bos_id is None else tokenizer.token_text(tokenizer.bos_id)
    wrote_bos = bos != "" and text.startswith(bos)
    return tokenizer.encode(text, add_bos=not wrote_bos, parse_special=True)


def token_of(mark: str, tokenizer: Tokenizer) -> int | None:
    """Return the token of ``mark`` if it is one token."""
    ids = tokenizer.encode(mark, add_bos=False, parse_special=True)
    return ids[0] if len(ids) == 1 and tokenizer.token_text(ids[0]) == mark else None


def hides(form: Form, tokenizer: Tokenizer) -> bool:
    """Whether text without special tokens lacks some of the form's delimiters."""
    tokens = (token_of(mark, tokenizer) for mark in form.marks)
    return any(tokenizer.is_special(token) for token in tokens if token is not None)
