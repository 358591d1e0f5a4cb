"""How many rows of prompts fit into a step, so that running sequences do not wait too long."""

from __future__ import annotations

FIRST_ROWS = 8  # tried before anything is measured
LEAST_ROWS = 4  # so that a prompt gets on, however slow the machine is
MANY_ROWS = 64  # from which a step without running sequences tells of rows
# Of the target, that prompts get at least: where many run, their own rows may take all of it.
LEAST_PART = 0.5
LEAST_REST = 0.1  # of a step with prompts, that their rows are taken to cost
# Targets that a step with prompts may take: the more, the more wait for each that runs.
LEAST_PATIENCE, MOST_PATIENCE, PATIENCE = 1.2, 3.0, 0.6
MOST_PAUSE, PAUSE_PART = 0.003, 0.05  # seconds; of a step
LAST_SECONDS = 0.25  # of a step of prompts of the last priority: whoever comes waits for its end
SHARE = 0.3  # of a new measurement in a mean


class StepCosts:
    """A step's seconds: those of the running sequences' rows, and so many for each prompt row.

    Both are moving means of what was measured, so they follow a context that grows and a machine
    that gets busy. ``target``: seconds that a step shall take where somebody waits for its token.
    It takes longer where many wait for a first token, and where the running rows alone take so
    long: then prompts get as much time as these.
    """

    def __init__(self, target: float) -> None:
        self.target = target
        self._running = 0.0
        self._prompt_row = 0.0
        self._most = FIRST_ROWS  # beside running sequences, for a few rows may cost like many

    @property
    def step_seconds(self) -> float:
        """Of a step of running sequences alone; 0 until measured."""
        return self._running

    @property
    def row_seconds(self) -> float:
        """Of a token of a prompt; 0 until measured."""
        return self._prompt_row

    @property
    def last_rows(self) -> int:
        """Rows of prompts for a step of sequences that yield, so many that it tells of rows."""
        rows = LAST_SECONDS / self._prompt_row if self._prompt_row else 0.0
        return max(int(rows), MANY_ROWS)

    @property
    def pause(self) -> float:
        """Seconds to wait for further requests after a sleep, a small part of a step."""
        return min(MOST_PAUSE, PAUSE_PART * self._running)

    def prompt_rows(self, running: int, waiting: int) -> int:
        """Rows of prompts for a step with so many running sequences, while so many wait to run."""
        rows = float(self._most)
        if self._prompt_row:
            patience = max(LEAST_PATIENCE, PATIENCE * (1 + waiting / running))
            seconds = min(patience, MOST_PATIENCE) * self.target - self._running
            seconds = max(seconds, LEAST_PART * self.target, self._running)
            rows = min(rows, seconds / self._prompt_row)
        return max(int(rows), LEAST_ROWS)

    def prompt_seconds(self, running: int, seconds: float) -> float:
        """What is left to the prompts of a step's ``seconds`` beside so many running sequences."""
        rest = seconds - self._running if running else seconds
        return max(rest, LEAST_REST * seconds)

    def note(self, running: int, prompt: int, seconds: float) -> None:
        """Note the seconds of a step with rows of running sequences and of prompts."""
        if not prompt:
            self._running = _mean(self._running, seconds)
            return
        if not running and prompt < MANY_ROWS:
            return  # mostly what every step costs
        self._prompt_row = _mean(self._prompt_row, self.prompt_seconds(running, seconds) / prompt)
        if running:
            # At most twice as many rows next: what is beyond them has not been measured.
            self._most = max(self._most, 2 * prompt)


def _mean(old: float, new: float) -> float:
    if not old:
        return new
    # A pause of the whole process is no step's cost.
    return (1 - SHARE) * old + SHARE * min(new, 3 * old)
