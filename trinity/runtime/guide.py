"""What the runtime knows of a grammar: it gives a guide, which allows and forces tokens.

Needs no NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from trinity.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trinity.tokenizers import Tokenizer

    Allowed = NDArray[np.bool_]


class Guide(Protocol):
    """The state of a grammar in one answer. For one thread at a time, but for ``complete``.

    Its methods raise a TrinityError where the grammar cannot go on, and then again each time.
    """

    @property
    def complete(self) -> bool:
        """Whether the text is whole and nothing may follow."""
        ...

    def allowed(self) -> Allowed:
        """Which tokens may come next; an end-of-generation token where the text may end here.

        None is where the text is whole and nothing can follow, but the vocabulary has no such
        token. Shapes: (vocab_size,).
        """
        ...

    def accept(self, tokens: Sequence[int]) -> None:
        """Go on behind ``tokens``."""
        ...

    def forced(self) -> list[int]:
        """Tokens of which the grammar leaves no choice; they still have to be accepted."""
        ...

    def fitting(self, tokens: Sequence[int]) -> int:
        """How many of ``tokens`` could be chosen in turn, with none forced behind any.

        The state stays as it is.
        """
        ...


class Grammar(Protocol):
    """What an answer may be. Immutable."""

    def guide(self, tokenizer: Tokenizer, vocab_size: int) -> Guide:
        """A guide at the beginning of an answer, for logits of ``vocab_size``.

        Raises: InputError where the grammar has no meaning for the model.
        """
        ...


def check_grammar(name: str, value: object) -> Grammar:
    """Raises InputError for what is no grammar."""
    if isinstance(value, type) or not callable(getattr(value, "guide", None)):
        raise InputError(
            f"{name} is {value!r:.80} ({type(value).__name__}); it must be a trinity.Grammar, such "
            "as trinity.Grammar.json_schema({...})"
        )
    return value  # type: ignore[return-value]
