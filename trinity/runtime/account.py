"""How many tokens speculation may propose, from what it has cost and won so far."""

from __future__ import annotations

# In steps of one token: what speculation may lose at the beginning, what it may lose more with each
# step, and the most that it may gather for later losses.
STAKE, SHARE, MOST_CREDIT = 1.5, 0.03, 8.0
# Until it is measured: what a proposed token costs, as a part of a step of one token.
GUESSED_COST = 0.4
# Proposals that are thought of as seen in the beginning, and those of them that were right.
TRIALS, HITS = 4.0, 3.0
# What is left of older experience after each trial.
MEMORY = 0.9
# Seconds of a step below which the bookkeeping itself would show.
CHEAP = 250e-6


class Account:
    """What speculation has won and lost with one model, which decides how much it may risk.

    The losses of wrong proposals stay below ``STAKE`` steps of one token and 3% of all steps,
    whatever the text and whatever a step of several tokens costs on this machine.
    """

    def __init__(self) -> None:
        self.credit = STAKE
        self._single = 0.0
        self._cost = GUESSED_COST
        self._built = False
        self._seen: dict[int, tuple[float, float]] = {}

    @property
    def worthwhile(self) -> bool:
        """Whether a step takes long enough to think about sparing it."""
        return self._single == 0 or self._single >= CHEAP

    def proposals(self, size: int, most: int) -> int:
        """How many tokens to propose after an n-gram of ``size``, at most ``most``."""
        if self._single == 0:
            return 0  # the first step tells what a step costs
        most = min(most, int(self.credit / self._cost))
        trials, hits = self._seen.get(size, (0.0, 0.0))
        chance = (hits + HITS) / (trials + TRIALS)
        # The number that promises the most tokens per time: the mean of a run of hits over its
        # cost rises with it and then falls.
        count, tokens, run, best = 0, 1.0, 1.0, 1.0
        for number in range(1, most + 1):
            run *= chance
            tokens += run
            rate = tokens / (1 + self._cost * number)
            if rate > best:
                count, best = number, rate
        return count

    def learn(self, size: int, right: int, wrong: bool) -> None:
        """Note how many tokens after an n-gram of ``size`` were right before one was wrong."""
        trials, hits = self._seen.get(size, (0.0, 0.0))
        self._seen[size] = MEMORY * trials + right + wrong, MEMORY * hits + right

    def single(self, seconds: float) -> None:
        """Note the time of a step of one token."""
        if self._single:
            # A pause of the whole process is no step's cost.
            seconds = 0.8 * self._single + 0.2 * min(seconds, 2 * self._single)
        self._single = seconds
        self.credit = min(self.credit + SHARE, MOST_CREDIT)
        # A high cost may have been an accident; that it is tried again, the credit allows.
        self._cost = min(self._cost, 0.98 * self._cost + 0.02 * GUESSED_COST)

    def several(self, proposed: int, accepted: int, seconds: float) -> None:
        """Note the time of a step with ``proposed`` tokens, of which ``accepted`` were right."""
        # The first also builds the plan for such steps, which says nothing of the others.
        most = 2.0 + proposed if self._built else 1 + self._cost * proposed
        steps = min(seconds / self._single, most)
        self._built = True
        self._cost = max(0.5 * (self._cost + (steps - 1) / proposed), 0.01)
        self.credit = min(self.credit + SHARE + accepted + 1 - steps, MOST_CREDIT)
