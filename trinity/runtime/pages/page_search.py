"""Finds the longest known prefix of a text in the tree of pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trinity.runtime.pages.page import Page
from trinity.runtime.pages.page_layout import Window
from trinity_kernels.ops.kv_layout import PAGE

LEAST_COPY = 4  # common tokens from which copying a page is cheaper than computing them


class PrefixMatch(NamedTuple):
    """The pages with the first ``length`` tokens; the last page may be used in part.

    ``parting``: the position where all known texts branch off from these tokens; 0 if there is
    none.
    """

    pages: list[Page]
    length: int
    parting: int


def find(root: Page, tokens: Sequence[int], window: Window | None) -> PrefixMatch:
    """The longest prefix of ``tokens`` after which all is there that the next token attends to.

    It is always shorter than ``tokens``, since the last token's logits are needed.
    """
    stop = len(tokens) - 1
    pages: list[Page] = []
    last = root
    while (end := (len(pages) + 1) * PAGE) <= stop:
        wanted = list(tokens[end - PAGE : end])
        child = next((page for page in last.children if page.tokens == wanted), None)
        if child is None:
            break
        pages.append(child)
        last = child
    length, parting = len(pages) * PAGE, 0
    behind = [(page.common(tokens, length, stop), page) for page in last.children]
    if behind and all(common < len(page.tokens) for common, page in behind):
        parting = length + max(common for common, _ in behind)
    best, count = None, LEAST_COPY - 1
    for common, page in behind:
        if common > count and (window is None or _readable(page, common, window)):
            best, count = page, common
    if best is not None:
        pages.append(best)
        length += count
    length = usable(pages, length, window)
    return PrefixMatch(pages[: -(-length // PAGE)], length, parting)


def _readable(page: Page, count: int, window: Window) -> bool:
    """Whether windowed layers find their window after the first ``count`` positions of a page."""
    return page.windowed is not None and (not window.state or count == len(page.tokens))


def usable(pages: Sequence[Page], length: int, window: Window | None) -> int:
    """The most positions, up to ``length``, that have all that the next token attends to."""
    if window is None:
        return length
    first, firsts = 0, []  # for each page: from which page on all windowed parts up to it exist
    for index, page in enumerate(pages):
        if page.windowed is None:
            first = index + 1
        firsts.append(first)
    while length and firsts[(length - 1) // PAGE] > window.first_page(length):
        length = (length - 1) // PAGE * PAGE
    return length
