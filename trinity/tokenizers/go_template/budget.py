"""Limits of rendering a template: steps, and characters of all strings that it creates."""

from __future__ import annotations

from trinity.errors import TokenizerError

# Real templates take some 50 steps per message; a step takes about 2 microseconds.
_STEPS, _STEPS_PER_MESSAGE = 200_000, 1_000
_CHARACTERS, _CHARACTERS_PER_CHARACTER = 1 << 18, 8
_CHARACTERS_PER_STEP = 1 << 10  # that are read without creating a string


class Budget:
    """Counts down; ``messages`` and their ``characters`` determine the limit.

    Raises TokenizerError if a template exceeds it.
    """

    def __init__(self, messages: int, characters: int) -> None:
        self.steps = _STEPS + _STEPS_PER_MESSAGE * messages
        self.characters = _CHARACTERS + _CHARACTERS_PER_CHARACTER * characters

    def step(self, looked_at: int = 0) -> None:
        """Count one step that reads this many characters or elements."""
        self.steps -= 1 + looked_at // _CHARACTERS_PER_STEP
        if self.steps < 0:
            raise TokenizerError(
                "the Go template was stopped: it takes more steps than any chat template needs; "
                "pass another template, or write the prompt in the model's own format"
            )

    def make(self, characters: int) -> None:
        """Reserve room for a string of this many characters, before it is created."""
        self.characters -= characters
        if self.characters < 0:
            raise TokenizerError(
                "the Go template was stopped: it generates too much text; pass another template, "
                "or write the prompt in the model's own format"
            )
