"""What the tree of pages has of a text, and how much of it a sequence can begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trinity.runtime.page import Page
from trinity.runtime.page_layout import Window
from trinity_kernels.ops.kv_layout import PAGE

LEAST_COPY = 4  # tokens in common from which a page is copied rather than evaluated anew


class PrefixMatch(NamedTuple):
    """``pages`` that hold the first ``length`` tokens, the last of them perhaps in part.

    ``parting``: how many the texts in the tree have in common where all go on otherwise, else 0.
    """

    pages: list[Page]
    length: int
    parting: int


def find(root: Page, tokens: Sequence[int], window: Window | None) -> PrefixMatch:
    """The longest beginning of ``tokens`` behind which all is there that the next token sees.

    Never all of them, for the last gives logits.
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
    """Whether what windowed layers see behind a page's first ``count`` positions is there."""
    return page.windowed is not None and (not window.state or count == len(page.tokens))


def usable(pages: Sequence[Page], length: int, window: Window | None) -> int:
    """The most of ``length`` positions in ``pages`` behind which all is there that is seen next."""
    if window is None:
        return length
    first, firsts = 0, []  # of the windowed parts without a gap up to each page's
    for index, page in enumerate(pages):
        if page.windowed is None:
            first = index + 1
        firsts.append(first)
    while length and firsts[(length - 1) // PAGE] > window.first_page(length):
        length = (length - 1) // PAGE * PAGE
    return length
