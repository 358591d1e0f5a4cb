"""Random tokenizer.json files give the ids and texts of the `tokenizers` library."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from tests.matrix import parts
from tests.tokenizers.huggingface.random_tokenizers import text_of, tokenizer_json
from trinity.errors import TokenizerError, TrinityError, UnsupportedError
from trinity.formats.gguf import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter
from trinity.providers import open_weights
from trinity.tokenizers import Tokenizer, tokenizer_from_metadata
from trinity.tokenizers.huggingface import reference
from trinity.tokenizers.huggingface.file_library import answer
from trinity.tokenizers.huggingface.metadata import tokenizer_metadata

# What of config.json means the kind.
KINDS = {"bytes": None, "metaspace": None, "escaped": "gemma4", "unigram": None, "wordpiece": None}
FILES = 40


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is asked here: a process for each of many files takes long."""

    def asked(
        request: dict[str, Any], size: int, texts: Sequence[str], path: str, library: str
    ) -> dict[str, Any]:
        try:
            return answer({**request, "texts": list(texts)})
        except BaseException as error:  # a panic of the library is no Exception
            raise TokenizerError(f"the library fails: {error}") from error

    monkeypatch.setattr(reference, "_asked", asked)


@pytest.mark.few(1)
@pytest.mark.parametrize("part", parts(5))
@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_texts_are_the_librarys(kind: str, part: int, tmp_path: Path) -> None:
    """Tokenizers of a directory and of a converted file's keys are tested."""
    refusals = []
    for seed in range(FILES * part, FILES * (part + 1)):
        draw = random.Random(f"{kind} {seed}")
        values = tokenizer_json(draw, kind)
        library = tokenizers.Tokenizer.from_str(json.dumps(values))
        if _is_ambiguous(library, values):
            continue
        try:
            keys = _keys(values, kind, library, tmp_path)
        except (UnsupportedError, TokenizerError) as error:
            refusals.append(str(error))
            continue
        tokenizer = tokenizer_from_metadata(_written(keys, tmp_path) if seed % 4 == 0 else keys)
        for _ in range(30):
            _compare(tokenizer, library, values, draw, f"{kind} {seed}")
    assert len(refusals) < FILES // 3
    assert all("U+2581" in reason or "library fails" in reason for reason in refusals), refusals


def _is_ambiguous(library: tokenizers.Tokenizer, values: Mapping[str, Any]) -> bool:
    """Whether added tokens normalize to one text, of which the library takes any."""
    texts = [token["content"] for token in values["added_tokens"] if token["normalized"]]
    if library.normalizer is not None:
        texts = list(map(library.normalizer.normalize_str, texts))
    return len(set(texts)) < len(texts)


def _keys(
    values: Mapping[str, Any], kind: str, library: tokenizers.Tokenizer, folder: Path
) -> dict[str, object]:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(values), "utf-8")
    rows = library.get_vocab_size() + 3
    return tokenizer_metadata({path.name: str(path)}, str(folder), rows, KINDS[kind])


def _written(keys: Mapping[str, object], folder: Path) -> Mapping[str, object]:
    path = folder / "keys.gguf"
    path.unlink(missing_ok=True)
    with GGUFWriter(path) as writer:
        for key, value in keys.items():
            writer.add(key, value, "array[string]" if isinstance(value, list) else None)
    with GGUFProvider(path) as provider:
        return {key: provider.metadata[key] for key in provider.metadata}


def _compare(
    tokenizer: Tokenizer,
    library: tokenizers.Tokenizer,
    values: Mapping[str, Any],
    draw: random.Random,
    where: str,
) -> None:
    added = values["added_tokens"]
    text = text_of(draw, [token["content"] for token in added])
    try:
        expected = library.encode(text, add_special_tokens=False).ids
    except BaseException:  # a panic of the library, which is no Exception
        with pytest.raises(TokenizerError):
            tokenizer.encode(text, add_bos=False, parse_special=True)
        return
    ids = tokenizer.encode(text, add_bos=False, parse_special=True)
    assert ids == expected, (where, text)
    # The library shows added tokens in their normalized form, and WordPiece cleans texts up.
    shows_all = {token["id"] for token in added}.isdisjoint(ids)
    if shows_all and values["model"]["type"] != "WordPiece":
        assert tokenizer.decode(ids) == library.decode(ids, skip_special_tokens=False), where


def _directories(shared_data: Path) -> list[Path]:
    found = shared_data.glob("*/**/tokenizer.json")
    return sorted({path.parent for path in found if (path.parent / "config.json").exists()})


@pytest.mark.full
def test_directories_of_other_programs(shared_data: Path) -> None:
    """All directories of language models in the reference data are read."""
    compared = 0
    for directory in _directories(shared_data):
        try:
            with closing(open_weights(directory)) as provider:
                tokenizer = tokenizer_from_metadata(provider.metadata)
        except TrinityError:
            continue  # damaged ones, which other tests are about
        library = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        values = json.loads((directory / "tokenizer.json").read_text("utf-8"))
        for seed in range(20):
            _compare(tokenizer, library, values, random.Random(seed), str(directory))
        compared += 1
    assert compared > 40
