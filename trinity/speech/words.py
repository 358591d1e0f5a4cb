"""Groups the tokens of a text into words with times.

Source: openai/whisper, tokenizer.py (split_to_word_tokens) and timing.py (merge_punctuations).
"""

from __future__ import annotations

import string
from collections.abc import Sequence

from trinity.speech.tokens import SpeechTokens
from trinity.speech.transcript import Word

# Written without spaces: each character counts as a word.
_WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
_OPENING = "\"'“¿([{-"
_CLOSING = "\"'.。,，!！?？:：”)]}、"


def words_of(
    ids: Sequence[int], times: Sequence[float], tokens: SpeechTokens, language: str
) -> list[Word]:
    """The words of a segment; ``times``: when each id begins, then when the last ends, in seconds.

    A word includes the space before it and its punctuation.
    """
    pieces = _characters(ids, tokens)
    if language not in _WITHOUT_SPACES:
        pieces = _joined(pieces)
    words, index = list[tuple[str, int, int]](), 0
    for text, count in pieces:
        words.append((text, index, index + count))
        index += count
    return [Word(times[first], times[last], text) for text, first, last in _merged(words)]


def _characters(ids: Sequence[int], tokens: SpeechTokens) -> list[tuple[str, int]]:
    """Texts of whole characters, each with its number of ids."""
    characters, held = list[tuple[str, int]](), list[int]()
    whole, length = tokens.text(ids), 0
    for token in ids:
        held.append(token)
        text = tokens.text(held)
        end = length + text.find("\ufffd")
        if "\ufffd" not in text or whole[end : end + 1] == "\ufffd":  # a real U+FFFD character
            characters.append((text, len(held)))
            held, length = [], length + len(text)
    if held:
        characters.append((tokens.text(held), len(held)))
    return characters


def _joined(pieces: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Texts up to each space, with punctuation separate."""
    words: list[tuple[str, int]] = []
    for text, count in pieces:
        apart = text.startswith(" ") or text.strip() in string.punctuation
        if apart or not words:
            words.append((text, count))
        else:
            before, counted = words[-1]
            words[-1] = before + text, counted + count
    return words


def _merged(words: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Words with the punctuation that opens or closes them."""
    opened: list[tuple[str, int, int]] = []
    for text, first, last in reversed(words):
        if opened and text.startswith(" ") and text.strip() and text.strip() in _OPENING:
            following, _, end = opened[-1]
            opened[-1] = text + following, first, end
        else:
            opened.append((text, first, last))
    merged: list[tuple[str, int, int]] = []
    for text, first, last in reversed(opened):
        if merged and not merged[-1][0].endswith(" ") and text and text in _CLOSING:
            before, begin, _ = merged[-1]
            merged[-1] = before + text, begin, last
        else:
            merged.append((text, first, last))
    return merged
