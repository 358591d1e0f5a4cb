"""How many rows of prompts fit into a step, so that running sequences do not wait too long."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from trinity.runtime.step_times import StepTimes

FIRST_ROWS = 8  # tried before anything is measured
LEAST_ROWS = 4  # so that a prompt gets on, however slow the machine is
MANY_ROWS = 64  # the least of a step of sequences that yield, for few rows take as long
# Of the target, that prompts get at least: where many run, their own rows may take all of it.
LEAST_PART = 0.5
# Targets that a step with prompts may take: the more, the more wait for each that runs.
LEAST_PATIENCE, MOST_PATIENCE, PATIENCE = 1.2, 3.0, 0.6
MOST_PAUSE, PAUSE_PART = 0.003, 0.05  # seconds; of a step
LAST_SECONDS = 0.25  # of a step of prompts of the last priority: whoever comes waits for its end
SHARE = 0.3  # of a new measurement in a mean


@dataclass(frozen=True, slots=True)
class StepCosts:
    """How long steps may take, and what they take.

    ``target``: seconds that a step shall take where somebody waits for its token. It takes longer
    where many wait for a first token, and where the running rows alone take so long: then prompts
    get as much time as these. ``most`` rows of prompts beside running sequences, for a few rows
    may cost like many; ``places`` that a row looked at lately.
    """

    target: float
    times: StepTimes = field(default_factory=StepTimes)
    most: int = FIRST_ROWS
    places: float = 0.0

    @property
    def row_seconds(self) -> float:
        """Of one more row of a prompt; 0 until measured."""
        return self.times.row + self.places * self.times.pair

    @property
    def last_rows(self) -> int:
        """Rows of prompts for a step of sequences that yield."""
        rows = LAST_SECONDS / self.row_seconds if self.row_seconds else 0.0
        return max(int(rows), MANY_ROWS)

    @property
    def pause(self) -> float:
        """Seconds to wait for further requests after a sleep, a small part of a step."""
        return min(MOST_PAUSE, PAUSE_PART * self.times.seconds(1))

    def prompt_rows(self, running: int, waiting: int) -> int:
        """Rows of prompts for a step with so many running sequences, while so many wait to run.

        Where prompts slow a step down whatever they have, their rows take as long as that at least.
        """
        rows = float(self.most)
        if self.row_seconds:
            alone, least = self.times.seconds(running), self.times.prompts
            patience = max(LEAST_PATIENCE, PATIENCE * (1 + waiting / running))
            seconds = min(patience, MOST_PATIENCE) * self.target - alone
            seconds = max(seconds, LEAST_PART * self.target, alone)
            rows = min(rows, max(seconds - least, least) / self.row_seconds)
        return max(int(rows), LEAST_ROWS)

    def after(self, times: StepTimes, running: int, rows: int, places: float) -> StepCosts:
        """What is known after a step with so many running rows, rows of prompts and places."""
        if not rows:
            return replace(self, times=times)
        mean = (1 - SHARE) * self.places + SHARE * places / rows if self.places else places / rows
        # At most twice as many rows next: what is beyond them has not been measured.
        most = max(self.most, 2 * rows) if running else self.most
        return replace(self, times=times, most=most, places=mean)
