"""The KV cache of one sequence: its pages, and the positions that its next token attends to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError
from trinity.runtime.pages.held_slots import Held
from trinity.runtime.pages.page import COMMON, AdapterWeights, Domain, Page
from trinity.runtime.pages.page_pool import Holding, PagePool
from trinity.runtime.pages.page_search import find, usable
from trinity.runtime.pages.states_apart import MOST_APART, StatesApart
from trinity_kernels.ops.kv_layout import PAGE


class KVCache:
    """A table of KV pages, of which ``length`` positions are filled.

    Kernels read the table of full parts (int64 addresses) at ``address``, and that of windowed
    parts at ``window_address``. The cache holds only the windowed parts that the next step's tokens
    attend to, and gives the others back before the step. ``release`` gives the pages back to the
    pool; so does the garbage collector. Pages are shared only with caches of the same ``adapters``
    (scales) and ``domain``.
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
        self._saved: list[range] = []  # pages whose windowed part is written to the store
        self._window_table = np.zeros(len(self._table) if self._window else 0, np.int64)
        self._window_address = int(self._window_table.ctypes.data)
        self._apart = StatesApart(pool, kv_type) if pool.recurrent else None

    @property
    def pool(self) -> PagePool:
        """The pool that the pages belong to."""
        return self._pool

    @property
    def kv_type(self) -> str:
        """The type of keys and values: F16, Q8_0 or F32."""
        return self._kv_type

    @property
    def adapters(self) -> AdapterWeights:
        """The scales of all adapters; () if none is used."""
        return self._adapters

    @property
    def domain(self) -> Domain:
        """The domain of texts that it shares pages with."""
        return self._domain

    @property
    def address(self) -> int:
        """The address of the table of full parts."""
        return self._address

    @property
    def window_address(self) -> int:
        """The address of the table of windowed parts."""
        return self._window_address

    @property
    def length(self) -> int:
        """The number of positions that are filled."""
        return self._length

    @property
    def most_revocable(self) -> int:
        """How many rows after the first a step may compute so that any of them can be revoked."""
        if not self._pool.recurrent:
            return len(self._table) * PAGE - self._length
        # Other sequences may use a whole page at once.
        return max(0, min(MOST_APART, PAGE - 2 - self._length % PAGE))

    def separate(self) -> None:
        """Never share pages of this empty cache with another one."""
        assert not self._pages
        self._root = Page(self._kv_type)

    def reuse(self, tokens: Sequence[int]) -> int:
        """Fill an empty cache with the known prefix of ``tokens``; return its length.

        At least one token is left, since its logits are needed. Later requests may share a prefix
        with ``tokens``. For them, the cache will keep the windowed parts that are needed to
        continue at the end of ``tokens``, and where these branch off from the known texts.
        """
        assert not self._pages
        known = 0
        if self._root is self._shared and self._domain.slot is None:
            salt = self._domain.salt
            known = self._pool.recall(self._root, self._adapters, salt, tokens)
        prefix = find(self._root, tokens, self._window)
        self.keep(prefix.parting)
        self.keep(len(tokens) - self._pool.recurrent)
        if self._window is not None:  # the store has only whole pages
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
        """Begin with ``length`` positions of the pages in ``path``; False if there is no room for
        them.

        No other sequence writes into these pages until they are given back.
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
        """Keep the windowed parts that are needed to continue at ``length``, while there is room.

        A recurrent state is kept at the end of the last whole page before ``length``.
        """
        if self._pool.recurrent:
            length = length // PAGE * PAGE
        if self._window is not None and length:
            kept = range(self._window.first_page(length), -(-length // PAGE))
            if kept not in self._kept:
                self._kept.append(kept)

    def reserve(self, length: int, *, revocable: int = 0) -> bool:
        """Make room for ``length`` positions; False if the pool has no page for them now.

        If these are more than the next step's, later calls for some of them succeed, too.
        ``revocable``: the number of last positions that may be truncated after the step.
        Raises: TrinityError if the system refuses memory.
        """
        if not self._own_tail():
            return False
        if self._apart is not None and not self._apart.resize(revocable, self._length):
            return False
        window = self._window
        if window is not None:
            first = window.first_page(self._length)
            if first == self._low and length <= self._high * PAGE:
                return True  # the case of most tokens
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
        """Write where each row of the next step reads and writes its recurrent state, (rows, 2)."""
        tables[:] = self._window_address
        if revocable and self._apart is not None:
            self._apart.spread(tables)

    def append(self, tokens: Sequence[int], *, hidden: bool = False) -> None:
        """Note that the next positions, which have room, hold these tokens.

        ``hidden``: other sequences must not reuse them, since a prompt would give them other bits.
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
        """Forget all positions from ``length`` on.

        Windowed layers need the positions before ``length`` that they attend to. These exist if the
        newest step began there or later, or if ``keep`` was called for it while there was room;
        otherwise the cache is truncated to an earlier such position, or to 0. With a recurrent
        state, these positions are page ends and revocable rows.
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
        """Forget the recurrent state after ``length``, since a step failed.

        Other sequences must not reuse the pages with such a state.
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
        """The page with this index."""
        return self._pages[index]

    def remember(self) -> None:
        """Note for its slot, if it has one and may share pages, which tokens this cache holds."""
        if self._domain.slot is not None and self._root is self._shared:
            tokens = [token for page in self._pages for token in page.tokens][: self._length]
            tokens = list(takewhile(lambda token: token >= 0, tokens))
            held = Held(self._kv_type, self._adapters, tokens)
            self._pool.held.add(self._domain, held, self._pool.left_of)

    def release(self, *, discard: bool = False) -> None:
        """Give all pages back; their content can be reused while it exists.

        ``discard``: the content must not be reused.
        """
        holding = self._holding()
        self._pages, self._booked, self._kept, self._saved = [], 0, [], []
        if self._apart is not None:
            self._apart = StatesApart(self._pool, self._kv_type)
        self._length = self._low = self._high = 0
        self._pool.release(holding, discard=discard or self._root is not self._shared)

    def __del__(self) -> None:
        if self._pages or self._booked:  # possibly in another thread than the pool's
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
        """Return to the recurrent state after a revocable row of the newest step, if any."""
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
        """Write a full page to the store."""
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
        """Write the addresses of a page whose windowed part is in use into the tables."""
        page = self._pages[index]
        if page.full is not None:
            self._table[index] = page.full.address
        if page.windowed is not None:
            self._window_table[index] = page.windowed.address

    def _book(self, count: int) -> bool:
        """Book a number of windowed parts; False if they are in use."""
        if count != self._booked:
            if not self._pool.book(self._kv_type, count - self._booked):
                return False
            self._booked = count
        return True

    def _see(self, index: int) -> None:
        """Use the windowed part of a page."""
        self._window_table[index] = self._pool.enter_window(self._pages[index])

    def _pass(self, first: int, length: int) -> bool:
        """Give back windowed parts before page ``first``; book those for ``length`` positions."""
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
        """After truncating, take back the windowed parts given back since; False without room."""
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
        """Make the partly filled last page private to this cache; False if no page is left."""
        page, count = self._pages[-1], self._length % PAGE
        if page.users == 1 and len(page.tokens) == count and not page.children:
            return True
        return self._copy_last(count)

    def _own_tail(self) -> bool:
        """Make the positions after ``length`` private to this cache; False if no page is left."""
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
        """Replace the last page by a copy of its first ``count`` tokens; False without room."""
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
        """If another sequence has filled the same page already, use that one."""
        assert page.parent is not None
        if page.hides:
            return  # the other page may have other bits
        for other in page.parent.children:
            if other is not page and other.tokens == page.tokens:
                index = (self._length - 1) // PAGE
                self._pool.unite(page, other)
                self._pages[index] = other
                self._show(index)
                return


def check_different(caches: Sequence[KVCache]) -> None:
    """Raise InputError unless one step can use all these caches."""
    if len({cache.address for cache in caches}) != len(caches):
        raise InputError("the caches of a step must all be different, but one occurs twice")
    kinds = sorted({cache.kv_type for cache in caches})
    if len(kinds) > 1:
        raise InputError(f"the caches of a step must have one type, got {' and '.join(kinds)}")
