"""Grammars in llama.cpp's GBNF; a script of llguidance converts them to Lark.

Source of the syntax: llama.cpp, grammars/README.md.
"""

from __future__ import annotations

import re
from typing import Final

from trinity.errors import InputError
from trinity.grammar.limits import DEEPEST, json_fault

_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))|\\.", re.DOTALL
)
_PART: Final = re.compile(
    r'"(?:\\.|[^"\\\n])*"|\[(?:\\.|[^\]\\\n])*\]|\#[^\n]*|(?P<token>!?<[^<>\s]+>)|(?P<bracket>[()])',
    re.DOTALL,
)


def is_gbnf(text: str) -> bool:
    """Whether a grammar is written in GBNF rather than Lark."""
    return re.search(r"^[^\S\n]*+[A-Za-z][\w-]*+\s*+::=", text, re.MULTILINE) is not None


def lark_of(text: str) -> str:
    """Convert a grammar to Lark. Raises InputError for invalid GBNF."""
    from llguidance.gbnf_to_lark import any_to_lark

    depth = 0
    for part in _PART.finditer(text):
        if part["token"]:
            raise InputError(
                f"the grammar contains the token {part['token']}, which needs a grammar in Lark"
            )
        depth += {"(": 1, ")": -1}.get(part["bracket"] or "", 0)
        if depth > DEEPEST:
            raise InputError(f"the grammar has more than {DEEPEST} levels of brackets")
    if not re.search(r"^[^\S\n]*+root\s*+::=", text, re.MULTILINE):
        raise InputError("the grammar has no rule root, which is the start rule")
    try:
        lark: str = any_to_lark(_ESCAPE.sub(_plain, text))
    except RecursionError:
        raise InputError("the grammar is not valid GBNF: it is nested too deeply") from None
    except Exception as error:  # the script raises plain exceptions and others
        raise InputError(
            f"the grammar is not valid GBNF: {json_fault(error)}; correct it at this place"
        ) from error
    return lark


def _plain(escape: re.Match[str]) -> str:
    """Replace an escape by its character, because the script misreads some escapes."""
    digits = escape[1] or escape[2] or escape[3]
    if digits is None:
        return escape[0]
    code = int(digits, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise InputError(f"the grammar contains {escape[0]}, which is not a character")
    return f"\\x{code:02x}" if code < 0x80 else chr(code)
