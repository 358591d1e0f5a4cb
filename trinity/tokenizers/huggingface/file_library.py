"""Read a tokenizer's file with the library it was made for, in a confined process.

Both libraries crash on some inputs and take hours on others. So no module imports this one:
`trinity.processes.confined` runs it.
"""

from __future__ import annotations

import base64
from typing import Any

from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the ids of each text by the tokenizer.json ``json`` or tokenizer.model ``model``.

    "ids" are without special tokens; "plain" and "full" are those of "a" without and with them;
    "added" are the ids of the tokens ``added``.
    """
    if "model" in request:
        processor = SentencePieceProcessor()
        processor.LoadFromSerializedProto(base64.b64decode(request["model"]))
        return {"ids": [processor.EncodeAsIds(text) for text in request["texts"]]}
    tokenizer = Tokenizer.from_str(request["json"])

    def ids(text: str, special: bool) -> list[int]:
        ids_of_text: list[int] = tokenizer.encode(text, add_special_tokens=special).ids
        return ids_of_text

    texts = [ids(text, False) for text in request["texts"]]
    added = {token: tokenizer.token_to_id(token) for token in request["added"]}
    return {"ids": texts, "plain": ids("a", False), "full": ids("a", True), "added": added}
