"""Errors name a file, but not its folder on the server."""

from __future__ import annotations

import pytest

from trinity.errors import FormatError, InputError, TokenizerError, TrinityError
from trinity.runtime.options import Request
from trinity.server.errors import api_error


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (TokenizerError("/srv/models/a.gguf: no merges"), 400, "a.gguf: no merges"),
        (FormatError("/srv/a b/x.gguf: cut"), 503, "the model cannot be used: x.gguf: cut"),
        (TrinityError("/state/streams/1: no space"), 500, "1: no space"),
        (InputError("prompt is '/a/b'; it must be a text"), 400, None),
        (InputError("the pattern /a/b is wrong"), 400, None),
    ],
)
def test_files_are_named_without_their_folder(
    error: TrinityError, status: int, message: str | None
) -> None:
    told = api_error(error)
    assert (told.status, told.message) == (status, message or str(error))


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"stop": [""]}, "stop"),
        ({"lora": {-1: 1.0}}, "lora"),
        ({"resumed": [1], "logprobs": 1}, "resumed"),
    ],
)
def test_an_error_names_its_option_whatever_its_text(
    options: dict[str, object], param: str
) -> None:
    with pytest.raises(InputError) as error:
        Request.of(**options)  # type: ignore[arg-type]
    assert api_error(error.value).param == param


def test_an_option_is_not_guessed_from_the_text() -> None:
    assert api_error(InputError("seed is a word here")).param is None
