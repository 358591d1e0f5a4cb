"""Read JSON values from a growing text and repair them, so that the output is always valid JSON.

Models forget commas, braces and quotes, use Python's constants and quotes, leave quotes within
strings unescaped, and use escapes that JSON lacks. Each fault is given its most likely meaning.
Valid JSON is not changed. The output is returned in pieces while the text grows.
"""

from __future__ import annotations

import json

from trinity.conversation.cursor import WHITE, Cursor, Give, NoCallError, Steps
from trinity.conversation.quoted import always, read_quoted
from trinity.conversation.values import as_json, escaped, is_cut

DEEPEST = 128
_LONG = 64  # in characters; no number is this long
_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.$"
_BEGINS = "\"'{[-+.0123456789tfnTFN"  # the first characters of a value in a list


class JsonReader:
    """Reads one value; its text goes to ``give``, and is valid JSON once ``read`` has ended.

    ``ends``: delimiters that end the value outside of strings. ``quote``: a further delimiter of
    strings, within which there are no escapes.
    """

    colons: tuple[str, ...] = (":",)  # the separators after a key that follows a comma

    def __init__(
        self, cursor: Cursor, give: Give, ends: tuple[str, ...] = (), quote: str = ""
    ) -> None:
        self.cursor, self._give, self._ends, self._quote = cursor, give, ends, quote
        self._open: list[str] = []  # closing brackets of the open objects and lists
        self._held = ""  # text before the next value, which is given together with it
        self._empty = True  # whether the innermost object or list is empty so far
        self._cut = False  # the text has ended within the value

    def types(self, key: str) -> frozenset[str]:
        """The JSON types of a bare value under ``key`` of the outermost object."""
        return frozenset()

    def read(self) -> Steps[bool]:
        """Read to the end of the value, and return whether it was complete.

        Raises NoCallError if it is nested too deeply.
        """
        yield from self._begin()
        while self._open:
            before, comma = (yield from self._white()), ""
            character = yield from self.cursor.peek()
            while character and character in ",;:=":  # one separator, and stray ones
                self.cursor.at += 1
                comma = "," + (yield from self._white())
                character = yield from self.cursor.peek()
            if not character or (yield from self._at_end()):
                self._complete()
                return bool(character)
            if character in "}]":
                self.cursor.at += 1
                if character in self._open:
                    self._give(before)
                    while self._open[-1] != character:
                        self._give(self._open.pop())
                    self._give(self._open.pop())
                    self._empty = False
                continue
            self._held = before + ("" if self._empty else comma or ", ")
            if self._open[-1] == "}":
                yield from self._member()
            else:
                yield from self._value(frozenset())
        return not self._cut

    def _begin(self) -> Steps[None]:
        """Read the beginning of the value, or all of it if it is not an object or a list."""
        yield from self._value(frozenset())

    def _complete(self) -> None:
        self._give("".join(reversed(self._open)))
        self._open.clear()

    def _member(self) -> Steps[None]:
        """Read a key and the beginning of its value; give neither if the text ends before it."""
        cursor, held = self.cursor, self._held
        key = yield from read_key(cursor, self._quote)
        self._held = f"{held}{key}"
        white = yield from self._white()
        character = yield from cursor.peek()
        if character and character in ":=":
            cursor.at += 1
            yield from cursor.skip(">")
            between = yield from self._white()
            self._held += f"{white}:{between or (' ' if self._quote else '')}"
            character = yield from cursor.peek()
        else:
            self._held += ": "
        if not character and not any(mark in key for mark in ":,}"):
            return
        if not character or character in ",;}]" or (yield from self._at_end()):
            self._give(f"{self._held}null")
            self._empty = False
            return
        outermost = len(self._open) == 1
        yield from self._value(self.types(str(json.loads(key))) if outermost else frozenset())

    def _value(self, types: frozenset[str]) -> Steps[None]:
        """Read the beginning of an object or a list, or all of another value."""
        cursor = self.cursor
        held = self._held + (yield from self._white())
        character = yield from cursor.peek()
        if character and character in "{[":
            if len(self._open) == DEEPEST:
                self._complete()
                raise NoCallError(f"JSON is nested more than {DEEPEST} times")
            cursor.at += 1
            self._give(held + character)
            self._open.append("}" if character == "{" else "]")
            self._empty = True
            return
        self._empty = False
        if self._quote and (yield from cursor.skip(self._quote)):
            self._give(held + '"')
            end = yield from cursor.until(
                (self._quote,), lambda text: self._give(escaped(text)), part=False
            )
            self._cut = not end
            self._give('"')
        elif character and character in "\"'":
            self._give(held)
            self._cut = not (yield from read_quoted(cursor, self._give, character, self._closes))
        else:
            text = yield from self._bare()
            ended = not (yield from cursor.peek())
            self._cut = ended and not _is_scalar(text)
            if not ended or not is_cut(text):
                self._give(held + as_json(text, types))

    def _closes(self, place: int) -> Steps[bool]:
        """Whether the text from ``place`` on, after a quote, can follow a string."""
        if not self._open:
            return True
        begin, cursor = self.cursor.at, self.cursor
        cursor.at = place
        white = yield from self._white()
        character = yield from cursor.peek()
        closes = not character or character in "}]" or (character in "\"'" and bool(white))
        if not closes and character in ",;":
            cursor.at += 1
            closes = yield from self._goes_on()
        closes = closes or (yield from self._at_end())
        cursor.at = begin
        return closes

    def _goes_on(self) -> Steps[bool]:
        """Whether a key of an object, or possibly a value of a list, follows a comma."""
        cursor = self.cursor
        yield from self._white()
        character = yield from cursor.peek()
        if not character or character in "\"'}]":
            return True
        if self._quote and (yield from cursor.starts(self._quote)):
            return True
        if not self._open or self._open[-1] == "]":
            return character in _BEGINS
        name = yield from cursor.matching(_NAME)
        return bool(name) and (yield from cursor.white()) in self.colons

    def _bare(self) -> Steps[str]:
        """Read a value without quotes, up to what can follow it."""
        cursor, text, pieces = self.cursor, "", list[str]()
        marks = (",", "}", "]", *self._ends)
        while True:
            end = yield from cursor.until(marks, pieces.append)
            text += "".join(pieces)
            pieces.clear()
            if not end:
                break
            begin, ends = cursor.at, True
            if end in (",", "}", "]") and not (len(text) < _LONG and _is_scalar(text)):
                if end != ",":
                    character = yield from cursor.peek()
                    ends = not character or not (character.isalnum() or character in "/\\._-$(")
                elif self._open[-1:] != ["]"]:
                    ends = yield from self._goes_on()
            cursor.at = begin - len(end) if ends else begin
            if ends:
                break
            text += end
        return text.strip()

    def _at_end(self) -> Steps[bool]:
        for mark in self._ends:
            if (yield from self.cursor.starts(mark)):
                return True
        return False

    def _white(self) -> Steps[str]:
        return (yield from self.cursor.matching(WHITE))


