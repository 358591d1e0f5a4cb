"""sentence-transformers' LogitScore: a model that writes ranks by the logits of one or two tokens.

Their rows of the output become a classifier, as llama.cpp's converter makes it of Qwen3-Reranker.
Source: sentence_transformers.cross_encoder.modules.LogitScore; llama.cpp conversion/qwen.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trinity.config import POOLING_RANK
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.huggingface.files import LOGIT_SCORE
from trinity.formats.huggingface.hf_model import HFModel
from trinity.formats.huggingface.stored import HFTensor, rows
from trinity.formats.json_object import read_json_object

_LABELS = ("yes", "no")
# Fields that change the products of the output head; a score from its rows would ignore them.
_CHANGES = ("final_logit_softcapping", "logit_scale", "logits_scaling")


def logit_score_keys(files: Mapping[str, str]) -> dict[str, object]:
    """Return GGUF's keys of such a model without the architecture, or {} for other models.

    Raises: as ``read_json_object``, and ConfigError if the module's file names no token.
    """
    tokens = _tokens(files)
    if not tokens:
        return {}
    return {"pooling_type": POOLING_RANK, "classifier.output_labels": list(_LABELS[: len(tokens)])}


def logit_score_tensors(
    files: Mapping[str, str], model: HFModel, needed: Sequence[HFTensor]
) -> list[HFTensor]:
    """Return the classifier, made of rows of the output, or [] if there is none.

    Raises: as ``logit_score_keys``; ConfigError for a token beyond the vocabulary, UnsupportedError
    for a class whose logits are more than products.
    """
    tokens = _tokens(files)
    if not tokens:
        return []
    config, values = model.config, model.values
    for key in _CHANGES:
        if values.values.get(key) not in (None, 0, 0.0, 1, 1.0):
            raise UnsupportedError(
                f"{values.source}: {key} is {values.values[key]!r:.40}; trinity ranks by "
                f"{LOGIT_SCORE} where logits are the output's products alone"
            )
    for token in tokens:
        if not 0 <= token < config.vocab_size:
            raise ConfigError(
                f"{files[LOGIT_SCORE]}: names the token {token}, but vocab_size is "
                f"{config.vocab_size}; the files belong to different models"
            )
    by_name = {tensor.name: tensor for tensor in needed}
    head = by_name.get("output.weight", by_name["token_embd.weight"])
    parts = tuple(rows(token, token + 1) for token in tokens)
    shape = (len(tokens), config.hidden_size)
    factors = head.factors * len(tokens)
    stored = replace(head.stored, parts=parts)
    return [replace(head, name="cls.output.weight", shape=shape, stored=stored, factors=factors)]


def _tokens(files: Mapping[str, str]) -> list[int]:
    """Return the token for a relevant text, and the one for an irrelevant text, if any."""
    if LOGIT_SCORE not in files:
        return []
    values = read_json_object(files[LOGIT_SCORE])
    given = [values.get("true_token_id"), values.get("false_token_id")]
    tokens = [token for token in given if isinstance(token, int) and not isinstance(token, bool)]
    if given[1] is None:
        given.pop()
    if tokens != given:
        raise ConfigError(
            f"{files[LOGIT_SCORE]}: true_token_id is {values.get('true_token_id')!r:.40} and "
            f"false_token_id {values.get('false_token_id')!r:.40}; expected ids of tokens, the "
            "second may be null"
        )
    return tokens
