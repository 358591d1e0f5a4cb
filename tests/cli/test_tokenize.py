from __future__ import annotations

import json

from tests.cli.conftest import Run
from tests.toy_model import BOS, EOS, ToyEngine, ids_of

TOKENIZE = ("tokenize", "-m", "toy.gguf")


def test_table(run: Run, engine: ToyEngine) -> None:
    result = run(*TOKENIZE, "a")
    assert result.exit_code == 0
    assert result.stdout == '      1  "<s>"\n    100  "<0x61>"\n'


def test_ids(run: Run, engine: ToyEngine) -> None:
    assert run(*TOKENIZE, "ab", "--ids").stdout.split() == [str(i) for i in [BOS, *ids_of("ab")]]
    assert run(*TOKENIZE, "a", "--ids", "--no-bos").stdout == "100\n"
    assert run(*TOKENIZE, "</s>", "--ids", "--parse-special").stdout == f"{BOS} {EOS}\n"


def test_stdin_is_taken_as_it_is(run: Run, engine: ToyEngine) -> None:
    for arguments in ([], ["-"]):
        found = run(*TOKENIZE, *arguments, "--ids", "--no-bos", input="a\n").stdout
        assert found.split() == [str(i) for i in ids_of("a\n")]


def test_text_as_an_option(run: Run, engine: ToyEngine) -> None:
    assert run(*TOKENIZE, "-p", "a", "--ids").stdout == run(*TOKENIZE, "a", "--ids").stdout
    assert run(*TOKENIZE, "a", "-p", "a").exit_code == 2


def test_json(run: Run, engine: ToyEngine) -> None:
    found = json.loads(run(*TOKENIZE, "a", "--json").stdout)
    assert found == {
        "model": "toy.gguf",
        "ids": [BOS, 100],
        "tokens": ["<s>", "<0x61>"],
        "count": 2,
    }
