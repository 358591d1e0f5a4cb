"""The runtime's interface to grammars: a grammar makes a guide, which allows and forces tokens.

This module does not need NumPy.
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
    """The state of a grammar in one response. Only ``complete`` may be called from other threads.

    The methods raise TrinityError if the grammar cannot continue, and raise it again in later
    calls.
    """

    @property
    def complete(self) -> bool:
        """Whether the text is complete and nothing may follow."""
        ...

    def allowed(self) -> Allowed:
        """Which tokens may come next, including end-of-generation tokens if the text may end here.

        None if the text is complete, nothing may follow, and the vocabulary has no
        end-of-generation token. Shapes: (vocab_size,).
        """
        ...

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance the grammar by ``tokens``."""
        ...

    def forced(self) -> list[int]:
        """The next tokens if only one choice is possible; they must still be accepted."""
        ...

    def fitting(self, tokens: Sequence[int]) -> int:
        """How many of ``tokens`` the grammar allows in sequence, with no forced token between them.

        The state does not change.
        """
        ...


class Grammar(Protocol):
    """A constraint on the text of a response. Immutable."""

    def guide(self, tokenizer: Tokenizer, vocab_size: int) -> Guide:
        """A guide at the beginning of a response, for logits of ``vocab_size``.

        Raises: InputError if the grammar cannot be used with the model.
        """
        ...


def check_grammar(name: str, value: object) -> Grammar:
    """Raise InputError if the value is not a grammar."""
    if isinstance(value, type) or not callable(getattr(value, "guide", None)):
        raise InputError(
            f"{name} is {value!r:.80} ({type(value).__name__}); it must be a trinity.Grammar, such "
            "as trinity.Grammar.json_schema({...})"
        )
    return value  # type: ignore[return-value]
