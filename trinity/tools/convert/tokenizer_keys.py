"""The tokenizer's part of a GGUF file's metadata, from the files of a Hugging Face directory.

Source: llama.cpp gguf-py/gguf/vocab.py, SpecialVocab.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from trinity.errors import FormatError, InputError, TokenizerError, UnsupportedError
from trinity.formats.hf_config import HFConfig
from trinity.formats.json_object import read_json_object
from trinity.formats.mapping import MappedFile
from trinity.tokenizers import tokenizer_from_metadata
from trinity.tools.convert.bpe_source import bpe_source
from trinity.tools.convert.metaspace_source import is_metaspace, metaspace_source
from trinity.tools.convert.spm_source import spm_source
from trinity.tools.convert.vocabulary_source import CHECK_TEXT, VocabularySource

Keys = dict[str, tuple[object, str | None]]  # key to value and value type

MAX_TEMPLATE_BYTES = 1 << 20  # the largest published ones have some 20,000

# Names of special tokens in tokenizer_config.json and in tokenizer.ggml.NAME_token_id.
_SPECIALS = {"bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator", "pad": "padding"}


def tokenizer_keys(directory: str, config: HFConfig, values: Mapping[str, object]) -> Keys:
    """All keys of the vocabulary, its special tokens and the chat template.

    ``values`` is the object of config.json. The result is held against the library that the
    files were made for: the same ids for a text with everything in it. Raises InputError where
    there is no tokenizer, TokenizerError or UnsupportedError for one that GGUF cannot say,
    ConfigError where it has more tokens than the embedding.
    """
    tokenizer_config = _optional(directory, "tokenizer_config.json")
    source = _source(directory, tokenizer_config, config.vocab_size)
    source.fit()
    keys: Keys = {"tokenizer.ggml.model": (source.model, None)}
    if source.pre is not None:
        keys["tokenizer.ggml.pre"] = source.pre, None
    keys["tokenizer.ggml.tokens"] = source.tokens, "array[string]"
    if source.scores is not None:
        keys["tokenizer.ggml.scores"] = np.array(source.scores, np.float32), None
    keys["tokenizer.ggml.token_type"] = np.array(source.types, np.int32), None
    if source.merges is not None:
        keys["tokenizer.ggml.merges"] = source.merges, "array[string]"
    generation = _optional(directory, "generation_config.json")
    specials = _special_ids(source, tokenizer_config, (generation, values))
    for name, token_id in specials.items():
        keys[f"tokenizer.ggml.{_SPECIALS[name]}_token_id"] = token_id, "uint32"
    for name, ids in (("bos", source.reference.prefix), ("eos", source.reference.suffix)):
        wanted = _adds(name, ids, specials.get(name), source, tokenizer_config)
        keys[f"tokenizer.ggml.add_{name}_token"] = wanted, None
    if not keys["tokenizer.ggml.add_eos_token"][0]:
        del keys["tokenizer.ggml.add_eos_token"]
    if source.add_space_prefix is False:
        keys["tokenizer.ggml.add_space_prefix"] = False, None
    template = _chat_template(directory, tokenizer_config)
    if template is not None:
        keys["tokenizer.chat_template"] = template, None
    _add_further_ends(keys, source, (generation, values))
    _check(keys, source)
    return keys


def _source(directory: str, tokenizer_config: Mapping[str, object], rows: int) -> VocabularySource:
    spm, fast = (os.path.join(directory, n) for n in ("tokenizer.model", "tokenizer.json"))
    if os.path.lexists(spm):
        try:
            added = _optional(directory, "added_tokens.json")
            return spm_source(spm, added, tokenizer_config, rows)
        except FormatError:  # Llama 3 has another kind of file under that name
            if not os.path.lexists(fast):
                raise
    if os.path.lexists(fast):
        values = read_json_object(fast, is_config=False)
        return (metaspace_source if is_metaspace(values) else bpe_source)(values, fast, rows)
    raise InputError(
        f"{directory}: no tokenizer.json and no tokenizer.model, and a model without a tokenizer "
        "cannot be used; download the rest of the model"
    )


def _optional(directory: str, name: str) -> dict[str, object]:
    path = os.path.join(directory, name)
    return read_json_object(path) if os.path.lexists(path) else {}


def _special_ids(
    source: VocabularySource,
    tokenizer_config: Mapping[str, object],
    fallbacks: tuple[Mapping[str, object], ...],
) -> dict[str, int]:
    """bos, eos, ...: by text from tokenizer_config.json, else by id from the other files."""
    ids = {token: i for i, token in enumerate(source.tokens)}
    found: dict[str, int] = {}
    for name in _SPECIALS:
        token = tokenizer_config.get(f"{name}_token")
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str) and text in ids:
            found[name] = ids[text]
            continue
        for values in fallbacks:
            token_ids = _id_list(values.get(f"{name}_token_id"), len(ids))
            if token_ids:
                found[name] = token_ids[0]
                break
    return found


def _id_list(value: object, count: int) -> list[int]:
    """The ids among ``value``: one id, several or none. Llama 3.1 has several ends."""
    candidates = value if isinstance(value, list) else [value]
    return [
        i for i in candidates if isinstance(i, int) and not isinstance(i, bool) and 0 <= i < count
    ]


def _adds(
    name: str,
    ids: list[int],
    token_id: int | None,
    source: VocabularySource,
    tokenizer_config: Mapping[str, object],
) -> bool:
    """Whether the special token ``name`` goes around each text."""
    if ids:
        if ids != [token_id]:
            shown = [source.tokens[i] if i < len(source.tokens) else i for i in ids]
            raise UnsupportedError(
                f"{source.source}: it puts {shown!r:.80} around each text, where {name} is "
                f"{token_id}; GGUF knows only one token there, bos before and eos behind"
            )
        return True
    # transformers' LlamaTokenizer adds BOS where its configuration does not say.
    default = name == "bos" and source.model == "llama"
    flag = tokenizer_config.get(f"add_{name}_token", default)
    return flag is True and token_id is not None


def _chat_template(directory: str, tokenizer_config: Mapping[str, object]) -> str | None:
    """chat_template.jinja, else tokenizer_config.json's, of several the one named default."""
    path = os.path.join(directory, "chat_template.jinja")
    if os.path.lexists(path):
        file = MappedFile(path)
        try:
            if len(file.buffer()) > MAX_TEMPLATE_BYTES:
                raise TokenizerError(
                    f"{path}: larger than {MAX_TEMPLATE_BYTES} bytes, no chat template"
                )
            return bytes(file.buffer()).decode()
        except UnicodeDecodeError as error:
            raise TokenizerError(f"{path}: no UTF-8 text: {error}") from error
        finally:
            file.close()
    template = tokenizer_config.get("chat_template")
    if isinstance(template, list):
        named = [t for t in template if isinstance(t, dict) and t.get("name") == "default"]
        template = named[0].get("template") if named else None
    return template if isinstance(template, str) else None


