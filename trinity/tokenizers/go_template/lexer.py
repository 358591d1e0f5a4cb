"""Split a Go template into tokens: text and the parts of actions.

Source of the rules: Go's text/template/parse/lex.go.
"""

from __future__ import annotations

from typing import NamedTuple

from trinity.errors import TokenizerError

TEXT, LEFT, RIGHT, SPACE, END = "text", "{{", "}}", "space", "the end"
ASSIGN, DECLARE, PIPE, OPEN, CLOSE, COMMA = "=", ":=", "|", "(", ")", ","
FIELD, VARIABLE, NAME, KEYWORD = "field", "variable", "name", "keyword"
STRING, RAW, CHARACTER, NUMBER = "string", "raw string", "character", "number"

STATEMENTS = (
    "block", "break", "continue", "define", "else", "end", "if", "range", "template", "with",
)  # fmt: skip
KEYWORDS = frozenset((*STATEMENTS, "nil", "true", "false"))
_SPACES = " \t\r\n"
_SINGLE = {"|": PIPE, "(": OPEN, ")": CLOSE, ",": COMMA, "=": ASSIGN}
_RADIX = {"x": "0123456789abcdefABCDEF_", "o": "01234567_", "b": "01_"}


class Token(NamedTuple):
    """A token: its kind, its text, and the line where it starts."""

    kind: str
    text: str
    line: int


def tokens(template: str) -> list[Token]:
    """Return all tokens, the last of them ``END``. Raises TokenizerError for a malformed action."""
    return _Lexer(template).run()


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.read: list[Token] = []

    def run(self) -> list[Token]:
        while (action := self.text.find("{{", self.at)) >= 0:
            before = self.text[self.at : action]
            trims = self._trims_left(action + 2)
            self._literal(before.rstrip(_SPACES) if trims else before)
            self.line += before.count("\n")
            inside = action + (4 if trims else 2)
            if self.text.startswith("/*", inside):
                self._comment(inside)
            else:
                self._add(LEFT, "{{")
                self.at = inside
                self._action()
        self._literal(self.text[self.at :])
        self._add(END, "the end of the template")
        return self.read

    def _literal(self, text: str) -> None:
        if text:
            self._add(TEXT, text)

    def _add(self, kind: str, text: str) -> None:
        self.read.append(Token(kind, text, self.line))

    def _take(self, kind: str, end: int) -> None:
        text = self.text[self.at : end]
        self._add(kind, text)
        self.line += text.count("\n")
        self.at = end

    def _trims_left(self, at: int) -> bool:
        return self.text.startswith("-", at) and self.text[at + 1 : at + 2] in tuple(_SPACES)

    def _right_delimiter(self, at: int) -> int:
        """Return the length of the delimiter at ``at``: 0, 2, or 4 with a trim marker."""
        if self.text.startswith("}}", at):
            return 2
        trims = self.text[at : at + 1] in tuple(_SPACES) and self.text.startswith("-}}", at + 1)
        return 4 if trims else 0

    def _close(self, length: int) -> None:
        """Skip a right delimiter, and the white space that it trims."""
        end = self.at + length
        if length == 4:
            while end < len(self.text) and self.text[end] in _SPACES:
                end += 1
        self.line += self.text.count("\n", self.at, end)
        self.at = end

    def _comment(self, at: int) -> None:
        end = self.text.find("*/", at + 2)
        if end < 0:
            raise self._error("a comment has no end")
        self.line += self.text.count("\n", at, end)
        self.at = end + 2
        length = self._right_delimiter(self.at)
        if not length:
            raise self._error("a comment must be alone between {{ and }}")
        self._close(length)

    def _action(self) -> None:
        depth = 0
        while True:
            length = self._right_delimiter(self.at)
            if length:
                if depth:
                    raise self._error("a parenthesis is not closed")
                self._add(RIGHT, "}}")
                self._close(length)
                return
            if self.at >= len(self.text):
                raise self._error("an action is not closed by }}")
            depth += self._token(self.text[self.at])
            if depth < 0:
                raise self._error("a parenthesis is closed that was not opened")

    def _token(self, first: str) -> int:
        """Read the token that begins with ``first``, and return the change of depth."""
        if first in _SPACES:
            self._take(SPACE, self._end_of_spaces())
        elif first == ":":
            if not self.text.startswith(":=", self.at):
                raise self._error('":" without "="')
            self._take(DECLARE, self.at + 2)
        elif first in _SINGLE:
            self._take(_SINGLE[first], self.at + 1)
            return (first == "(") - (first == ")")
        elif first == '"' or first == "'":
            self._take(STRING if first == '"' else CHARACTER, self._end_of_quote(first))
        elif first == "`":
            end = self.text.find("`", self.at + 1)
            if end < 0:
                raise self._error("a raw string has no end")
            self._take(RAW, end + 1)
        elif first == "$" or (first == "." and not self._digit(self.at + 1)):
            self._word(VARIABLE if first == "$" else FIELD, self.at + 1)
        elif first in "+-." or first in "0123456789":
            self._take(NUMBER, self._end_of_number())
        elif _is_word(first):
            self._word(NAME, self.at)
        else:
            raise self._error(f"{first!a} has no meaning in an action")
        return 0

    def _end_of_spaces(self) -> int:
        end = self.at
        while end < len(self.text) and self.text[end] in _SPACES:
            end += 1
        return end - 1 if self.text.startswith("-}}", end) else end  # that space belongs to -}}

    def _end_of_quote(self, quote: str) -> int:
        end = self.at + 1
        while end < len(self.text) and self.text[end] not in (quote, "\n"):
            if self.text[end] == "\\":
                end += 1
                if self.text[end : end + 1] == "\n":
                    break
            end += 1
        if self.text[end : end + 1] != quote:
            raise self._error("a string has no end")
        return end + 1

    def _word(self, kind: str, end: int) -> None:
        while end < len(self.text) and _is_word(self.text[end]):
            end += 1
        after = self.text[end : end + 1]
        if after and after not in " \t\r\n.,|:)(" and not self.text.startswith("}}", end):
            raise self._error(f"{after!a} follows a name")
        word = self.text[self.at : end]
        self._take(KEYWORD if kind == NAME and word in KEYWORDS else kind, end)

    def _digit(self, at: int) -> bool:
        return self.text[at : at + 1] in tuple("0123456789")

    def _end_of_number(self) -> int:
        at, digits = self._run(self.at, "+-", most=1), "0123456789_"
        if self.text.startswith("0", at):
            at += 1
            radix = self.text[at : at + 1].lower()
            if radix in _RADIX:
                at, digits = at + 1, _RADIX[radix]
        at = self._run(at, digits)
        if self.text.startswith(".", at):
            at = self._run(at + 1, digits)
        if self.text[at : at + 1] in ("e", "E", "p", "P"):
            at = self._run(self._run(at + 1, "+-", most=1), "0123456789_")
        if at < len(self.text) and (_is_word(self.text[at]) or self.text[at] in "+-"):
            raise self._error(f"{self.text[self.at : at + 1][:40]!r} is not a number")
        return at

    def _run(self, at: int, characters: str, most: int = 1 << 20) -> int:
        end = at
        while end < len(self.text) and end - at < most and self.text[end] in characters:
            end += 1
        return end

    def _error(self, what: str) -> TokenizerError:
        return TokenizerError(f"the Go template is broken at line {self.line}: {what}")


def _is_word(character: str) -> bool:
    """Whether this is a letter, a digit or an underscore, as in Go's unicode package."""
    return character == "_" or character.isalpha() or character.isdecimal()
