"""Regular expressions of JSON Schema (ECMA-262) in the syntax of llguidance (Rust's regex).

If the two, or validators, disagree about a construct, the result matches only what all of them
match: `.`, `\\s`, `[^...]` and `\\S` mean fewer characters. Classes exclude NUL: if a class has all
32 control characters, llguidance also matches quotes and backslashes.
"""

from __future__ import annotations

import re
from typing import Final

_SPACE: Final = "\t\n\x0b\x0c\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_PERHAPS_SPACE: Final = "\x1c-\x1f\x85\u180e\ufeff"  # to some
_WITHOUT_NUL: Final = r"&&[^\x00]"
_PERHAPS_NUL: Final = (r"\x", r"\u", r"\0", r"\p", r"\P", "\x00")  # how it is named
_PART = re.compile(r"\\(?:u\{[^}]*\}|p\{[^}]*\}|P\{[^}]*\}|.)|\[\^?|\]|\{,|&&|~~|.", re.DOTALL)


def rust_pattern(pattern: str) -> str:
    """Convert an expression for llguidance. Raises ValueError if its meaning differs there."""
    out: list[str] = []
    within, negated, ending = False, False, ""
    for part in _PART.findall(pattern):
        if part == r"\s":
            space = _SPACE + (_PERHAPS_SPACE if negated else "")
            out.append(space if within else f"[{space}]")
        elif part == r"\S":
            if within:
                raise ValueError(r"\S within [...] cannot be enforced; name the characters")
            out.append(f"[^{_SPACE}{_PERHAPS_SPACE}]")
        elif part in (r"\A", r"\Z", r"\z", r"\G", r"\Q", r"\E"):
            raise ValueError(f"{part} is not an escape of JSON Schema's regular expressions")
        elif within:
            if part == "]":
                within = negated = False
                out.append(ending + part)
            else:  # "[", "&&" and "~~" are characters in JSON Schema and set operations in Rust
                if not negated and part.startswith(_PERHAPS_NUL):
                    ending = _WITHOUT_NUL
                escaped = part.startswith("[") or part in ("&&", "~~")
                out.append("".join(f"\\{c}" for c in part) if escaped else part)
        elif part.startswith("["):
            within, negated, ending = True, part == "[^", ""
            out.append(r"[^[\x00]" if negated else part)
        elif part.startswith((r"\p", r"\P")):
            out.append(f"[{part}{_WITHOUT_NUL}]")
        elif part == ".":
            out.append("[^\n\r\u2028\u2029]")
        else:
            out.append(r"\{," if part == "{," else part)
    return "".join(out)
