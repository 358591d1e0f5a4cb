"""How many tokens speculation may propose, from what it has cost and won so far."""

from __future__ import annotations

from collections.abc import Sequence

# In steps of one token: what speculation may lose at the beginning, what it may lose more with each
# step, and the most that it may gather for later losses.
STAKE, SHARE, MOST_CREDIT = 1.5, 0.03, 8.0
# Until it is measured: what a proposed token costs, as a part of a step of one token.
GUESSED_COST = 0.4
# Proposals that are thought of as seen in the beginning, and those of them that were right.
TRIALS, HITS = 4.0, 3.0
# What is left of older experience after each trial.
MEMORY = 0.9
# The same of a drafting layer: it costs something to try, and each step shows one trial at least.
GUESSED_DRAFT_COST, MOST_DRAFT_COST = 0.2, 2.0
DRAFT_MEMORY, FORGETTING = 0.97, 0.995
# What stands for its first tokens among the sizes of n-grams; and for tokens of which it believes
# the least. The others follow.
DRAFTED, DOUBTED, GRADES = 0, -8, 8
# Seconds of a step below which the bookkeeping itself would show.
CHEAP = 250e-6


class SpeculationBudget:
    """What speculation has won and lost with one model, which decides how much it may risk.

    The losses of wrong proposals stay below ``STAKE`` steps of one token and 3% of all steps,
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
        """Whether a step takes long enough to think about sparing it."""
        return self._single == 0 or self._single >= CHEAP

    def proposals(self, size: int, most: int) -> tuple[int, float]:
        """How many tokens to propose after an n-gram of ``size``, at most ``most``.

        And how many tokens a step's time then promises.
        """
        return self._best(self.chance(size), self._cost, most)

    def drafts(self, most: int) -> tuple[int, float]:
        """As ``proposals``, of tokens that a drafting layer makes."""
        return self._best(self.chance(DRAFTED), self._cost + self._draft_cost, most)

    def chance(self, key: int) -> float:
        """How probably a proposal of a kind is right."""
        trials, hits = self._seen.get(key, (0.0, 0.0))
        return (hits + HITS) / (trials + TRIALS)

    def run(self) -> DraftRun:
        """A look at the tokens of one draft, one after the other."""
        return DraftRun(self, self._cost, self._draft_cost)

    def _best(self, chance: float, cost: float, most: int) -> tuple[int, float]:
        if self._single == 0:
            return 0, 1.0  # the first step tells what a step costs
        most = min(most, int(self.credit / cost))
        # The number that promises the most tokens per time: the mean of a run of hits over its
        # cost rises with it and then falls.
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
        """As ``learn``, of drafted tokens whose probabilities the drafting layer ``believed``."""
        if right or wrong:
            self._note(DRAFTED, float(right > 0))
        for number, probability in enumerate(believed[: right + wrong]):
            self._note(confidence(probability), float(number < right))

    def _note(self, key: int, hit: float) -> None:
        trials, hits = self._seen.get(key, (0.0, 0.0))
        self._seen[key] = DRAFT_MEMORY * trials + 1, DRAFT_MEMORY * hits + hit

    def drafted(self, count: int, seconds: float) -> None:
        """Note the time in which a drafting layer looked at ``count`` tokens."""
        if not count:
            return
        steps = min(seconds / self._single, MOST_DRAFT_COST * count)
        self._draft_cost = 0.5 * (self._draft_cost + steps / count)
        self.credit -= steps

    def single(self, seconds: float) -> None:
        """Note the time of a step of one token."""
        if self._single:
            # A pause of the whole process is no step's cost.
            seconds = 0.8 * self._single + 0.2 * min(seconds, 2 * self._single)
        self._single = seconds
        self.credit = min(self.credit + SHARE, MOST_CREDIT)
        # A high cost may have been an accident; that it is tried again, the credit allows.
        self._cost = min(self._cost, 0.98 * self._cost + 0.02 * GUESSED_COST)
        lower = 0.98 * self._draft_cost + 0.02 * GUESSED_DRAFT_COST
        self._draft_cost = min(self._draft_cost, lower)
        if DRAFTED in self._seen:  # other text may come
            trials, hits = self._seen[DRAFTED]
            self._seen[DRAFTED] = FORGETTING * trials, FORGETTING * hits

    def several(self, proposed: int, accepted: int, seconds: float) -> None:
        """Note the time of a step with ``proposed`` tokens, of which ``accepted`` were right."""
        # The first also builds the plan for such steps, which says nothing of the others.
        most = 2.0 + proposed if self._built else 1 + self._cost * proposed
        steps = min(seconds / self._single, most)
        self._built = True
        self._cost = max(0.5 * (self._cost + (steps - 1) / proposed), 0.01)
        self.credit = min(self.credit + SHARE + accepted + 1 - steps, MOST_CREDIT)


class DraftRun:
    """The tokens of one draft: which of them are worth their rows, by what is believed of them."""

    def __init__(self, budget: SpeculationBudget, cost: float, draft_cost: float) -> None:
        self.believed: list[float] = []
        self.looked = 0  # at so many tokens
        self._budget = budget
        self._cost = cost
        self._draft_cost = draft_cost
        self._run = self._tokens = self._spent = 1.0

    def wants(self, probability: float) -> bool:
        """Whether a further token, of that probability by the layer, raises tokens per time."""
        self.looked += 1
        self._spent += self._draft_cost
        run = self._run * self._budget.chance(confidence(probability))
        if run * self._spent <= self._cost * self._tokens:
            return False
        self._run, self._tokens, self._spent = run, self._tokens + run, self._spent + self._cost
        self.believed.append(probability)
        return True


def confidence(probability: float) -> int:
    """The kind of proposal that a drafted token of some probability is."""
    return DOUBTED + min(int(GRADES * probability), GRADES - 1)
