"""Parse the tokens of a Go template to its tree.

Features of Go that chat templates do not use raise UnsupportedError: `block`, complex numbers, and
functions that `FUNCTIONS` does not list. Source of the rules: Go's text/template/parse/parse.go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import NoReturn

from trinity.errors import TokenizerError, UnsupportedError
from trinity.tokenizers.go_template import lexer, literals, nodes
from trinity.tokenizers.go_template.lexer import Token

DEEPEST = 80  # nested actions and parentheses; real templates have about 12
_LITERALS: dict[str, Callable[[str], str | int | float]] = {
    lexer.STRING: literals.string,
    lexer.RAW: literals.string,
    lexer.CHARACTER: literals.character,
    lexer.NUMBER: literals.number,
}


def parse(template: str, functions: Collection[str]) -> nodes.Tree:
    """Parse a template that may call ``functions``.

    Raises TokenizerError if it is malformed, UnsupportedError for unsupported features.
    """
    return _Parser(lexer.tokens(template), functions).tree()


class _Parser:
    def __init__(self, tokens: list[Token], functions: Collection[str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.functions = functions
        self.variables = ["$"]
        self.ranges = 0
        self.depth = 0

    def tree(self) -> nodes.Tree:
        tree = nodes.Tree([], {})
        while self.tokens[self.at].kind != lexer.END:
            if self._starts("define"):
                self._define(tree.defined)
                continue
            statement = self._statement()
            if isinstance(statement, str):
                self._unexpected(self.tokens[self.at - 1], f"{{{{{statement}}}}}")
            tree.body.append(statement)
        return tree

    # statements

    def _define(self, defined: dict[str, nodes.Body]) -> None:
        self._next(), self._next()
        name = self._template_name()
        self._expect(lexer.RIGHT)
        outer, self.variables = self.variables, ["$"]
        body, end = self._body()
        self.variables = outer
        if end != "end":
            self._fail("a definition has an {{else}}")
        if name == "":
            raise UnsupportedError(
                "the Go template defines a template without a name, which is not supported"
            )
        if _is_empty(defined.get(name, [])):
            defined[name] = body
        elif not _is_empty(body):
            self._fail(f"the template {name[:40]!r} is defined twice")

    def _body(self) -> tuple[nodes.Body, str]:
        """Parse statements up to ``end`` or ``else``, and return which of them it was."""
        body: nodes.Body = []
        while True:
            statement = self._statement()
            if isinstance(statement, str):
                return body, statement
            body.append(statement)

    def _statement(self) -> nodes.Statement | str:
        """Return the next statement; "end" and "else" are returned as words."""
        token = self._next()
        if token.kind == lexer.TEXT:
            return nodes.TextNode(token.text)
        if token.kind != lexer.LEFT:
            self._unexpected(token, "an action or text")
        word = self._peek()
        if word.kind != lexer.KEYWORD or word.text not in lexer.STATEMENTS:
            return nodes.Action(self._pipeline(lexer.RIGHT))
        self._next()
        if word.text in ("if", "with", "range"):
            return self._branch(word.text)
        if word.text == "template":
            return self._call()
        if word.text in ("break", "continue"):
            if not self.ranges:
                self._fail(f"{{{{{word.text}}}}} outside of a range")
            self._expect(lexer.RIGHT)
            return nodes.Leave(word.text)
        if word.text == "block":
            raise UnsupportedError("the Go template has a block, which is not supported")
        if word.text == "end" or (word.text == "else" and self._peek().text not in ("if", "with")):
            self._expect(lexer.RIGHT)
        elif word.text != "else":
            self._unexpected(word, "a command")
        return word.text

    def _branch(self, kind: str) -> nodes.Branch:
        scope = len(self.variables)
        with self._deeper():
            pipe = self._pipeline(lexer.RIGHT, of_range=kind == "range")
            self.ranges += kind == "range"
            body, end = self._body()
            self.ranges -= kind == "range"
            otherwise: nodes.Body | None = None
            if end == "else":
                following = self._peek()
                if following.kind == lexer.KEYWORD and following.text == kind != "range":
                    self._next()  # else if: both end with the same {{end}}
                    otherwise = [self._branch(kind)]
                else:
                    otherwise, end = self._body()
                    if end != "end":
                        self._fail("a second {{else}}, or one of another kind")
        del self.variables[scope:]
        return nodes.Branch(kind, pipe, body, otherwise)

    def _call(self) -> nodes.CallNode:
        name = self._template_name()
        if self._peek().kind == lexer.RIGHT:
            self._fail(f"the template {name[:40]!r} is called without a value")  # as in Ollama
        return nodes.CallNode(name, self._pipeline(lexer.RIGHT))

    def _template_name(self) -> str:
        token = self._next()
        if token.kind not in (lexer.STRING, lexer.RAW):
            self._unexpected(token, "the name of a template")
        return str(self._value(token))

    # pipelines

    def _pipeline(self, end: str, *, of_range: bool = False) -> nodes.Pipe:
        pipe = nodes.Pipe(self._peek().line)
        self._declarations(pipe, of_range)
        with self._deeper():
            while True:
                token = self._peek()
                if token.kind == end:
                    self._next()
                    break
                pipe.commands.append(self._command())
        if not pipe.commands:
            self._unexpected(self.tokens[self.at - 1], "a value")
        for command in pipe.commands[1:]:
            if isinstance(command[0], nodes.Literal | nodes.Dot | nodes.Nil):
                self._fail("what stands after | must be a function or a field")
        return pipe

    def _declarations(self, pipe: nodes.Pipe, of_range: bool) -> None:
        while self._peek().kind == lexer.VARIABLE:
            start = self.at
            name = self._next().text
            sign = self._peek()
            if sign.kind not in (lexer.ASSIGN, lexer.DECLARE, lexer.COMMA):
                self.at = start
                return
            self._next()
            pipe.declared.append(name)
            self.variables.append(name)
            if sign.kind != lexer.COMMA:
                pipe.assigns = sign.kind == lexer.ASSIGN
                return
            if not of_range or len(pipe.declared) > 1:
                self._fail("only a range declares two variables")

    def _command(self) -> list[nodes.Operand]:
        """Parse operands separated by spaces, up to | (which is consumed) or the end."""
        operands = []
        while True:
            operands.append(self._operand())
            token = self.tokens[self.at]
            if token.kind == lexer.SPACE:
                if self._peek().kind in (lexer.RIGHT, lexer.CLOSE):
                    return operands
                if self._peek().kind == lexer.PIPE:
                    self._next()
                    return operands
            elif token.kind == lexer.PIPE:
                self.at += 1
                return operands
            elif token.kind in (lexer.RIGHT, lexer.CLOSE):
                return operands
            else:
                self._unexpected(token, "a space")

    def _operand(self) -> nodes.Operand:
        term = self._term()
        names = []
        while self.tokens[self.at].kind == lexer.FIELD and self.tokens[self.at].text != ".":
            names.append(self.tokens[self.at].text[1:])
            self.at += 1
        if not names:
            return term
        if isinstance(term, nodes.FieldNode | nodes.Variable):
            term.names += names
            return term
        if isinstance(term, nodes.Literal | nodes.Dot | nodes.Nil):
            self._fail("a field of what has none")
        return nodes.Chain(term, names)

    def _term(self) -> nodes.Operand:
        token = self._next()
        if token.kind == lexer.NAME:
            if token.text not in self.functions:
                raise UnsupportedError(
                    f"the Go template calls {token.text[:40]!r}, a function that is not supported"
                )
            return nodes.FunctionNode(token.text)
        if token.kind == lexer.FIELD:
            return nodes.Dot() if token.text == "." else nodes.FieldNode([token.text[1:]])
        if token.kind == lexer.VARIABLE:
            if token.text not in self.variables:
                self._fail(f"the variable {token.text[:40]} is not declared")
            return nodes.Variable(token.text, [])
        if token.kind == lexer.OPEN:
            with self._deeper():
                return self._pipeline(lexer.CLOSE)
        if token.kind in _LITERALS:
            return nodes.Literal(self._value(token))
        if token.kind != lexer.KEYWORD or token.text not in ("true", "false", "nil"):
            self._unexpected(token, "a value")
        return nodes.Nil() if token.text == "nil" else nodes.Literal(token.text == "true")

    def _value(self, token: Token) -> str | int | float:
        try:
            return _LITERALS[token.kind](token.text)
        except (ValueError, OverflowError):
            self._fail(f"{token.text[:40]} cannot be read")

    # tokens

    def _next(self) -> Token:
        """Return the next token that is not a space."""
        token = self._peek()
        self.at += token.kind != lexer.END
        return token

    def _peek(self) -> Token:
        while self.tokens[self.at].kind == lexer.SPACE:
            self.at += 1
        return self.tokens[self.at]

    def _starts(self, keyword: str) -> bool:
        """Whether an action begins here with ``keyword``."""
        following = self.tokens[self.at : self.at + 3]
        if following[0].kind != lexer.LEFT:
            return False
        words = [token for token in following[1:] if token.kind != lexer.SPACE]
        return bool(words) and words[0].kind == lexer.KEYWORD and words[0].text == keyword

    def _expect(self, kind: str) -> None:
        token = self._next()
        if token.kind != kind:
            self._unexpected(token, kind)

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > DEEPEST:
            self._fail(f"actions and parentheses are nested more than {DEEPEST} deep")
        yield
        self.depth -= 1

    def _unexpected(self, token: Token, wanted: str) -> NoReturn:
        raise TokenizerError(
            f"the Go template is broken at line {token.line}: found {token.text[:40]!r}, expected "
            f"{wanted}"
        )

    def _fail(self, what: str) -> NoReturn:
        line = self.tokens[self.at].line
        raise TokenizerError(f"the Go template is broken at line {line}: {what}")


def _is_empty(body: nodes.Body) -> bool:
    return all(isinstance(node, nodes.TextNode) and not node.text.strip() for node in body)
