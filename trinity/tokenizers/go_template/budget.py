"""What rendering a template may cost: steps, and characters of all strings that it makes."""

from __future__ import annotations

from trinity.errors import TokenizerError

# Real templates take some 50 steps for each message; a step takes about 2 microseconds.
_STEPS, _STEPS_PER_MESSAGE = 200_000, 1_000
_CHARACTERS, _CHARACTERS_PER_CHARACTER = 1 << 18, 8
_CHARACTERS_PER_STEP = 1 << 10  # that are only looked at


class Budget:
    """Counts down; ``messages`` and their ``characters`` say how much is reasonable.

    Raises TokenizerError where a template wants more.
    """

    def __init__(self, messages: int, characters: int) -> None:
        self.steps = _STEPS + _STEPS_PER_MESSAGE * messages
        self.characters = _CHARACTERS + _CHARACTERS_PER_CHARACTER * characters

    def step(self, looked_at: int = 0) -> None:
        """One more step, which looks at that many characters or elements."""
        self.steps -= 1 + looked_at // _CHARACTERS_PER_STEP
        if self.steps < 0:
            raise TokenizerError(
                "the Go template was stopped: it takes more steps than any chat template needs; "
                "pass another template, or write the prompt in the model's own format"
            )

    def make(self, characters: int) -> None:
        """Room for a string of that many characters, to be asked for before it is made."""
        self.characters -= characters
        if self.characters < 0:
            raise TokenizerError(
                "the Go template was stopped: it makes much text of little; pass another "
                "template, or write the prompt in the model's own format"
            )
