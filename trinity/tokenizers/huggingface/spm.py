"""tokenizer.model, SentencePiece's file: GGUF's "llama" model.

Source: llama.cpp convert_hf_to_gguf.py, _create_vocab_sentencepiece.
"""

from __future__ import annotations

from collections.abc import Mapping

from trinity.errors import TokenizerError, UnsupportedError
from trinity.formats.mapping import read_whole
from trinity.formats.sentencepiece_model import BPE, MAX_BYTES, parse_sentencepiece_model
from trinity.tokenizers.huggingface.reference import model_reference
from trinity.tokenizers.huggingface.vocabulary_source import CHECK_TEXT, VocabularySource


def spm_source(
    path: str, added: Mapping[str, object], tokenizer_config: Mapping[str, object], rows: int
) -> VocabularySource:
    """Read the tokenizer.model at ``path`` and the added tokens, for ``rows`` ids.

    ``added`` is the object of added_tokens.json (text to id); ``tokenizer_config`` may have
    added_tokens_decoder (id to token). Raises FormatError if the file is not a SentencePiece model,
    UnsupportedError if the model does not merge pairs.
    """
    raw = read_whole(path, MAX_BYTES)
    model = parse_sentencepiece_model(raw, path)
    if model.model_type != BPE:
        raise UnsupportedError(
            f"{path}: a SentencePiece model of type {model.model_type} is not supported; expected "
            f"BPE, type {BPE}"
        )
    source = VocabularySource(
        path,
        "llama",
        rows,
        list(model.pieces),
        model.types,
        model_reference(raw, path, (CHECK_TEXT,)),
        scores=model.scores,
        add_space_prefix=model.add_dummy_prefix,
    )
    for text, token_id in added.items():
        source.put_added(token_id, {"content": text})
    decoder = tokenizer_config.get("added_tokens_decoder") or {}
    if not isinstance(decoder, dict):
        raise TokenizerError(f"{path}: added_tokens_decoder is not an object; download it again")
    for key, fields in decoder.items():
        token_id = int(key) if key.isdecimal() and len(key) < 10 else None
        source.put_added(token_id, fields if isinstance(fields, dict) else {})
    return source
