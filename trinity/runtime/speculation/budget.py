"""How many tokens speculation may propose, from what it has cost and gained so far."""

from __future__ import annotations

from collections.abc import Sequence

# In steps of one token: the losses that are allowed at first, the further losses allowed with each
# step, and the most that can be saved up for later losses.
STAKE, SHARE, MOST_CREDIT = 1.5, 0.03, 8.0
# The cost of a proposed token, relative to a step of one token, until it is measured.
GUESSED_COST = 0.4
# Trials that are assumed at first, and the hits among them.
TRIALS, HITS = 4.0, 3.0
# The weight of older experience after each trial.
MEMORY = 0.9
# The same for a drafting layer: trying it has a cost, and each step shows at least one trial.
GUESSED_DRAFT_COST, MOST_DRAFT_COST = 0.2, 2.0
DRAFT_MEMORY, FORGETTING = 0.97, 0.995
# Proposals are counted by kind: an n-gram's by its length, a draft's first token as DRAFTED, its
# later ones by their probability in GRADES classes, from DOUBTED on.
DRAFTED, DOUBTED, GRADES = 0, -8, 8
# Seconds of a step below which the bookkeeping itself would cost too much.
CHEAP = 250e-6


class SpeculationBudget:
    """The gains and losses of speculation with one model, which limit how much it may risk.

    The losses of wrong proposals stay below ``STAKE`` steps of one token plus 3% of all steps,
    whatever the text and whatever a step of several tokens costs on this machine.
    """

    def __init__(self) -> None:
        self.credit = STAKE
        self._single = 0.0
        self._cost = GUESSED_COST
        self._built = False
        self._draft_cost = GUESSED_DRAFT_COST
        self._seen: dict[int, tuple[float, float]] = {}

    @property
    def worthwhile(self) -> bool:
        """Whether a step takes long enough for speculation."""
        return self._single == 0 or self._single >= CHEAP

    def proposals(self, size: int, most: int) -> tuple[int, float]:
        """How many tokens to propose after an n-gram of length ``size``, at most ``most``.

        Also returns the number of tokens that this promises in the time of a single-token step.
        """
        return self._best(self.chance(size), self._cost, most)

    def drafts(self, most: int) -> tuple[int, float]:
        """As ``proposals``, for tokens from the drafting layer."""
        return self._best(self.chance(DRAFTED), self._cost + self._draft_cost, most)

    def chance(self, key: int) -> float:
        """The probability that a proposal of this kind is right."""
        trials, hits = self._seen.get(key, (0.0, 0.0))
        return (hits + HITS) / (trials + TRIALS)

    def run(self) -> DraftRun:
        """Start a draft, whose tokens are decided one by one."""
        return DraftRun(self, self._cost, self._draft_cost)

    def _best(self, chance: float, cost: float, most: int) -> tuple[int, float]:
        if self._single == 0:
            return 0, 1.0  # the first step measures the cost
        most = min(most, int(self.credit / cost))
        # The best number maximizes tokens per time: the expected length of a run of hits divided by
        # its cost, which rises and then falls.
        count, tokens, run, best = 0, 1.0, 1.0, 1.0
        for number in range(1, most + 1):
            run *= chance
            tokens += run
            rate = tokens / (1 + cost * number)
            if rate > best:
                count, best = number, rate
        return count, best

    def learn(self, size: int, right: int, wrong: bool) -> None:
        """Note how many tokens after an n-gram of ``size`` were right before one was wrong."""
        trials, hits = self._seen.get(size, (0.0, 0.0))
        self._seen[size] = MEMORY * trials + right + wrong, MEMORY * hits + right

    def learn_draft(self, believed: Sequence[float], right: int, wrong: bool) -> None:
        """As ``learn``, for drafted tokens with the probabilities ``believed``."""
        if right or wrong:
            self._note(DRAFTED, float(right > 0))
        for number, probability in enumerate(believed[: right + wrong]):
            self._note(confidence(probability), float(number < right))

    def _note(self, key: int, hit: float) -> None:
        trials, hits = self._seen.get(key, (0.0, 0.0))
        self._seen[key] = DRAFT_MEMORY * trials + 1, DRAFT_MEMORY * hits + hit

    def drafted(self, count: int, seconds: float) -> None:
        """Note the time in which a drafting layer computed ``count`` tokens."""
        if not count:
            return
        steps = min(seconds / self._single, MOST_DRAFT_COST * count)
        self._draft_cost = 0.5 * (self._draft_cost + steps / count)
        self.credit -= steps

    def single(self, seconds: float) -> None:
        """Note the time of a step of one token."""
        if self._single:
            # A pause of the whole process is not the cost of a step.
            seconds = 0.8 * self._single + 0.2 * min(seconds, 2 * self._single)
        self._single = seconds
        self.credit = min(self.credit + SHARE, MOST_CREDIT)
        # A high measured cost may have been an accident; the credit allows another trial.
        self._cost = min(self._cost, 0.98 * self._cost + 0.02 * GUESSED_COST)
        lower = 0.98 * self._draft_cost + 0.02 * GUESSED_DRAFT_COST
        self._draft_cost = min(self._draft_cost, lower)
        if DRAFTED in self._seen:  # so that drafting is tried again
            trials, hits = self._seen[DRAFTED]
            self._seen[DRAFTED] = FORGETTING * trials, FORGETTING * hits

    def several(self, proposed: int, accepted: int, seconds: float) -> None:
        """Note the time of a step with ``proposed`` tokens, of which ``accepted`` were right."""
        # The first such step also builds its plan, so its time says nothing about others.
        most = 2.0 + proposed if self._built else 1 + self._cost * proposed
        steps = min(seconds / self._single, most)
        self._built = True
        self._cost = max(0.5 * (self._cost + (steps - 1) / proposed), 0.01)
        self.credit = min(self.credit + SHARE + accepted + 1 - steps, MOST_CREDIT)


class DraftRun:
    """A draft in progress: decides which of its tokens are worth their rows, by their
    probabilities.
    """

    def __init__(self, budget: SpeculationBudget, cost: float, draft_cost: float) -> None:
        self.believed: list[float] = []
        self.looked = 0  # for so many tokens
        self._budget = budget
        self._cost = cost
        self._draft_cost = draft_cost
        self._run = self._tokens = self._spent = 1.0

    def wants(self, probability: float) -> bool:
        """Whether another token of this probability raises the expected tokens per time."""
        self.looked += 1
        self._spent += self._draft_cost
        run = self._run * self._budget.chance(confidence(probability))
        if run * self._spent <= self._cost * self._tokens:
            return False
        self._run, self._tokens, self._spent = run, self._tokens + run, self._spent + self._cost
        self.believed.append(probability)
        return True


def confidence(probability: float) -> int:
    """The class of drafted tokens with about this probability."""
    return DOUBTED + min(int(GRADES * probability), GRADES - 1)
