"""The name of the pre-tokenizer that a tokenizer.json describes.

llama.cpp's converter finds the name by a hash of token ids; here the description itself is read:
it is brought into the form of trinity's table, a sequence of regexes, and looked up there.
"""

from __future__ import annotations

from trinity.errors import UnsupportedError
from trinity.tokenizers.pretokenizers import PRE_TOKENIZERS

# What ByteLevel with use_regex and Digits do. Source: tokenizers' byte_level.rs and digits.rs.
_GPT2 = PRE_TOKENIZERS["gpt-2"].regexes[0]
_DIGIT, _DIGITS = r"\p{N}", r"\p{N}+"


def pre_tokenizer_name(description: object, ignore_merges: bool, source: str) -> str:
    """The value of tokenizer.ggml.pre for the "pre_tokenizer" object of a tokenizer.json.

    Raises UnsupportedError that shows what was found and lists what is known.
    """
    steps = _steps(description)
    regexes = tuple(regex for step in steps for regex in _regexes(step))
    for name, known in PRE_TOKENIZERS.items():
        if known.regexes == regexes and known.ignore_merges == ignore_merges:
            return name
    understood = [regex for regex in regexes if regex is not None]
    shown = f"{description!r}"
    if regexes and len(understood) == len(regexes):
        shown = " then ".join(understood)
    raise UnsupportedError(
        f"{source}: an unknown pre-tokenizer, {'' if ignore_merges else 'not '}ignoring merges: "
        f"{shown:.400}; known are those of {', '.join(_one_name_each())}"
    )


def _steps(description: object) -> list[object]:
    if isinstance(description, dict) and description.get("type") == "Sequence":
        steps = description.get("pretokenizers")
        return steps if isinstance(steps, list) else [description]
    return [description]


def _regexes(step: object) -> tuple[str | None, ...]:
    """The regexes that one step splits by; (None,) where it is not understood."""
    if not isinstance(step, dict):
        return (None,)
    kind = step.get("type")
    if kind == "ByteLevel" and not step.get("add_prefix_space", True):
        return (_GPT2,) if step.get("use_regex", True) else ()
    if kind == "Digits":
        return (_DIGIT if step.get("individual_digits") else _DIGITS,)
    if kind == "Split":
        pattern = step.get("pattern")
        regex = pattern.get("Regex") if isinstance(pattern, dict) else None
        # To remove all but the matches is to isolate them, for regexes that match everything.
        form = (step.get("behavior"), bool(step.get("invert")))
        if isinstance(regex, str) and form in (("Isolated", False), ("Removed", True)):
            return (regex,)
    return (None,)


def _one_name_each() -> list[str]:
    names: dict[object, str] = {}
    for name, known in PRE_TOKENIZERS.items():
        names.setdefault((known.regexes, known.ignore_merges), name)
    return list(names.values())
