"""Markdown on a terminal: wrapped words, styles, and the same text however it is cut."""

from __future__ import annotations

import random
import re

import pytest

from trinity.cli.chatting.markdown import MarkdownWriter

TEXT = """# A heading

Some **bold words** and *italic* ones, `code *x*`, 2 * 3 * 4, a_b_c and **kwargs.

- an item that is much longer than the line is wide, so it continues
  - another
1. first

> quoted

```python
def f(x):  # **not bold**
    return "a line of code that is much longer than the whole line is wide"
```
| a | **b** |
|---|---|
wide: 日本語の文 end **open
"""


def written(text: str, columns: int = 40, cuts: random.Random | None = None) -> str:
    """The output for a text that arrives whole, or in random pieces."""
    out: list[str] = []
    writer = MarkdownWriter(out.append, lambda: columns)
    while text:
        count = cuts.randint(1, 9) if cuts else len(text)
        writer.push(text[:count])
        text = text[count:]
    writer.end()
    return "".join(out)


def plain(text: str) -> str:
    return re.sub("\x1b\\[[0-9;]*m", "", text)


@pytest.mark.parametrize("seed", range(20))
def test_pieces_do_not_change_what_is_written(seed: int) -> None:
    def cells_of(text: str) -> list[tuple[str, str]]:
        """Each character with its style: sequences may be repeated."""
        style, found = "", []
        for part in re.split("(\x1b\\[[0-9;]*m)", text):
            if part.startswith("\x1b"):
                style = part[2:-1].removesuffix("0") if part == "\x1b[0m" else part
            else:
                found += [(one, style) for one in part]
        return found

    cut = written(TEXT, cuts=random.Random(seed))
    assert cells_of(cut) == cells_of(written(TEXT))


def test_words_wrap_and_items_hang() -> None:
    lines = plain(written(TEXT)).splitlines()
    at = lines.index("• an item that is much longer than the")
    assert lines[at + 1 : at + 4] == ["  line is wide, so it continues", "  • another", "1. first"]
    code = lines.index("```python")
    assert lines[code + 2].endswith('than the whole line is wide"')  # unchanged, hence longer
    rest = [line for i, line in enumerate(lines) if i != code + 2]
    assert max(map(len, rest)) < 40


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**b** x", "\x1b[1mb\x1b[0m x"),
        ("*i*", "\x1b[3mi\x1b[0m"),
        ("`c`", "\x1b[36mc\x1b[0m"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("f(**kwargs)", "f(**kwargs)"),
        ("*", "*"),
        ("a ` b", "a ` b"),
        ("## H", "\x1b[1mH\x1b[0m"),
        ("#no heading", "#no heading"),
        ("> q", "│ \x1b[2mq\x1b[0m"),
        ("1986. A year", "1986. A year"),
        ("```\na  *b*", "\x1b[2m```\x1b[0m\n\x1b[36ma  *b*\x1b[0m"),
        ("```\n```\n*b*", "\x1b[2m```\x1b[0m\n\x1b[36m```\x1b[0m\n\x1b[3mb\x1b[0m"),
        ("| a | *b* |", "| a | *b* |"),
        ("", ""),
        ("\n\n", "\n\n"),
    ],
)  # fmt: skip
def test_spans_and_lines(text: str, expected: str) -> None:
    assert written(text) == expected


def test_no_text_is_lost() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        text = "".join(chance.choices("ab **`*_#->|1. \n\t日", k=60))
        shown = re.sub(r"[\s`*#>│•|+-]", "", plain(written(text, 20, chance)))
        assert shown == re.sub(r"[\s`*#>|+-]", "", text)


def test_a_long_word_continues_in_the_next_lines() -> None:
    assert plain(written("x" * 100 + " y", 40)) == "x" * 100 + " y"


def test_wide_characters_take_two_columns() -> None:
    line = " ".join(["日本"] * 4)
    assert plain(written("日本 " * 10, 20)).splitlines() == [line, line, "日本 日本"]


def test_the_style_of_the_whole_text() -> None:
    out: list[str] = []
    writer = MarkdownWriter(out.append, lambda: 80, "2")
    writer.push("a **b**")
    writer.end()
    assert "".join(out) == "\x1b[2ma\x1b[0m \x1b[2;1mb\x1b[0m"
