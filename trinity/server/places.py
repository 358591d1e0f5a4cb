"""Places kept for requests that were refused: each finds room when its Retry-After is over.

The queue is taken for a vessel that empties at an even rate. Every refused request gets the
earliest whole second at which it fits beside all who were refused before it, and new requests are
let in only where those still fit afterwards.
"""

from __future__ import annotations

import math
import time
from bisect import insort
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity.runtime.work import Work

MOST_PLACES = 512  # of one model; who is refused beyond them has only a time
MOST_OF_ONE = 16  # of equal requests, which may be many clients or one without patience
LONGEST = 3600  # seconds of a Retry-After
GRACE, GRACE_PART = 2.0, 0.1  # seconds, and of the wait, that a place is kept for who is late
SHARE = 0.1  # of a new time between two ends in the mean, once there are enough
MEASURED = 10  # ends before which a retry that finds no room is no fault of the margin
UNKNOWN = 0.5  # seconds between two ends while nothing is known
# The margin grows with a retry that finds no room and shrinks with each that does: it comes to rest
# where 2% find none.
FIRST_MARGIN, LEAST_MARGIN, MOST_MARGIN = 1.5, 1.0, 4.0
GROWTH, KEPT_PART = 1.25, 0.98
ROUNDING = 1e-9

# Who asks for what: a hash that a request has again when it is sent again. Empty: not known.
asker: ContextVar[bytes] = ContextVar("asker", default=b"")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Room from ``due`` until ``until``, in seconds of the clock, for ``count`` answers."""

    due: float
    until: float
    count: int
    key: bytes


class Places:
    """Who may enter one model's queue, and when those find room who may not."""

    def __init__(self) -> None:
        self._kept: list[Place] = []  # by their times
        self._margin = FIRST_MARGIN
        self._ended = 0.0
        self._ends = 0
        self._between = 0.0  # seconds from one answer's end to the next, while some wait: a mean

    def ended(self, work: Work) -> None:
        """An answer has ended."""
        now = time.monotonic()
        if work.waiting and self._ended:
            self._ends += 1
            between = min(now - self._ended, 10 * self._between or math.inf)
            self._between += max(SHARE, 1 / self._ends) * (between - self._between)
        self._ended = now if work.waiting else 0.0

    def enter(self, key: bytes, count: int, work: Work, taken: int, most: int) -> int:
        """Whole seconds after which a request shall ask again; 0: it is let in.

        ``taken`` of the ``most`` who may wait do so. A place is kept for the ``key`` if it is not.
        """
        now = time.monotonic()
        self._kept = [one for one in self._kept if one.until > now]
        own = next((one for one in self._kept if one.key == key), None)
        due = own is not None and own.due <= now
        if own is not None and due:
            self._kept.remove(own)
            self._learn(found=taken < most)
        levels = _Levels(self._kept, self._pace(work), now, taken, most)
        # Whoever is late, the model shall not wait for him.
        idle = not taken and (most > 1 or not work.running)
        if taken < most and (due or idle or levels.fits(0, 0.0)):
            if own is not None and not due:
                self._kept.remove(own)
            return 0
        seconds = levels.seconds()
        same = sum(one.key == key for one in self._kept)
        if key and len(self._kept) < MOST_PLACES and same < MOST_OF_ONE:
            until = now + seconds + GRACE + GRACE_PART * seconds
            insort(self._kept, Place(now + seconds, until, min(count, most), key))
        return seconds

    def _pace(self, work: Work) -> tuple[float, float]:
        """Seconds until the queue begins to empty, and of each who then leaves it."""
        between = self._between or work.seconds_until_end / max(1, work.running) or UNKNOWN
        first = work.evaluation_seconds
        return self._margin * max(0.0, first - between), self._margin * between

    def _learn(self, *, found: bool) -> None:
        """Whether one who came at his time has found room."""
        if self._ends < MEASURED:
            return
        up = (1 - KEPT_PART) / KEPT_PART
        factor = GROWTH**-up if found else GROWTH
        self._margin = min(max(self._margin * factor, LEAST_MARGIN), MOST_MARGIN)


class _Levels:
    """How many wait, now and after each kept place is taken, and where one more fits between."""

    def __init__(
        self, kept: list[Place], pace: tuple[float, float], now: float, taken: int, most: int
    ) -> None:
        self._start, self._pace = pace
        self._most = most
        self._times, self._levels = [0.0], [float(taken)]
        for one in kept:
            at = max(one.due - now, 0.0)
            before = max(0.0, self._levels[-1] - self._left(self._times[-1], at))
            self._times.append(at)
            self._levels.append(before + one.count)
        # How many more may come before each place until one of those behind finds none.
        self._bears = [math.inf] * (len(self._times) + 1)
        for i in reversed(range(len(self._times))):
            bears = self._bears[i + 1] + self._idle(i, self._times[i])
            self._bears[i] = min(most - self._levels[i], bears)

    def fits(self, i: int, at: float) -> bool:
        """Whether one more does behind place ``i``, ``at`` seconds from now."""
        level = max(0.0, self._levels[i] - self._left(self._times[i], at))
        if level + 1 > self._most + ROUNDING:
            return False
        return self._bears[i + 1] + self._idle(i, at) >= 1 - ROUNDING

    def seconds(self) -> int:
        """The fewest whole seconds, one or more, after which one more fits.

        Between two places that is once enough have left, or never, as the time until the second
        place only becomes shorter.
        """
        for i, begin in enumerate(self._times):
            end = self._times[i + 1] if i + 1 < len(self._times) else LONGEST
            leave = max(0.0, self._levels[i] + 1 - self._most) * self._pace
            enough = math.ceil(max(begin, self._start) + leave) if leave else 0
            for seconds in (enough - 1, enough, enough + 1):  # as rounding has it
                at = max(1, math.ceil(begin), seconds)
                if at < end and self.fits(i, at):
                    return at
        return LONGEST

    def _left(self, begin: float, end: float) -> float:
        """How many could leave the queue from one time to another."""
        return (max(end, self._start) - max(begin, self._start)) / self._pace

    def _idle(self, i: int, at: float) -> float:
        """How many more could leave from a time behind place ``i`` until the next place."""
        if i + 1 == len(self._times):
            return math.inf
        level = max(0.0, self._levels[i] - self._left(self._times[i], at))
        return max(0.0, self._left(at, self._times[i + 1]) - level)