def _add_further_ends(
    keys: Keys, source: VocabularySource, files: tuple[Mapping[str, object], ...]
) -> None:
    """Ends of generation beside EOS that engines would not find by their text.

    generation_config.json lists them; eot and eom are the keys that GGUF has for more.
    """
    known = tokenizer_from_metadata({key: value for key, (value, _) in keys.items()}).eog_ids
    listed = [
        i for values in files for i in _id_list(values.get("eos_token_id"), len(source.tokens))
    ]
    unknown = [i for i in dict.fromkeys(listed) if i not in known]
    for name, token_id in zip(("eot", "eom"), unknown, strict=False):
        keys[f"tokenizer.ggml.{name}_token_id"] = token_id, "uint32"


def _check(keys: Keys, source: VocabularySource) -> None:
    """The vocabulary as trinity reads it gives the ids of the library it was made for."""
    tokenizer = tokenizer_from_metadata({key: value for key, (value, _) in keys.items()})
    ours = tokenizer.encode(CHECK_TEXT, add_bos=False)
    theirs = source.reference.ids[CHECK_TEXT]
    if ours != theirs:
        at = next(
            (i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]),
            min(len(ours), len(theirs)),
        )
        raise UnsupportedError(
            f"{source.source}: as GGUF has it this tokenizer splits text differently: token {at} "
            f"of a test text is {ours[at : at + 3]}, and {theirs[at : at + 3]} by the library it "
            "was made for; it has a rule that GGUF cannot say"
        )
