"""Where the rows of a buffer are in memory."""

from __future__ import annotations

from typing import NamedTuple


class RowsView(NamedTuple):
    """Rows of a buffer, as records name them."""

    address: int
    """The first byte of the first row."""
    stride: int
    """Bytes from one row to the next."""

    def after(self, nbytes: int) -> RowsView:
        """The same rows without their first ``nbytes`` bytes."""
        return RowsView(self.address + nbytes, self.stride)

    def heads(self, count: int, nbytes: int) -> list[RowsView]:
        """``count`` views of the rows, each ``nbytes`` after the one before."""
        return [self.after(nbytes * head) for head in range(count)]

    def slots(self, address: int, stride: int) -> dict[int, int]:
        """The values of a record's slots for the address and the stride."""
        return {address: self.address, stride: self.stride}
