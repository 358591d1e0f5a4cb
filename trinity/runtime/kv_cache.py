"""The keys and values of one sequence: which pages it has, and what it sees of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError
from trinity.runtime.held_slots import Held
from trinity.runtime.page import COMMON, AdapterWeights, Domain, Page
from trinity.runtime.page_pool import Holding, PagePool
from trinity.runtime.page_search import find, usable
from trinity.runtime.states_apart import MOST_APART, StatesApart
from trinity_kernels.ops.kv_layout import PAGE


class KVCache:
    """A table of pages, ``length`` positions of them filled.

    Kernels find the table of full parts, an int64 for the address of each, at ``address``, that of
    windowed parts at ``window_address``. Of these a cache has only those that the next step's
    tokens see: it gives the others back before the step. Pages go back to the pool by ``release``,
    or when the cache is collected. ``adapters``: the weights of the adapters that it is filled
    with, the only ones with which its pages are shared. So is ``domain``.
    """

    def __init__(
        self, pool: PagePool, kv_type: str, context_length: int, adapters: AdapterWeights = (),
        domain: Domain = COMMON,
    ) -> None:  # fmt: skip
        self._pages: list[Page] = []
        self._booked = 0
        self._length = 0
        self._pool = pool
        self._kv_type = kv_type
        self._adapters = adapters
        self._domain = domain
        self._root = self._shared = pool.root(kv_type, adapters, domain)
        self._table = np.zeros(-(-context_length // PAGE), np.int64)
        self._address = int(self._table.ctypes.data)
        self._window = pool.window
        # The pages from ``low`` to ``high`` have their windowed part in the table.
        self._low = self._high = 0
        self._kept: list[range] = []
        self._saved: list[range] = []  # pages of which the store gets the windowed part
        self._window_table = np.zeros(len(self._table) if self._window else 0, np.int64)
        self._window_address = int(self._window_table.ctypes.data)
        self._apart = StatesApart(pool, kv_type) if pool.recurrent else None

    @property
    def pool(self) -> PagePool:
        """Where its pages come from."""
        return self._pool

    @property
    def kv_type(self) -> str:
        """F16 or F32."""
        return self._kv_type

    @property
    def adapters(self) -> AdapterWeights:
        """The weights of all adapters, () where none is used."""
        return self._adapters

    @property
    def address(self) -> int:
        """Where the table of full parts begins."""
        return self._address

    @property
    def window_address(self) -> int:
        """Where the table of windowed parts begins."""
        return self._window_address

    @property
    def length(self) -> int:
        """Positions that are filled."""
        return self._length

    @property
    def most_revocable(self) -> int:
        """How many rows behind the next one a step can take so that any of them can be cut off."""
        if not self._pool.recurrent:
            return len(self._table) * PAGE - self._length
        # Others may use a whole page at once.
        return max(0, min(MOST_APART, PAGE - 2 - self._length % PAGE))

    def separate(self) -> None:
        """Let an empty cache share no page with another one, now or later."""
        assert not self._pages
        self._root = Page(self._kv_type)

    def reuse(self, tokens: Sequence[int]) -> int:
        """Fill an empty cache with what is there of ``tokens``' beginning; how many that are.

        Never all of them, for the last gives logits. What windowed layers see behind the last is
        kept for others, and what they see where ``tokens`` parts from the texts that are there.
        """
        assert not self._pages
        known = 0
        if self._root is self._shared and self._domain.slot is None:
            salt = self._domain.salt
            known = self._pool.recall(self._root, self._adapters, salt, tokens)
        prefix = find(self._root, tokens, self._window)
        self.keep(prefix.parting)
        self.keep(len(tokens) - self._pool.recurrent)
        if self._window is not None:  # the store has whole pages alone
            ends = (known, prefix.parting // PAGE, (len(tokens) - 1) // PAGE)
            self._saved = [range(self._window.first_page(end * PAGE), end) for end in ends]
        length = prefix.length
        if self.enter(prefix.pages, length) and length % PAGE and not self._own_part():
            self.truncate(length // PAGE * PAGE)
        for index in {index for saved in self._saved for index in saved}:
            if index < self._length // PAGE:
                self._save(index)
        return self._length

    def enter(self, path: Sequence[Page], length: int) -> bool:
        """Begin with ``length`` positions in ``path``; False where there is no room for them.

        Nobody else writes into its pages until it gives them back.
        """
        for page in path:
            if not self._pool.share(page):
                self.release()
                return False
            self._put(page)
        self._length = length
        self._low = self._high = len(path)
        if self._window is not None and not self._look_back():
            self.release()
            return False
        return True

    def keep(self, length: int) -> None:
        """Let windowed parts stay, while there is room, from which it can go on at ``length``.

        Of a recurrent state, at the end of the last whole page before, where it is passed.
        """
        if self._pool.recurrent:
            length = length // PAGE * PAGE
        if self._window is not None and length:
            kept = range(self._window.first_page(length), -(-length // PAGE))
            if kept not in self._kept:
                self._kept.append(kept)

    def reserve(self, length: int, *, revocable: int = 0) -> bool:
        """Make room for ``length`` positions; False where the pool has no page for it now.

        Where they are more than a step's, later calls for some of them find their room, too.
        ``revocable``: so many of them, the last ones, may be cut off behind the step.
        Raises: TrinityError where the system gives no memory.
        """
        if not self._own_tail():
            return False
        if self._apart is not None and not self._apart.resize(revocable, self._length):
            return False
        window = self._window
        if window is not None:
            first = window.first_page(self._length)
            if first == self._low and length <= self._high * PAGE:
                return True  # as of most tokens
            if not self._pass(first, length):
                return False
        while len(self._pages) * PAGE < length:
            page = self._pool.take(self._last())
            if page is None:
                return False
            self._put(page)
        if window is not None:
            length = min(length, self._length + window.rows)
            while self._high * PAGE < length:
                self._see(self._high)
                self._high += 1
        return True

    def state_tables(self, tables: NDArray[np.int64], *, revocable: bool = False) -> None:
        """Write where each row of the next step finds its state and leaves it, (rows, 2)."""
        tables[:] = self._window_address
        if revocable and self._apart is not None:
            self._apart.spread(tables)

    def append(self, tokens: Sequence[int], *, hidden: bool = False) -> None:
        """Note that the next positions, which have room, now hold these tokens.

        ``hidden``: no other sequence may find them, for a prompt would give them other bits.
        """
        tokens = [-1 - token for token in tokens] if hidden else tokens
        done = 0
        while done < len(tokens):
            page = self._pages[self._length // PAGE]
            count = min(PAGE - len(page.tokens), len(tokens) - done)
            page.tokens.extend(tokens[done : done + count])
            self._length += count
            done += count
            if len(page.tokens) == PAGE:
                self._save((self._length - 1) // PAGE)
                self._unite(page)

    def truncate(self, length: int) -> None:
        """Forget every position from ``length`` on.

        Windowed layers must have what they see behind it. They do where the newest step began or
        later, and where ``keep`` said so while there was room; else it is cut at such a place
        before, or at 0. With a recurrent state such places are ends of pages, and revocable rows.
        """
        if not 0 <= length <= self._length:
            raise InputError(f"cannot cut a cache of {self._length} positions to {length}")
        if self._pool.recurrent and length < self._length:
            if self._revoke(length):
                return
            length = length // PAGE * PAGE
        if self._window is not None and self._window.first_page(length) < self._low:
            length = usable(self._pages, length, self._window)
        while len(self._pages) * PAGE >= length + PAGE:
            self._drop_last()
        self._length = length
        if self._window is not None and not self._look_back():
            self.truncate(0)

    def spoil(self, length: int) -> None:
        """Forget what a recurrent state took in behind ``length``, by a step that did not end well.

        Nobody shall find the pages that hold such state.
        """
        if not self._pool.recurrent:
            return
        first = length // PAGE
        while len(self._pages) > first:
            if self._pages[-1].users == 1:
                self._pool.cut(self._pages[-1], 0)
            self._drop_last()
        self._length = max(self._length, length)
        self.truncate(first * PAGE)

    def page(self, index: int) -> Page:
        """One of its pages."""
        return self._pages[index]

    def remember(self) -> None:
        """Note for its slot, if it has one and may share, what others can find of what it holds."""
        if self._domain.slot is not None and self._root is self._shared:
            tokens = [token for page in self._pages for token in page.tokens][: self._length]
            tokens = list(takewhile(lambda token: token >= 0, tokens))
            held = Held(self._kv_type, self._adapters, tokens)
            self._pool.held.add(self._domain, held, self._pool.left_of)

    def release(self, *, discard: bool = False) -> None:
        """Give all pages back; what they hold can be reused as long as it is there.

        ``discard``: nobody shall find it.
        """
        holding = self._holding()
        self._pages, self._booked, self._kept, self._saved = [], 0, [], []
        if self._apart is not None:
            self._apart = StatesApart(self._pool, self._kv_type)
        self._length = self._low = self._high = 0
        self._pool.release(holding, discard=discard or self._root is not self._shared)

    def __del__(self) -> None:
        if self._pages or self._booked:  # perhaps in another thread than the pool's
            self._pool.dropped.append(self._holding())

    def _holding(self) -> Holding:
        windows = range(self._low, self._high)
        apart = [] if self._apart is None else self._apart.parts
        return Holding(self._kv_type, self._pages, windows, self._booked, apart)

    def _drop_last(self) -> None:
        page = self._pages.pop()
        if self._low <= len(self._pages) < self._high:
            self._pool.leave_window(page)
        self._pool.give_back(page)

    def _revoke(self, length: int) -> bool:
        """Go back to the state behind a revocable row of the newest step, where there is one."""
        index = length // PAGE
        if index >= len(self._pages):
            return False
        page = self._pages[index]
        if self._apart is None or not self._apart.choose(page, length, self._length):
            return False
        self._pool.cut(page, length % PAGE)
        self._show(index)
        self._length = length
        return True

    def _save(self, index: int) -> None:
        """Let the store have a page that is full."""
        slot, salt = self._domain
        if self._root is self._shared and slot is None:
            windowed = any(index in saved for saved in self._saved)
            self._pool.save(self._pages[index], self._adapters, salt, windowed=windowed)

    def _last(self) -> Page:
        return self._pages[-1] if self._pages else self._root

    def _put(self, page: Page) -> None:
        self._pages.append(page)
        if page.full is not None:
            self._table[len(self._pages) - 1] = page.full.address

    def _show(self, index: int) -> None:
        """Write the addresses of another page, whose windowed part is seen, into the tables."""
        page = self._pages[index]
        if page.full is not None:
            self._table[index] = page.full.address
        if page.windowed is not None:
            self._window_table[index] = page.windowed.address

    def _book(self, count: int) -> bool:
        """Have so many windowed parts booked; False where they are in use."""
        if count != self._booked:
            if not self._pool.book(self._kv_type, count - self._booked):
                return False
            self._booked = count
        return True

    def _see(self, index: int) -> None:
        """Use the windowed part of a page."""
        self._window_table[index] = self._pool.enter_window(self._pages[index])

    def _pass(self, first: int, length: int) -> bool:
        """Pass the windowed parts before page ``first``; book those for ``length`` positions."""
        window = self._window
        assert window is not None
        while self._low < first:
            page = self._pages[self._low]
            page.kept = page.kept or any(self._low in kept for kept in self._kept)
            self._pool.pass_window(page)
            self._window_table[self._low] = 0
            self._low += 1
        pages = max(len(self._pages), -(-length // PAGE))
        return self._book(min(pages - first, window.most_pages))

    def _look_back(self) -> bool:
        """After a cut, see again what was passed since; False where there is no room for it."""
        window, end = self._window, len(self._pages)
        assert window is not None
        low, self._high = min(self._low, end), min(self._high, end)
        first = min(window.first_page(self._length), low)
        self._low = low
        if not self._book(end - first):
            return False
        for index in range(first, low):
            self._see(index)
        self._low = first
        return True

    def _own_part(self) -> bool:
        """Let the last page, filled in part, be its own; False where no page is left."""
        page, count = self._pages[-1], self._length % PAGE
        if page.users == 1 and len(page.tokens) == count and not page.children:
            return True
        return self._copy_last(count)

    def _own_tail(self) -> bool:
        """Let what follows ``length`` be this cache's own to write; False where no page is left."""
        count = self._length % PAGE
        if not self._pages or len(self._pages) * PAGE == self._length:
            return True
        page = self._pages[self._length // PAGE]
        if page.users > 1:
            return self._copy_last(count)
        if len(page.tokens) > count:
            self._pool.cut(page, count)
        return True

    def _copy_last(self, count: int) -> bool:
        """Put a copy of the last page's first ``count`` positions there; False without room."""
        pool, page = self._pool, self._pages[-1]
        assert page.parent is not None
        windowed = self._window is not None
        if not self._book(self._booked + windowed):
            return False
        try:
            copy = pool.take(page.parent)
            if copy is None:
                return False
            try:
                if windowed:
                    pool.enter_window(copy)
            except BaseException:
                pool.give_back(copy)
                raise
            for to, of in ((copy.full, page.full), (copy.windowed, page.windowed)):
                if to is not None and of is not None:
                    to.data[:] = of.data
            copy.tokens.extend(page.tokens[:count])
            self._pages[-1] = copy
            self._show(len(self._pages) - 1)
            if windowed:
                pool.leave_window(page)
            pool.give_back(page)
            return True
        finally:
            self._book(self._booked - windowed)

    def _unite(self, page: Page) -> None:
        """Where another sequence has filled the same page already, use that one."""
        assert page.parent is not None
        if page.hides:
            return  # the other one may have other bits
        for other in page.parent.children:
            if other is not page and other.tokens == page.tokens:
                index = (self._length - 1) // PAGE
                self._pool.unite(page, other)
                self._pages[index] = other
                self._show(index)
                return


def check_different(caches: Sequence[KVCache]) -> None:
    """Raise InputError unless a step can take these caches at once."""
    if len({cache.address for cache in caches}) != len(caches):
        raise InputError("the caches of a step must all be different, and one is there twice")
    kinds = sorted({cache.kv_type for cache in caches})
    if len(kinds) > 1:
        raise InputError(f"the caches of a step must have one type, got {' and '.join(kinds)}")
