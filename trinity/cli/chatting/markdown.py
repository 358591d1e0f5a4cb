"""Write streamed Markdown to a terminal: words wrapped at its edge, styles instead of delimiters.

Output is never moved or drawn again, so it scrolls and copies like any text. A word is written when
it is complete, and a span such as ``**bold**`` when its second delimiter has arrived. A span that
does not end in its line is plain text. Code blocks and tables are not wrapped.
"""

from __future__ import annotations

import re
from collections.abc import Callable

BOLD, DIM, ITALIC, CODE, HEADING = "1", "2", "3", "36", "1"
LONGEST_SPAN = 1000  # characters; a longer span is plain text
LONGEST_WORD = 24  # columns; a longer word is written before it is complete
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
# A line's beginning decides how it is written: a heading, an item, a quotation.
BEGINNING = re.compile(r"(?P<indent>[ \t]*)(?P<mark>#{1,6} +|[-*+] +|\d{1,9}[.)] +|> ?|)")
# Text that may still become one of these beginnings, or a fence.
UNDECIDED = re.compile(r"[ \t]*(#{1,6} *|[-*+] *|\d{1,9}[.)]? *|> ?|`{1,2}|~{1,2})?")
SPANS = (
    (re.compile(r"`([^`\n]+)`"), CODE),
    (re.compile(r"\*\*(?=\S)([^\n]+?)(?<=\S)\*\*"), BOLD),
    (re.compile(r"\*(?=[^\s*])([^*\n]*?)(?<=\S)\*(?!\*)"), ITALIC),
)
PLAIN = re.compile(r"[^`*\n]+")
# A line may be broken after each of these characters of Chinese, Japanese and Korean.
WIDE = "\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60"
WIDE_ONE = re.compile(f"[{WIDE}]")
PARTS = re.compile(rf"\s+|[{WIDE}]|[^\s{WIDE}]+")
DELIMITERS = re.compile(r"[`*]+")


class MarkdownWriter:
    """Writes the pieces of one text.

    ``write`` receives text with escape sequences. ``columns`` returns the terminal's width.
    ``style`` applies to the whole text, as the parameter of an SGR sequence.
    """

    def __init__(
        self, write: Callable[[str], None], columns: Callable[[], int], style: str = ""
    ) -> None:
        self._write, self._columns, self._style = write, columns, style
        self._line = ""  # text of the current line that is not written yet
        self._begun = False  # whether the line's beginning is written
        self._verbatim = False  # whether the line is not wrapped
        self._fence = ""  # the delimiter that ends the code block
        self._line_style = ""
        self._column = self._indent = 0
        self._word: list[tuple[str, str]] = []  # text and style of the parts of a word
        self._space = ""  # before the word

    def push(self, text: str) -> None:
        """Add text, and write the part whose style later text cannot change.

        The text has no control characters other than \\n and \\t.
        """
        for part in re.split(r"(\n)", text):
            if part == "\n":
                self._end_line()
                self._write("\n")
                self._column = 0
            else:
                self._line += part
                self._go_on(ended=False)

    def end(self) -> None:
        """Write the rest of the last line."""
        self._end_line()

    def _end_line(self) -> None:
        self._go_on(ended=True)
        self._flush_word()
        self._space, self._begun, self._verbatim = "", False, False

    def _go_on(self, *, ended: bool) -> None:
        if not self._begun and not self._begin(ended=ended):
            return
        if self._verbatim:
            if self._line:
                self._write(self._styled(self._line, self._line_style))
            self._line = ""
        else:
            self._spans(ended=ended)

    def _begin(self, *, ended: bool) -> bool:
        """Write the beginning of a line. Returns False if more of it must arrive first."""
        if not ended and UNDECIDED.fullmatch(self._line):
            return False
        self._begun, self._line_style, self._indent = True, "", 0
        fence = FENCE.match(self._line)
        if self._fence:
            if fence and fence[1].startswith(self._fence) and not self._line[fence.end() :].strip():
                self._fence = ""
            self._verbatim, self._line_style = True, CODE
            return True
        if fence:
            self._fence, self._verbatim, self._line_style = fence[1], True, DIM
            return True
        if self._line.lstrip().startswith("|"):
            self._verbatim = True
            return True
        beginning = BEGINNING.match(self._line)
        assert beginning is not None  # it matches an empty text
        mark = beginning["mark"]
        self._line = self._line[beginning.end() :]
        if mark.startswith("#"):
            self._line_style = HEADING
            return True
        if mark[:1] in ("-", "*", "+") and mark[:1]:
            mark = "•" + mark[1:]
        elif mark.startswith(">"):
            mark, self._line_style = "│ ", DIM
        prefix = beginning["indent"].expandtabs(4) + mark
        if prefix:
            self._write(self._styled(prefix, ""))
        self._column = self._indent = len(prefix)
        return True

    def _spans(self, *, ended: bool) -> None:
        while self._line:
            if plain := PLAIN.match(self._line):
                self._text(plain[0], "")
                self._line = self._line[plain.end() :]
                continue
            found = next(((m, s) for p, s in SPANS if (m := p.match(self._line))), None)
            # Another asterisk may follow, and "*" is the beginning of "**" too.
            if not ended and len(self._line) < LONGEST_SPAN and (
                found is None or found[0].end() == len(self._line)
            ):  # fmt: skip
                return
            if found is not None:
                self._text(found[0][1], found[1])
                self._line = self._line[found[0].end() :]
            else:
                delimiters = DELIMITERS.match(self._line)
                assert delimiters is not None
                self._text(delimiters[0], "")
                self._line = self._line[delimiters.end() :]

    def _text(self, text: str, style: str) -> None:
        for part in PARTS.findall(text):
            if part.isspace():
                self._flush_word()
                self._space += part
                continue
            self._word.append((part, style))
            if WIDE_ONE.match(part) or self._word_width() > LONGEST_WORD:
                self._flush_word()

    def _flush_word(self) -> None:
        """Write the word, in a new line if it does not fit this one."""
        if not self._word:
            return
        most = max(20, self._columns()) - 1
        width = self._word_width()
        space = cells(self._space)
        if self._column > self._indent and self._column + space + width > most:
            self._write("\n" + " " * self._indent)
            self._column = self._indent
        else:
            self._write(self._space)
            self._column += space
        for text, style in self._word:
            self._write(self._styled(text, style or self._line_style))
        # A word longer than the line continues in the next ones.
        self._column = self._column + width if self._column + width <= most else width % most
        self._word, self._space = [], ""

    def _word_width(self) -> int:
        return sum(cells(text) for text, _ in self._word)

    def _styled(self, text: str, style: str) -> str:
        codes = ";".join(filter(None, (self._style, style)))
        return f"\x1b[{codes}m{text}\x1b[0m" if codes else text


def cells(text: str) -> int:
    """The columns that a text takes; a tab counts as one."""
    if text.isascii():
        return len(text)
    from prompt_toolkit.utils import get_cwidth

    return get_cwidth(text)
