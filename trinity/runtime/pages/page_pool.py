"""The KV pages of an engine; sequences with the same prefix share them.

A page knows its tokens and the page before it, so the pages of a pool form a tree of the texts that
were computed. Unused memory stays in the tree until it is needed, the most recently used the
longest: pages without users, and the windowed part of pages that all users have passed. Such memory
can always be evicted at once, so only claims count against the limit: the full parts of pages in
use, and the windowed parts that caches have booked. A cache books as many as it uses at the same
time; shared ones count once per cache.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary

from trinity.errors import TrinityError
from trinity.runtime.pages.held_slots import Held, HeldSlots
from trinity.runtime.pages.page import COMMON, AdapterWeights, Domain, Kind, Page, Part
from trinity.runtime.pages.page_layout import PartSizes, Window
from trinity.runtime.pages.page_memory import PageMemory
from trinity.runtime.pages.page_search import find
from trinity.runtime.pages.prefix_store import PrefixStore
from trinity_kernels.ops.kv_layout import PAGE


class Holding(NamedTuple):
    """The pages of a KV cache, those whose windowed part it uses, and how many parts it has booked.

    ``apart``: windowed parts that belong to no page.
    """

    kv_type: str
    pages: list[Page]
    windows: range
    booked: int
    apart: list[Part]


class PagePool:
    """The pages of one engine, with a limit in bytes for all of them.

    ``sizes``: bytes of the parts of a page by element type; ``window``: the window of windowed
    layers. ``prepare`` is called with the address and the size of new memory. One thread uses a
    pool at a time.
    """

    def __init__(
        self, sizes: Mapping[str, PartSizes], limit: int, window: Window | None = None,
        prepare: Callable[[int, int], None] | None = None,
    ) -> None:  # fmt: skip
        self.sizes = dict(sizes)
        self.window = window
        # Whether pages hold a recurrent state; then a sequence cannot be truncated at any position.
        self.recurrent = window is not None and window.state
        self.store: PrefixStore | None = None
        self.claimed = 0  # bytes of the full parts in use, and of the windowed parts booked
        kinds = {
            (kv_type, windowed): size
            for kv_type, parts in sizes.items()
            for windowed, size in ((False, parts.full), (True, parts.windowed))
        }
        self._memory = PageMemory(kinds, limit, prepare)
        # They exist as long as a page or a cache refers to them.
        self._roots: WeakValueDictionary[tuple[str, AdapterWeights, Domain], Page]
        self._roots = WeakValueDictionary()
        self.held = HeldSlots()
        self._idle: OrderedDict[Page, None] = OrderedDict()
        self.dropped: deque[Holding] = deque()  # of caches that were collected as garbage
        self._closed = False

    def close(self) -> None:
        """Free the memory that no cache holds now, and the rest when caches release it.

        Pages refer to their children and parents. Without this call, their memory would wait for
        the garbage collector.
        """
        self._closed = True
        self._take_back()
        while self._idle:
            self._evict()
        self._memory.close()

    def __del__(self) -> None:
        self.close()

    @property
    def limit(self) -> int:
        """The maximum number of bytes of all pages."""
        return self._memory.limit

    @property
    def nbytes(self) -> int:
        """The number of bytes that are allocated now."""
        return self._memory.nbytes

    @property
    def idle_bytes(self) -> int:
        """The number of allocated bytes that no cache uses; from any thread."""
        return self._memory.spare_bytes + sum(
            sum(part.data.nbytes for part in self._unused(page)) for page in list(self._idle)
        )

    def root(self, kv_type: str, adapters: AdapterWeights = (), domain: Domain = COMMON) -> Page:
        """The parent of the first pages of all sequences with these scales and this domain.

        The same tokens with other scales, or in another domain, are another text.
        """
        key = kv_type, adapters, domain
        root = self._roots.get(key)
        if root is None:
            root = self._roots[key] = Page(kv_type)
        return root

    def left_of(self, domain: Domain, held: Held) -> int:
        """How many leading tokens of ``held`` still exist."""
        root = self._roots.get((held.kv_type, held.adapters, domain))
        # One token more, because a sequence never reuses all of its tokens.
        return 0 if root is None else find(root, [*held.tokens, -1], self.window).length

    def recall(self, root: Page, adapters: AdapterWeights, salt: str, tokens: Sequence[int]) -> int:
        """Read whole pages with the first tokens of ``tokens`` from the store into the tree.

        ``root`` is that of ``adapters`` and ``salt`` without a slot. With windowed layers, only
        pages after which the next token finds its window count. Returns the number of leading
        pages that exist in any form.
        Raises: TrinityError if the system refuses memory.
        """
        store = self.store
        if store is None:
            return 0
        self._take_back()
        start = store.start(stored_kind(root.kv_type, adapters, salt))
        path, known = self._stored_path(store, root, start, tokens)
        parent, held = root, list[Page]()
        first = self.window.first_page(len(path) * PAGE) if self.window else len(path)
        for index, (name, wanted) in enumerate(path):
            page = next((child for child in parent.children if child.tokens == wanted), None)
            if page is None:
                page = self._stored(store, name, parent, wanted)
                if page is None:
                    break
            elif not self.share(page):
                break
            held.append(page)
            parent = page
            if index >= first and page.windowed is None:
                self._recall_window(store, name, page)
        for page in reversed(held):
            self.give_back(page)
        return known

    def save(self, page: Page, adapters: AdapterWeights, salt: str, *, windowed: bool) -> None:
        """Write a full page to the store; its root must be as in ``recall``.

        ``windowed``: also write its windowed part.
        """
        store = self.store
        if store is None:
            return
        path = [page]
        while (parent := path[-1].parent) is not None:
            path.append(parent)
        if any(ancestor.hides for ancestor in path):
            return
        name = store.start(stored_kind(page.kv_type, adapters, salt))
        for ancestor in reversed(path[:-1]):
            name = store.name(name, ancestor.tokens)
        if page.full is not None:
            store.save(name, page.tokens, page.full.data)
        if windowed and page.windowed is not None:
            store.save(store.windowed(name), page.tokens, page.windowed.data)

    def _stored_path(
        self, store: PrefixStore, root: Page, start: bytes, tokens: Sequence[int]
    ) -> tuple[list[tuple[bytes, list[int]]], int]:
        """The names and tokens of the leading pages that are in memory or in the store.

        ``start``: the store's name of ``root``. Also returns how many leading pages there are
        without regard to windowed parts.
        """
        name, parent = start, [root]
        path: list[tuple[bytes, list[int]]] = []
        count = first = 0  # first: from this page on, all windowed parts exist
        for start_of_page in range(0, len(tokens) - PAGE, PAGE):
            wanted = list(tokens[start_of_page : start_of_page + PAGE])
            name = store.name(name, wanted)
            parent = [child for of in parent for child in of.children if child.tokens == wanted]
            if not parent and self.sizes[root.kv_type].full and not store.has(name):
                break
            path.append((name, wanted))
            if self.window is None:
                count = len(path)
                continue
            there = any(page.windowed is not None for page in parent)
            if not there and not store.has(store.windowed(name)):
                first = len(path)
            if first <= self.window.first_page(len(path) * PAGE) and first < len(path):
                count = len(path)
        return path[:count], len(path) if self.sizes[root.kv_type].full else count

    def _stored(
        self, store: PrefixStore, name: bytes, parent: Page, tokens: list[int]
    ) -> Page | None:
        """A page read from the store, in use once, or None if it is missing or there is no room."""
        page = self.take(parent)
        if page is None:
            return None
        if page.full is not None and not store.read(name, tokens, page.full.data):
            self.give_back(page)
            return None
        page.tokens.extend(tokens)
        return page

    def _recall_window(self, store: PrefixStore, name: bytes, page: Page) -> None:
        """Read the windowed part of a page in use from the store, while there is room."""
        part = self.take_apart(page.kv_type)
        if part is None:
            return
        if not store.read(store.windowed(name), page.tokens, part.data):
            self.give_back_apart(part)
            return
        self.book(page.kv_type, -1)
        page.windowed, page.kept = part, True
        self._idle[page] = None

    def available(self, kv_type: str) -> int:
        """The number of whole pages that can be claimed now."""
        self._take_back()
        return (self.limit - self.claimed) // sum(self.sizes[kv_type])

    def take(self, parent: Page) -> Page | None:
        """A new page after ``parent``, or None if all pages are in use.

        Raises: TrinityError if the system refuses memory and none can be freed.
        """
        self._take_back()
        page = Page(parent.kv_type)
        size = self.sizes[page.kv_type].full
        if self.claimed + size > self.limit:
            return None
        if size:
            page.full = self._part((page.kv_type, False))
        self.claimed += size
        page.users, page.parent = 1, parent
        parent.children.append(page)
        return page

    def share(self, page: Page) -> bool:
        """Count a further user of the full part of ``page``.

        Returns False if the page has no user and claiming its memory would exceed the limit.
        """
        if page.users == 0 and self.claimed + self.sizes[page.kv_type].full > self.limit:
            return False
        self._use(page)
        return True

    def give_back(self, page: Page) -> None:
        """Stop using ``page``; of consecutive pages, give back the last one first."""
        page.users -= 1
        if page.users == 0:
            self.claimed -= self.sizes[page.kv_type].full
            self._idle.pop(page, None)
            if page.tokens and not self._closed:
                self._idle[page] = None
            else:
                self.cut(page, 0)
                self._forget(page)

    def discard(self, page: Page) -> None:
        """Give back a page whose content must not be reused."""
        self.cut(page, 0)
        self.give_back(page)

    def release(self, holding: Holding, *, discard: bool = False) -> None:
        """Give back everything that a cache holds. ``discard``: its content must not be reused."""
        pages = holding.pages
        # The first page with hidden tokens can be reused up to them; the pages after it cannot.
        shared = next((i for i, page in enumerate(pages) if page.hides), len(pages))
        shared += shared < len(pages) and pages[shared].tokens[0] >= 0
        for index in reversed(range(len(pages))):
            page = pages[index]
            if index in holding.windows:
                self.leave_window(page)
            if discard or index >= shared:
                self.discard(page)
            else:
                self.give_back(page)
        self.book(holding.kv_type, -holding.booked)
        for part in holding.apart:
            self.give_back_apart(part)

    def erase(self, domain: Domain) -> None:
        """Forget the unused pages of a domain."""
        self._take_back()
        self.held.forget(domain)
        for (_, _, of), root in list(self._roots.items()):
            for page in [*root.children] if of == domain else ():
                if page.users == 0:
                    del self._idle[page]
                    self.cut(page, 0)
                    self._forget(page)

    def cut(self, page: Page, count: int) -> None:
        """Forget all but the first ``count`` tokens of a page, and all pages after it."""
        del page.tokens[count:]
        for child in list(page.children):
            del self._idle[child]
            self.cut(child, 0)
            self._forget(child)

    def book(self, kv_type: str, count: int) -> bool:
        """Claim ``count`` more windowed parts; False if they are in use. Negative: claim fewer."""
        self._take_back()
        nbytes = count * self.sizes[kv_type].windowed
        if count > 0 and self.claimed + nbytes > self.limit:
            return False
        self.claimed += nbytes
        return True

    def take_apart(self, kv_type: str) -> Part | None:
        """A windowed part that belongs to no page, or None if all are in use.

        Raises: TrinityError if the system refuses memory.
        """
        if not self.book(kv_type, 1):
            return None
        try:
            return self._part((kv_type, True))
        except BaseException:
            self.book(kv_type, -1)
            raise

    def give_back_apart(self, part: Part) -> None:
        """Give back a part from ``take_apart``."""
        self._memory.give_back(part)
        self.book(part.kind[0], -1)

    def enter_window(self, page: Page) -> int:
        """Use the windowed part of ``page``, which was booked; return its address.

        Raises: TrinityError if the system refuses memory for a new one.
        """
        if page.windowed is None:
            assert not page.tokens, "what was given back cannot be read again"
            page.windowed = self._part((page.kv_type, True))
        page.window_users += 1
        self._idle.pop(page, None)
        return page.windowed.address

    def leave_window(self, page: Page) -> None:
        """Stop using the windowed part of ``page``; it stays until its memory is needed."""
        page.window_users -= 1
        if page.window_users == 0 and self._closed:
            self._free_window(page)
        elif page.window_users == 0:
            self._idle[page] = None

    def pass_window(self, page: Page) -> None:
        """As ``leave_window``, but a part that need not be kept is freed at once."""
        self.leave_window(page)
        if page.window_users == 0 and not page.kept:
            del self._idle[page]
            self._free_window(page)

    def unite(self, page: Page, other: Page) -> None:
        """Make the only user of ``page`` and of its windowed part use ``other`` instead.

        Both hold the same tokens. If the windowed part of ``other`` is gone, it gets that of
        ``page``.
        """
        self._use(other)
        if self.window is not None:
            page.window_users = 0
            if other.windowed is None:
                other.windowed, page.windowed = page.windowed, None
            self.enter_window(other)
        for child in page.children:
            child.parent = other
        other.children += page.children
        page.children = []
        self.discard(page)

    def _use(self, page: Page) -> None:
        page.users += 1
        if page.users == 1:
            self.claimed += self.sizes[page.kv_type].full
            if page.windowed is None or page.window_users:
                del self._idle[page]

    def _part(self, kind: Kind) -> Part:
        """Memory for a part that was claimed; unused memory is evicted for it."""
        while True:
            try:
                part = self._memory.take(kind)
            except TrinityError:
                if not self._idle:
                    raise
                part = None
            if part is not None:
                return part
            self._evict()

    def _evict(self) -> None:
        """Free the memory that has not been used for the longest time."""
        page, _ = self._idle.popitem(last=False)
        if page.users:
            self._free_window(page)
        else:
            self.cut(page, 0)
            self._forget(page)

    def _forget(self, page: Page) -> None:
        """Remove an unused page from the tree."""
        if page.parent is not None:
            page.parent.children.remove(page)
            page.parent = None
        if page.full is not None:
            self._memory.give_back(page.full)
            page.full = None
        self._free_window(page)

    def _free_window(self, page: Page) -> None:
        page.kept = False
        if page.windowed is not None:
            self._memory.give_back(page.windowed)
            page.windowed = None

    def _unused(self, page: Page) -> list[Part]:
        """The memory of an idle page that is not in use."""
        parts = [page.windowed] if page.users else [page.full, page.windowed]
        return [part for part in parts if part is not None]

    def _take_back(self) -> None:
        while self.dropped:
            self.release(self.dropped.popleft())


def stored_kind(kv_type: str, adapters: AdapterWeights, salt: str) -> str:
    """The part of the store's page names that depends on neither the model nor the tokens."""
    kind = f"{kv_type} {adapters}"
    return f"{kind} {salt}" if salt else kind
