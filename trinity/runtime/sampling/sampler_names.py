"""Names of samplers, and texts that DRY stops at, as users write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trinity.errors import InputError

# The samplers in llama.cpp's default order; "adaptive_p" chooses a token at the end of any order.
DEFAULT_ORDER = (
    "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature",
)  # fmt: skip
SAMPLERS = (*DEFAULT_ORDER, "adaptive_p")
MOST_SAMPLERS = 64
MOST_BREAKERS, MOST_BREAKER_CHARACTERS = 64, 8192
# llama.cpp's letters (common/sampling.cpp), and its other names.
_LETTERS = dict(zip("edskypmxta", SAMPLERS, strict=True))
_OTHER_NAMES = {"nucleus": "top_p", "temp": "temperature", "typ": "typ_p", "typical_p": "typ_p"}
_NAMES = {
    spelling: name
    for name in SAMPLERS
    for spelling in (name, name.replace("_", "-"), name.replace("_", ""))
} | _OTHER_NAMES


def sampler_name(name: object) -> str | None:
    """The sampler of this name in any of llama.cpp's spellings; None if there is none."""
    return _NAMES.get(name.lower()) if isinstance(name, str) else None


def sampler_of_letter(letter: str) -> str | None:
    """The sampler with this letter in llama.cpp; None if there is none."""
    return _LETTERS.get(letter)


def checked_samplers(name: str, value: object) -> tuple[str, ...]:
    """The samplers of a list of names. Raises InputError."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(
            f"{name} is {value!r:.80} ({type(value).__name__}); it must be a list of names"
        )
    given = list(value)
    if len(given) > MOST_SAMPLERS:
        raise InputError(f"{name} has {len(given)} samplers; at most {MOST_SAMPLERS} are supported")
    names = [sampler_name(one) for one in given]
    for one, known in zip(given, names, strict=True):
        if known is None:
            raise InputError(f"{name} has {one!r:.40}; it must be of {', '.join(SAMPLERS)}")
    return tuple(known for known in names if known)


def read_samplers(flag: str, text: str) -> tuple[str, ...]:
    """The samplers of a text such as "top_k;temperature" or "kt". Raises InputError."""
    names = [part.strip() for part in text.split(";") if part.strip()]
    if len(names) == 1 and sampler_name(names[0]) is None:
        letters = [sampler_of_letter(letter) for letter in names[0]]
        names = [known for known in letters if known] if all(letters) else names
    return checked_samplers(flag, names)


def checked_breakers(name: str, value: object) -> tuple[str, ...]:
    """Sequence breakers as a tuple. Raises InputError, also for too many."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(
            f"{name} is {value!r:.80} ({type(value).__name__}); it must be a list of texts"
        )
    texts = tuple(value)
    if (
        len(texts) > MOST_BREAKERS
        or sum(len(str(text)) for text in texts) > MOST_BREAKER_CHARACTERS
    ):
        raise InputError(
            f"{name} has {len(texts)} texts; at most {MOST_BREAKERS} of together "
            f"{MOST_BREAKER_CHARACTERS} characters are supported"
        )
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"{name} has {text!r:.40} ({type(text).__name__}); it must be text")
    return tuple(text for text in texts if text)


def read_breakers(flag: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Sequence breakers from the command line; "none" removes those before it."""
    last = max((i for i, text in enumerate(texts) if text == "none"), default=-1)
    return checked_breakers(flag, texts[last + 1 :])
