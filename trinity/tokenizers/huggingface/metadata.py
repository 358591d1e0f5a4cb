"""Read all keys of a tokenizer from the files of a model in Hugging Face's format.

Source: llama.cpp gguf-py/gguf/vocab.py, SpecialVocab.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trinity.errors import FormatError, InputError, UnsupportedError, about
from trinity.formats.huggingface.files import (
    ADDED_TOKENS,
    CONFIG,
    GENERATION_CONFIG,
    RWKV_VOCABULARY,
    TIKTOKEN,
    TOKENIZER_CONFIG,
    TOKENIZER_JSON,
    TOKENIZER_MODEL,
    optional_object,
)
from trinity.formats.json_object import read_json_object
from trinity.tokenizers import Tokenizer, tokenizer_from_metadata
from trinity.tokenizers.huggingface.byte_level import byte_level_source
from trinity.tokenizers.huggingface.chat_template import chat_template
from trinity.tokenizers.huggingface.escaped_bpe import (
    escaped_bpe_source,
    is_escaped_bpe,
    sarvam_source,
)
from trinity.tokenizers.huggingface.metaspace import is_metaspace, metaspace_source, with_json_rules
from trinity.tokenizers.huggingface.special_tokens import (
    SPECIALS,
    adds_around,
    further_ends,
    special_ids,
)
from trinity.tokenizers.huggingface.spm import spm_source
from trinity.tokenizers.huggingface.unigram import is_unigram, unigram_source
from trinity.tokenizers.huggingface.vocabulary_source import VocabularySource
from trinity.tokenizers.huggingface.wordpiece import is_wordpiece, wordpiece_source
from trinity.tokenizers.rules import KEY as RULES_KEY
from trinity.tokenizers.rules import NFC_KEY, SCORES_KEY

# Readers of tokenizer.json by tokenizer.ggml.model, if the model's class determines it.
_READERS = {"gemma4": escaped_bpe_source}
_SARVAM = "sarvam-moe"  # a value of tokenizer.ggml.pre instead
# Otherwise the first test that tokenizer.json passes selects its reader. A file that passes none is
# byte-level BPE.
_KINDS = (
    (is_unigram, unigram_source),
    (is_wordpiece, wordpiece_source),
    (is_metaspace, metaspace_source),
)


def tokenizer_metadata(
    files: Mapping[str, str],
    source: str,
    rows: int,
    model: str | None = None,
    *,
    adds_specials: bool = True,
) -> dict[str, object]:
    """The GGUF keys of the vocabulary, the special tokens and the chat template.

    ``files`` maps names to paths, as ``files_of_directory`` does; ``source`` names the model in
    errors; ``rows`` is the number of rows of the embedding, each of which gets a token. ``model``:
    the value of tokenizer.ggml.model, or Sarvam's of tokenizer.ggml.pre, if the model's class
    determines it and the files do not.
    ``adds_specials``: False ignores the special tokens that the post-processor puts around texts,
    for models such as Whisper, whose decoder writes its own prompts. The ids of a test text are
    compared with those of the library that the files were made for.

    Raises InputError if there is no tokenizer; FormatError, TokenizerError or UnsupportedError for
    one that is malformed or not supported; ConfigError if it has more tokens than the embedding
    has rows.
    """
    tokenizer_config = optional_object(files, TOKENIZER_CONFIG)
    vocabulary = _vocabulary(files, source, tokenizer_config, rows, model)
    vocabulary.fit()
    keys: dict[str, object] = {"tokenizer.ggml.model": vocabulary.model}
    if vocabulary.pre is not None:
        keys["tokenizer.ggml.pre"] = vocabulary.pre
    keys["tokenizer.ggml.tokens"] = vocabulary.tokens
    if vocabulary.scores is not None:
        keys["tokenizer.ggml.scores"] = np.array(vocabulary.scores, np.float32)
    keys["tokenizer.ggml.token_type"] = np.array(vocabulary.types, np.int32)
    if vocabulary.merges is not None:
        keys["tokenizer.ggml.merges"] = vocabulary.merges
    fallbacks = optional_object(files, GENERATION_CONFIG), optional_object(files, CONFIG)
    specials = special_ids(vocabulary, tokenizer_config, fallbacks)
    if vocabulary.model in ("bert", "t5"):
        ends = vocabulary.reference.prefix, vocabulary.reference.suffix
        specials |= {name: ids[0] for name, ids in zip(("bos", "eos"), ends, strict=True) if ids}
        # All texts of XLM-RoBERTa have token type 0.
        types = 1 if vocabulary.model == "t5" else fallbacks[1].get("type_vocab_size")
        keys["tokenizer.ggml.add_sep_token"] = vocabulary.model == "t5"
        keys["tokenizer.ggml.token_type_count"] = types if isinstance(types, int) else 2
    keys |= {f"tokenizer.ggml.{name}": value for name, value in vocabulary.more.items()}
    for name, token_id in specials.items():
        keys.setdefault(f"tokenizer.ggml.{SPECIALS[name]}_token_id", token_id)
    around = {
        name: adds_specials and adds_around(name, specials, vocabulary, tokenizer_config)
        for name in ("bos", "eos")
    }
    keys["tokenizer.ggml.add_bos_token"] = around["bos"]
    if around["eos"]:
        keys["tokenizer.ggml.add_eos_token"] = True
    if vocabulary.add_space_prefix is False:
        keys["tokenizer.ggml.add_space_prefix"] = False
    if vocabulary.rules is not None:
        keys[RULES_KEY] = vocabulary.rules
    if vocabulary.model == "t5":
        exact = np.array(vocabulary.scores, np.float64)
        # Rounded scores could change which of two nearly equal sums is larger.
        if (exact != exact.astype(np.float32)).any():
            keys[SCORES_KEY] = exact
    if vocabulary.nfc:
        keys[NFC_KEY] = True
    template = chat_template(files, tokenizer_config)
    if template is None and TIKTOKEN in files:
        from trinity.tokenizers.huggingface.tiktoken import chat_template_of  # few models

        template = chat_template_of(fallbacks[0])
    elif template is None and vocabulary.model == "rwkv":
        from trinity.tokenizers.huggingface.rwkv_vocabulary import TEMPLATE

        template = TEMPLATE
    if template is not None:
        keys["tokenizer.chat_template"] = template
    tokenizer = tokenizer_from_metadata(keys)
    unknown = further_ends(fallbacks, tokenizer)
    end_keys = (f"tokenizer.ggml.{name}_token_id" for name in ("eot", "eom"))
    keys |= dict(zip((key for key in end_keys if key not in keys), unknown, strict=False))
    _check(tokenizer, vocabulary)
    return keys


def _vocabulary(
    files: Mapping[str, str],
    source: str,
    tokenizer_config: Mapping[str, object],
    rows: int,
    model: str | None,
) -> VocabularySource:
    if model is not None and TOKENIZER_JSON in files:
        path = files[TOKENIZER_JSON]
        values = read_json_object(path, is_config=False)
        with about(path):
            if model in _READERS:
                return _READERS[model](values, path, rows)
            if model == _SARVAM and is_escaped_bpe(values):
                return sarvam_source(values, path, rows)
    if TOKENIZER_MODEL in files:
        try:
            added = optional_object(files, ADDED_TOKENS)
            vocabulary = spm_source(files[TOKENIZER_MODEL], added, tokenizer_config, rows)
            if TOKENIZER_JSON in files:
                path = files[TOKENIZER_JSON]
                with about(path, files[TOKENIZER_MODEL]):
                    with_json_rules(vocabulary, read_json_object(path, is_config=False), path)
            return vocabulary
        except FormatError:  # Llama 3's file of that name has another format
            if TOKENIZER_JSON not in files:
                raise
    if TOKENIZER_JSON in files:
        path = files[TOKENIZER_JSON]
        values = read_json_object(path, is_config=False)
        with about(path):
            for is_of_kind, read in _KINDS:
                if is_of_kind(values):
                    return read(values, path, rows)
            return byte_level_source(values, path, rows)
    if TIKTOKEN in files:
        from trinity.tokenizers.huggingface.tiktoken import tiktoken_source

        with about(files[TIKTOKEN]):
            return tiktoken_source(files[TIKTOKEN], rows)
    if RWKV_VOCABULARY in files:
        from trinity.tokenizers.huggingface.rwkv_vocabulary import rwkv_source

        with about(files[RWKV_VOCABULARY]):
            return rwkv_source(files[RWKV_VOCABULARY], rows)
    raise InputError(
        f"{source}: there is neither {TOKENIZER_JSON} nor {TOKENIZER_MODEL}; a model needs a "
        "tokenizer: download the rest of the model"
    )


def _check(tokenizer: Tokenizer, vocabulary: VocabularySource) -> None:
    """Check that trinity's ids are those of the library that the file was made for."""
    for text, theirs in vocabulary.reference.ids.items():
        ours = tokenizer.encode(text, add_bos=False, parse_special=True)
        if ours == theirs:
            continue
        at = next(
            (i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]),
            min(len(ours), len(theirs)),
        )
        raise UnsupportedError(
            f"{vocabulary.source}: GGUF cannot store a rule of this tokenizer: token {at} of a "
            f"test text is {ours[at : at + 3]}, but {theirs[at : at + 3]} in the library that it "
            "was made for"
        )
