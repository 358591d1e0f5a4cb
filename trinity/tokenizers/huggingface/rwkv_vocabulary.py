"""rwkv_vocab_v20230424.txt: a token in each line, as its id, Python's literal, and its bytes.

Source: llama.cpp conversion/base.py, _set_vocab_rwkv_world.
"""

from __future__ import annotations

import ast

from trinity.errors import TokenizerError
from trinity.formats.mapping import read_whole
from trinity.tokenizers.huggingface.reference import Reference
from trinity.tokenizers.huggingface.vocabulary_source import VocabularySource
from trinity.tokenizers.vocabulary import CONTROL, NORMAL

# How the models are asked if their files have no template.
TEMPLATE = (
    "{% for message in messages %}{{ message.role | capitalize }}: {{ message.content | trim }}"
    "\n\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
_MOST_BYTES, _LONGEST_LINE = 1 << 22, 2000  # the published file has 1.1 million, its lines 400
_END_OF_TURN = b"\n\n"


def rwkv_source(path: str, rows: int) -> VocabularySource:
    """Read the vocabulary of the file ``path``, for ``rows`` ids.

    Raises TokenizerError for a malformed file, FormatError for one that is too large.
    """
    source = VocabularySource(path, "rwkv", rows, ["<s>"], [CONTROL], Reference({}))
    turn = None
    for number, line in enumerate(read_whole(path, _MOST_BYTES).splitlines(), 1):
        token = _token(line, number)
        if token is None:
            raise TokenizerError(
                f"{path}: line {number} is {line[:60]!r}; expected the id {number}, text or bytes "
                "in Python's notation, and the number of bytes; download it again"
            )
        turn = number if token == _END_OF_TURN else turn
        source.put(number, repr(token)[2:-1], NORMAL, 0.0)
    source.more = {"bos_token_id": 0, "eos_token_id": 0}
    if turn is not None:
        source.more["eot_token_id"] = turn
    return source


def _token(line: bytes, number: int) -> bytes | None:
    """Return the token of a line, or None if it is malformed."""
    identifier, _, rest = line.partition(b" ")
    literal, _, size = rest.rpartition(b" ")
    if len(line) > _LONGEST_LINE or identifier != str(number).encode() or not literal:
        return None
    try:
        token = ast.literal_eval(literal.decode())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    raw = token.encode("utf-8", "replace") if isinstance(token, str) else token
    return raw if isinstance(raw, bytes) and raw and size == str(len(raw)).encode() else None
