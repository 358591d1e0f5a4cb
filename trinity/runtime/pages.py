"""Keys and values in pages of 128 positions, which sequences with the same beginning share.

A page holds all layers' keys and values of 128 consecutive positions (ops/kv_layout.py draws a
layer's part). It remembers its tokens and the page before it, so the pages of a pool form a tree of
the texts that were evaluated: a new sequence takes every full page that its tokens lead along, and
copies the beginning of one that it shares in part. Pages that nobody uses stay in the tree until
their memory is wanted, the one that was used last the longest.

What a layer keeps need not grow with positions: a recurrent layer's part of a page is its state
after the page's last position, from which whoever shares the page goes on.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError, TrinityError
from trinity.models.operations import Attention
from trinity.runtime.memory import mapped
from trinity_kernels.ops.kv_layout import PAGE, layer_bytes

# Memory is taken by several pages of a small model at once, where the system's large pages begin:
# attention reads memory in small ones some percent slower.
SLAB_BYTES, ALIGNMENT = 16 << 20, 2 << 20
LEAST_COPY = 4  # tokens in common from which a page is copied rather than evaluated anew


def layer_offsets(layers: Sequence[Attention], kv_type: str) -> list[int]:
    """Where each layer's part of a page begins, and behind them the page's size in bytes.

    A layer that reads another's keys and values has no part of its own.
    """
    sizes = [
        layer_bytes(kv_type, layer.num_kv_heads, layer.head_dim, layer.width_of_values)
        if layer.cache_of is None
        else 0
        for layer in layers
    ]
    return list(accumulate(sizes, initial=0))


class Page:
    """Memory for 128 positions; ``tokens`` of them are evaluated, after those of ``parent``."""

    __slots__ = ("address", "children", "data", "kv_type", "parent", "tokens", "users")

    def __init__(self, kv_type: str, data: NDArray[np.uint8]) -> None:
        self.kv_type = kv_type
        self.data = data
        self.address = int(data.ctypes.data)
        self.tokens: list[int] = []
        self.parent: Page | None = None
        self.children: list[Page] = []
        self.users = 0

    def common(self, tokens: Sequence[int], start: int, stop: int) -> int:
        """How many of this page's first tokens are ``tokens[start:stop]``'s first, too."""
        mine = self.tokens
        limit = min(len(mine), stop - start)
        return next((i for i in range(limit) if mine[i] != tokens[start + i]), limit)


class PagePool:
    """The pages of one engine, of at most ``limit`` bytes together.

    ``sizes``: bytes of a page of each element type of keys and values. ``prepare`` is called with
    address and size of new memory. One thread uses a pool at a time.
    """

    def __init__(
        self, sizes: Mapping[str, int], limit: int,
        prepare: Callable[[int, int], None] = lambda address, nbytes: None,
    ) -> None:  # fmt: skip
        self.sizes = dict(sizes)
        self.limit = limit
        self.nbytes = 0
        self._prepare = prepare
        self._roots = {kv_type: Page(kv_type, np.empty(0, np.uint8)) for kv_type in sizes}
        self._spare: dict[str, list[Page]] = {kv_type: [] for kv_type in sizes}
        self._fresh: dict[str, list[NDArray[np.uint8]]] = {kv_type: [] for kv_type in sizes}
        self._idle: OrderedDict[Page, None] = OrderedDict()
        self.dropped: deque[list[Page]] = deque()  # of caches that were collected as garbage

    def root(self, kv_type: str) -> Page:
        """What the first page of every sequence has as its parent."""
        return self._roots[kv_type]

    def available(self, kv_type: str) -> int:
        """How many pages can be taken now."""
        self._take_back()
        free = self.limit - self.nbytes
        free += sum(self.sizes[kind] * len(pages) for kind, pages in self._spare.items())
        free += sum(self.sizes[page.kv_type] for page in self._idle)
        return free // self.sizes[kv_type]

    def take(self, parent: Page) -> Page | None:
        """A page after ``parent``, or None where all are in use.

        Raises: TrinityError where the system gives no memory and no page can be freed for it.
        """
        self._take_back()
        page = self._memory(parent.kv_type)
        if page is not None:
            page.users, page.parent = 1, parent
            parent.children.append(page)
        return page

    def share(self, page: Page) -> None:
        """One more uses ``page``."""
        page.users += 1
        self._idle.pop(page, None)

    def give_back(self, page: Page) -> None:
        """One less uses ``page``; of several in a row, the last is given back first."""
        page.users -= 1
        if page.users == 0:
            if page.tokens:
                self._idle[page] = None
            else:
                self._forget(page)

    def discard(self, page: Page) -> None:
        """Give back a page whose content nobody shall find."""
        self.cut(page, 0)
        self.give_back(page)

    def cut(self, page: Page, count: int) -> None:
        """Forget all but the first ``count`` tokens of a page, and what follows it."""
        del page.tokens[count:]
        for child in list(page.children):
            self._idle.pop(child)
            self.cut(child, 0)
            self._forget(child)

    def _memory(self, kv_type: str) -> Page | None:
        size = self.sizes[kv_type]
        while True:
            if self._spare[kv_type]:
                return self._spare[kv_type].pop()
            if self.nbytes + size <= self.limit:
                try:
                    data = self._new(kv_type)
                except TrinityError:
                    if not self._free():
                        raise
                    continue
                self.nbytes += size
                return Page(kv_type, data)
            if not self._free():
                return None

    def _new(self, kv_type: str) -> NDArray[np.uint8]:
        """Memory of a page that was never used."""
        fresh, size = self._fresh[kv_type], self.sizes[kv_type]
        if not fresh:
            count = max(1, min(SLAB_BYTES, self.limit - self.nbytes) // size)
            slab = mapped(count * size + ALIGNMENT, f"keys and values in {kv_type}")
            start = -slab.ctypes.data % ALIGNMENT
            pages = slab[start : start + count * size].reshape(count, size)
            self._prepare(int(pages.ctypes.data), pages.nbytes)
            fresh.extend(reversed(pages))
        return fresh.pop()

    def _free(self) -> bool:
        """Free the page that was used longest ago, or memory of another type; False without any."""
        if self._idle:
            page, _ = self._idle.popitem(last=False)
            self.cut(page, 0)
            self._forget(page)
            return True
        for kind, pages in self._spare.items():
            if pages:
                pages.pop()
                self.nbytes -= self.sizes[kind]
                return True
        return False

    def _forget(self, page: Page) -> None:
        if page.parent is not None:
            page.parent.children.remove(page)
            page.parent = None
        self._spare[page.kv_type].append(page)

    def _take_back(self) -> None:
        while self.dropped:
            for page in reversed(self.dropped.popleft()):
                self.give_back(page)


class KVCache:
    """The keys and values of one sequence: a table of pages, ``length`` positions of them filled.

    Kernels find the table, an int64 for the address of each page, at ``address``. Pages go back to
    the pool by ``release``, or when the cache is collected.
    """

    def __init__(self, pool: PagePool, kv_type: str, context_length: int) -> None:
        self._pages: list[Page] = []
        self._length = 0
        self._pool = pool
        self._kv_type = kv_type
        self._root = pool.root(kv_type)
        self._table = np.zeros(-(-context_length // PAGE), np.int64)
        self._address = int(self._table.ctypes.data)

    @property
    def pool(self) -> PagePool:
        """Where its pages come from."""
        return self._pool

    @property
    def kv_type(self) -> str:
        """F16 or F32."""
        return self._kv_type

    @property
    def address(self) -> int:
        """Where the table begins."""
        return self._address

    @property
    def length(self) -> int:
        """Positions that are filled."""
        return self._length

    @property
    def pages(self) -> int:
        """Pages that it uses."""
        return len(self._pages)

    def separate(self) -> None:
        """Let an empty cache share no page with another one, now or later."""
        assert not self._pages
        self._root = Page(self._kv_type, np.empty(0, np.uint8))

    def reuse(self, tokens: Sequence[int]) -> int:
        """Fill an empty cache with what is there of ``tokens``' beginning; how many that are.

        Never all of them, for the last gives logits.
        """
        assert not self._pages
        stop = len(tokens) - 1
        while len(self._pages) < len(self._table):
            end = self._length + PAGE
            found = None
            if end <= stop:
                wanted = list(tokens[self._length : end])
                found = next((p for p in self._last().children if p.tokens == wanted), None)
            if found is None:
                self._reuse_part(tokens, stop)
                break
            self._pool.share(found)
            self._put(found)
            self._length = end
        return self._length

    def reserve(self, length: int) -> bool:
        """Make room for ``length`` positions; False where the pool has no page for it now.

        Raises: TrinityError where the system gives no memory.
        """
        if not self._own_tail():
            return False
        while len(self._pages) * PAGE < length:
            page = self._pool.take(self._last())
            if page is None:
                return False
            self._put(page)
        return True

    def append(self, tokens: Sequence[int]) -> None:
        """Note that the next positions, which have room, now hold these tokens."""
        done = 0
        while done < len(tokens):
            page = self._pages[self._length // PAGE]
            count = min(PAGE - len(page.tokens), len(tokens) - done)
            page.tokens.extend(tokens[done : done + count])
            self._length += count
            done += count
            if len(page.tokens) == PAGE:
                self._unite(page)

    def truncate(self, length: int) -> None:
        """Forget every position from ``length`` on."""
        if not 0 <= length <= self._length:
            raise InputError(f"cannot cut a cache of {self._length} positions to {length}")
        while len(self._pages) * PAGE >= length + PAGE:
            self._pool.give_back(self._pages.pop())
        self._length = length

    def release(self) -> None:
        """Give all pages back; what they hold can be reused as long as it is there."""
        if self._root is not self._pool.root(self._kv_type):
            while self._pages:
                self._pool.discard(self._pages.pop())
        self.truncate(0)

    def __del__(self) -> None:
        if self._pages:  # perhaps in another thread than the pool's
            self._pool.dropped.append(self._pages)

    def _last(self) -> Page:
        return self._pages[-1] if self._pages else self._root

    def _put(self, page: Page) -> None:
        self._table[len(self._pages)] = page.address
        self._pages.append(page)

    def _reuse_part(self, tokens: Sequence[int], stop: int) -> None:
        """Take over, or copy, the page that goes along longest."""
        best, count = None, LEAST_COPY - 1
        for page in self._last().children:
            common = page.common(tokens, self._length, stop)
            if common > count:
                best, count = page, common
        if best is None:
            return
        if best.users == 0 and len(best.tokens) == count and not best.children:
            self._pool.share(best)
            self._put(best)
        elif not self._copy(best, count):
            return
        self._length += count

    def _copy(self, page: Page, count: int) -> bool:
        """Append a copy of a page's first ``count`` positions; False where there is no page."""
        self._pool.share(page)  # else it might be the one that is freed
        try:
            copy = self._pool.take(self._last())
            if copy is not None:
                size = self._pool.sizes[self._kv_type]
                to, of = copy.address - copy.data.ctypes.data, page.address - page.data.ctypes.data
                copy.data[to : to + size] = page.data[of : of + size]
                copy.tokens.extend(page.tokens[:count])
                self._put(copy)
            return copy is not None
        finally:
            self._pool.give_back(page)

    def _own_tail(self) -> bool:
        """Let what follows ``length`` be this cache's own to write; False where no page is left."""
        count = self._length % PAGE
        if not self._pages or len(self._pages) * PAGE == self._length:
            return True
        index = self._length // PAGE
        page = self._pages[index]
        if page.users == 1:
            if len(page.tokens) > count:
                self._pool.cut(page, count)
            return True
        # Cut within a page that others use.
        self._pages.pop()
        copied = False
        try:
            copied = self._copy(page, count)
        finally:
            if not copied:
                self._pages.append(page)
        if not copied:
            return False
        self._pool.give_back(page)
        return True

    def _unite(self, page: Page) -> None:
        """Where another sequence has filled the same page already, use that one."""
        assert page.parent is not None
        for other in page.parent.children:
            if other is not page and other.tokens == page.tokens:
                index = (self._length - 1) // PAGE
                self._pool.share(other)
                self._pages[index] = other
                self._table[index] = other.address
                for following in self._pages[index + 1 : index + 2]:
                    page.children.remove(following)
                    following.parent = other
                    other.children.append(following)
                self._pool.discard(page)
                return
