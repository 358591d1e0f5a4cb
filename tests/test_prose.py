"""Documents, help texts, error messages and the chat page use the field's words.

Each pattern is a word that readers had to read twice, with the word to use instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
PAGE = ROOT / "trinity" / "server" / "page"
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"(?<![*\w])\*([^*|\n`]{8,})\*(?![*\w])")

WORDS = {
    r"laboratory book": "benchmark log",
    r"\bgo(?:es)? before\b": "overrides",
    r"\bgo(?:es)? on\b": "continues",
    r"\bbehind (?:which|it|them|all|the (?:norm|output|prompt|text|end|last|message)s?)\b": "after",
    r"\bbeside\b": "next to, in addition to, compared with",
    r"\bheld (?:to|against)\b|\bhold against\b": "constrained to, compared with",
    r"\bat hand\b": "available",
    r"\bin turns\b": "interleaved",
    r"\blikewise\b": "also, in the same way",
    r"\brefused by name\b": "refused with an error that names ...",
    r"\bfor want of\b": "because there is no ...",
    r"\bbroken off\b": "interrupted, failed",
    r"\bcut off\b": "truncated, token limit reached",
    r"(?<!\bthere )\bis no (?!longer\b|more\b|faster\b|slower\b)[a-z]": "is not a ...",
    r"\banew\b": "again",
    r"\bmodels? that writes?\b": "generative model, decoder",
    r"\bleft out\b|\bleaves? out\b": "omitted, not supported",
    r"\bguessed tokens?\b|\btokens? guessed\b": "speculated tokens",
    r"\bunder way\b": "running",
    r"\bthere(?:in|of|upon)\b": "a plain pronoun",
}  # fmt: skip
# The first \b spares the search two thirds of its time.
PRIVATE = re.compile(rf"\b(?:{'|'.join(WORDS)})", re.IGNORECASE)


def messages(path: Path) -> str:
    """The texts of a module that a user may see: strings of several words, but no docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return "\n".join(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and " " in node.value
        and id(node) not in documentation
    )


def texts() -> Iterator[tuple[str, str]]:
    """Every file with texts that users read, and these texts."""
    for path in DOCUMENTS:
        yield path.name, FENCE.sub("", path.read_text("utf-8"))
    for path in (
        PAGE / name
        for name in (
            "index.html",
            "page.js",
            "server.js",
            "monitor.js",
            "models.js",
            "request.js",
            "files.js",
        )
    ):
        yield path.name, path.read_text("utf-8")
    for path in (ROOT / "trinity").rglob("*.py"):
        if PRIVATE.search(path.read_text("utf-8")):  # parsing all files takes seconds
            yield str(path.relative_to(ROOT)), messages(path)


def test_texts_use_the_fields_words() -> None:
    """No document, help text, message or page has a private word."""
    found = [
        f"{name}: ...{' '.join(text[max(0, match.start() - 40) : match.end() + 30].split())}..."
        for name, text in texts()
        for match in PRIVATE.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "private"),
    [
        ("the file is no JSON", True),
        ("there is no such file", False),
        ("it is no longer sent", False),
        ("options of a request go before them", True),
        ("the server runs behind a proxy", False),
        ("hidden states behind the output norm", True),
    ],
)
def test_patterns_find_private_words(text: str, private: bool) -> None:
    """The patterns find the private words and no others."""
    assert bool(PRIVATE.search(text)) == private


def test_documents_quote_existing_messages() -> None:
    """A message in italics in a table is one that trinity prints; "..." matches anything."""
    sources = [*(ROOT / "trinity").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")]
    joined = re.sub(r'"\s*\n\s*f?"', "", "\n".join(path.read_text("utf-8") for path in sources))
    code = " ".join(joined.split())
    missing = [
        f"{path.name}: {quoted}"
        for path in DOCUMENTS
        for row in path.read_text("utf-8").splitlines()
        if row.startswith("| *")
        for quoted in QUOTED.findall(row.split("|")[1])
        if not all(part.strip() in code for part in quoted.split("..."))
    ]
    assert missing == []