def read_value(cursor: Cursor, give: Give, ends: tuple[str, ...] = ()) -> Steps[bool]:
    """Read one value, give its text to ``give``, and return whether it was complete."""
    return (yield from JsonReader(cursor, give, ends).read())


def collect_value(cursor: Cursor, ends: tuple[str, ...] = ()) -> Steps[str]:
    """Read a value and return its JSON text. Raises NoCallError if the text ends within it."""
    pieces: list[str] = []
    if not (yield from read_value(cursor, pieces.append, ends)):
        raise NoCallError("the text ends within JSON", at_end=True)
    return "".join(pieces)


def read_key(cursor: Cursor, quote: str = "") -> Steps[str]:
    """Read a key and return its JSON text. It is in quotes, between delimiters or bare."""
    character = yield from cursor.peek()
    pieces: list[str] = []
    if quote and (yield from cursor.skip(quote)):
        yield from cursor.until((quote,), pieces.append)
        return json.dumps("".join(pieces), ensure_ascii=False)
    if character and character in "\"'":
        yield from read_quoted(cursor, pieces.append, character, always)
        return "".join(pieces)
    end = yield from cursor.until((":", "=", ",", "}", "]", "\n"), pieces.append)
    cursor.at -= len(end)
    return json.dumps("".join(pieces).strip(), ensure_ascii=False)


def read_string(cursor: Cursor) -> Steps[str]:
    """Read a JSON string and return its value. Raises NoCallError if no string follows."""
    if (character := (yield from cursor.peek())) not in ("'", '"'):
        raise NoCallError(f"expected a string, found {character!r}", at_end=not character)
    value = json.loads((yield from collect_value(cursor)))
    assert isinstance(value, str)
    return value


def object_of(text: str) -> str | None:
    """Return the JSON text of a text that is one object; None for any other text."""
    cursor, pieces = Cursor(), list[str]()
    cursor.text, cursor.ended = text.strip(), True
    if not cursor.text.startswith("{"):
        return None
    try:
        next(read_value(cursor, pieces.append))
    except StopIteration as end:
        if not end.value or cursor.text[cursor.at :].strip(WHITE + "}]"):
            return None
    except NoCallError:
        return None
    return "".join(pieces)


def _is_scalar(text: str) -> bool:
    try:
        return not isinstance(json.loads(text), str)
    except (ValueError, RecursionError):
        return False
