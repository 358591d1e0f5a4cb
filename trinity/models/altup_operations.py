"""AltUp's operations on four residual streams, the first of which a layer computes (ops/altup.py).

A buffer of streams has the values of all, one stream after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from trinity.models.operations import Operation, Shapes, Widths

STREAMS = 4


@dataclass(frozen=True, slots=True)
class AltUpPredict(Operation):
    """Add to each stream a sum of all streams, by 16 ``coefs`` per token."""

    streams: str
    coefs: str
    width: int

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return {self.streams: STREAMS * self.width, self.coefs: STREAMS**2}


@dataclass(frozen=True, slots=True)
class AltUpCorrect(Operation):
    """Add (x - stream 0) * (coefficient + 1) to each stream; then out = stream 0 * scale."""

    streams: str
    coefs: str
    x: str
    scale: str  # a weight
    out: str
    width: int

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return {
            self.streams: STREAMS * self.width,
            self.coefs: STREAMS,
            **dict.fromkeys((self.x, self.out), self.width),
        }

    def weights(self) -> Shapes:
        """Shape of the weight."""
        return {self.scale: (self.width,)}


@dataclass(frozen=True, slots=True)
class MatchMagnitude(Operation):
    """Scale each of ``groups`` vectors of x to the length of target's first ``width`` values."""

    x: str
    target: str
    width: int
    groups: int

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return {self.x: self.groups * self.width, self.target: self.width}
