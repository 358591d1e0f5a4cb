"""Checks prompts: token ids, lengths, empty prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError
from trinity.runtime.image_rows import PromptIds
from trinity.runtime.scheduling.sequence import check_context

if TYPE_CHECKING:
    from trinity.tokenizers import Tokenizer

Messages = Sequence[Mapping[str, object]]
# Texts with more characters are checked for their least number of tokens before tokenizing.
LONG_TEXT = 1 << 16


def checked_ids(token_ids: Sequence[int], vocab_size: int) -> list[int]:
    """Return token ids as a list. Raises InputError unless they are integers of the vocabulary."""
    if isinstance(token_ids, str | bytes):
        raise InputError(
            f"token ids are {token_ids!r:.40} ({type(token_ids).__name__}); they must be integers, "
            "which tokenize() makes of a text"
        )
    try:
        array = np.asarray(token_ids)
    except (TypeError, ValueError):  # ragged
        array = np.empty(1, object)
    if array.size == 0:
        return []
    if array.dtype.kind in "US":
        raise InputError(
            "the prompt is a list of texts; it must be a text or token ids: generate_batch() "
            "completes several prompts"
        )
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"token ids are {token_ids!r:.80} ({type(token_ids).__name__} of {array.dtype}); "
            "they must be a flat sequence of integers"
        )
    check_ids(array, vocab_size)
    return [int(i) for i in array]


def check_ids(ids: NDArray[np.generic] | list[int], vocab_size: int) -> None:
    """Raise InputError if an id is outside the vocabulary. There must be at least one."""
    # An array of a list takes longer to make than to search.
    ends = (min(ids), max(ids)) if isinstance(ids, list) else (int(ids.min()), int(ids.max()))
    for bad in ends:
        if not 0 <= bad < vocab_size:
            raise InputError(f"token id {bad} does not exist: the model has 0 to {vocab_size - 1}")


def prompt_ids(
    prompt: str | Sequence[int], tokenizer: Tokenizer, vocab_size: int, context_length: int, *,
    add_bos: bool, parse_special: bool,
) -> list[int]:  # fmt: skip
    """Return the token ids of a prompt; only BOS for an empty one.

    A very long text that cannot fit is refused before it is tokenized. Raises: ContextLengthError,
    InputError.
    """
    if isinstance(prompt, PromptIds):
        check_context(len(prompt), context_length)
        return prompt
    if isinstance(prompt, str):
        check_length(prompt, tokenizer, context_length)
        ids = tokenizer.encode(prompt, add_bos=add_bos, parse_special=parse_special)
    elif hasattr(prompt, "__len__") and not isinstance(prompt, bytes):
        ids = checked_ids(prompt, vocab_size)
    else:
        raise InputError(
            f"the prompt is {prompt!r:.80} ({type(prompt).__name__}); it must be text or token ids"
        )
    ids = ids_or_bos(ids, tokenizer)
    check_ids(ids, vocab_size)
    check_context(len(ids), context_length)
    return ids


def ids_or_bos(ids: list[int], tokenizer: Tokenizer) -> list[int]:
    """``ids``, or the BOS token if there are none. Raises: InputError without a BOS token."""
    if ids:
        return ids
    if tokenizer.bos_id is None:
        raise InputError(
            "the prompt is empty, and the model has no BOS token to begin a text with; "
            "give a prompt of at least one word or token id"
        )
    return [tokenizer.bos_id]


def check_length(text: str, tokenizer: Tokenizer, context_length: int) -> None:
    """Raise ContextLengthError for a very long text that cannot fit, without tokenizing it."""
    if len(text) > LONG_TEXT:
        check_context(tokenizer.least_tokens(text), context_length, least=True)
