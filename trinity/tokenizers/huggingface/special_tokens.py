"""Special tokens: their ids, those added around a text, and those that end a generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trinity.errors import UnsupportedError
from trinity.tokenizers import Tokenizer
from trinity.tokenizers.huggingface.vocabulary_source import VocabularySource

# Names of special tokens in tokenizer_config.json and in tokenizer.ggml.NAME_token_id.
SPECIALS = {"bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator", "pad": "padding"}


def special_ids(
    vocabulary: VocabularySource,
    tokenizer_config: Mapping[str, object],
    fallbacks: Sequence[Mapping[str, object]],
) -> dict[str, int]:
    """Return the ids of bos, eos, ...: from tokenizer_config.json, else from the other files."""
    ids = {token: i for i, token in enumerate(vocabulary.tokens)}
    special: dict[str, int] = {}
    for name in SPECIALS:
        token = tokenizer_config.get(f"{name}_token")
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str) and text in ids:
            special[name] = ids[text]
            continue
        for values in fallbacks:
            token_ids = _id_list(values.get(f"{name}_token_id"), len(ids))
            if token_ids:
                special[name] = token_ids[0]
                break
    return special


def adds_around(
    name: str,
    specials: Mapping[str, int],
    vocabulary: VocabularySource,
    tokenizer_config: Mapping[str, object],
) -> bool:
    """Whether the special token ``name``, "bos" or "eos", is added to each text.

    Raises UnsupportedError if other tokens are added, which GGUF cannot store.
    """
    token_id = specials.get(name)
    reference = vocabulary.reference
    ids = reference.prefix if name == "bos" else reference.suffix
    if ids:
        if ids != [token_id]:
            shown = [vocabulary.tokens[i] if i < len(vocabulary.tokens) else i for i in ids]
            raise UnsupportedError(
                f"{vocabulary.source}: it puts {shown!r:.80} around each text, but {name} is "
                f"{token_id}; GGUF supports only bos before and eos after a text"
            )
        return True
    # transformers' LlamaTokenizer and GemmaTokenizer add BOS by default.
    default = name == "bos" and vocabulary.model in ("llama", "gemma4")
    flag = tokenizer_config.get(f"add_{name}_token", default)
    return flag is True and token_id is not None


def further_ends(files: Sequence[Mapping[str, object]], tokenizer: Tokenizer) -> list[int]:
    """Return the end tokens that the files list, in addition to those that the tokenizer knows.

    The first file that lists any is used: generation_config.json, then config.json. GGUF stores
    them under the keys eot and eom.
    """
    listings = (
        values["eos_token_id"] for values in files if values.get("eos_token_id") is not None
    )
    listed = _id_list(next(listings, None), tokenizer.vocab_size)
    return [i for i in dict.fromkeys(listed) if i not in tokenizer.eog_ids]


def _id_list(value: object, count: int) -> list[int]:
    """Return the ids in ``value``: one, several or none. Llama 3.1 has several end tokens."""
    candidates = value if isinstance(value, list) else [value]
    return [
        i for i in candidates if isinstance(i, int) and not isinstance(i, bool) and 0 <= i < count
    ]
