"""Unigram vocabularies (T5, XLM-RoBERTa), run by the `tokenizers` library.

A text is normalized by a table of the model's file, then cut so that the sum of the tokens' scores
is largest. SentencePiece's own library does not check such tables, so it is not used.
Source: sentencepiece's unigram_model.cc and normalizer.cc; llama.cpp's llm_tokenizer_ugm.
"""

from __future__ import annotations

from trinity.errors import TokenizerError
from trinity.tokenizers.bpe import library_ids, refusals
from trinity.tokenizers.metadata import RECONVERT
from trinity.tokenizers.spm import SPACE, unused_name
from trinity.tokenizers.vocabulary import NORMAL, USER_DEFINED, Vocabulary


class UnigramEncoder:
    """Converts text without special tokens to ids. Usable from several threads at once."""

    def __init__(self, vocab: Vocabulary) -> None:
        from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

        assert vocab.scores is not None
        if vocab.unk_id is None:
            raise TokenizerError(
                "tokenizer.ggml.unknown_token_id is missing, and a Unigram vocabulary "
                f"(tokenizer.ggml.model 't5') needs it; {RECONVERT}"
            )
        self._unknown = vocab.unk_id
        kinds = vocab.types.tolist()
        self._plain = [
            kind in (NORMAL, USER_DEFINED) and vocab.ids[text] == i
            for i, (text, kind) in enumerate(zip(vocab.tokens, kinds, strict=True))
        ]
        scores = vocab.scores.tolist()
        pieces = [
            (text, score) if plain or i == vocab.unk_id else (unused_name(vocab, i), 0.0)
            for i, (text, score, plain) in enumerate(
                zip(vocab.tokens, scores, self._plain, strict=True)
            )
        ]
        steps: list[normalizers.Normalizer] = []
        with refusals("tokenizer.ggml.scores or .precompiled_charsmap cannot be used"):
            if vocab.charsmap:
                steps.append(normalizers.Precompiled(vocab.charsmap))
            if vocab.drop_spaces:
                steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
            self._tokenizer = Tokenizer(models.Unigram(pieces, vocab.unk_id, False))
            if steps:
                self._tokenizer.normalizer = normalizers.Sequence(steps)
            self._tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
                replacement=SPACE, prepend_scheme="always" if vocab.prepends_space else "never"
            )

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``; text without a token becomes the unknown token."""
        with refusals("the tokenizers library cannot encode the text"):
            ids = library_ids(self._tokenizer, text)
        return [i if self._plain[i] else self._unknown for i in ids]
