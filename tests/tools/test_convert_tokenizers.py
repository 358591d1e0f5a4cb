"""Files of `convert` and `quantize` contain the directory's tokenizer, or report the difference."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers

from tests.tools.golden_models import edit_json, model_directory
from trinity.formats import GGUFProvider
from trinity.quantization import quantize
from trinity.tokenizers import tokenizer_from_metadata
from trinity.tools.convert import convert

TEXT = "Hello WORLD cafe\u0301  <|end|> x"


@pytest.mark.parametrize(
    ("normalizer", "said"),
    [
        (None, None),
        ({"type": "NFC"}, "composes characters"),
        ({"type": "Lowercase"}, "the normalizer Lowercase"),
    ],
)
def test_rules_go_into_the_file_and_are_named(
    normalizer: object, said: str | None, tmp_path: Path
) -> None:
    directory = model_directory("llama-grouped", tmp_path)
    edit_json(directory / "tokenizer.json", normalizer=normalizer)
    path, smaller = tmp_path / "m.gguf", tmp_path / "q.gguf"
    made = convert(directory, path, "f32")
    found = [note for note in made.notes if "other engines ignore" in note]
    assert len(found) == (said is not None)
    assert said is None or said in found[0]
    rounded = quantize(path, smaller, "Q8_0")
    assert [note for note in rounded.notes if "other engines ignore" in note] == found
    ids = []
    for file in (path, smaller):
        with GGUFProvider(file) as provider:
            ids.append(tokenizer_from_metadata(provider.metadata).encode(TEXT, parse_special=True))
    library = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert ids == [library.encode(TEXT).ids] * 2
