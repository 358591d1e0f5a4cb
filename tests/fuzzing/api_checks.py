"""Hooks of schemathesis that check responses against OpenAI's API document.

OPENAI_DOCUMENT is the path of that document.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import schemathesis

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fuzzing.openai_document import OpenAIDocument

DOCUMENT = OpenAIDocument(Path(os.environ["OPENAI_DOCUMENT"]))
# Refusals that no parameter is to blame for.
OF_THE_WHOLE = {"invalid_json", "context_length_exceeded", "queue_full"}


def place(response: Any, case: Any) -> str:
    """Return the operation's path in OpenAI's document, or "" if it is not in it."""
    is_openais = urlsplit(response.request.url).path.startswith("/v1/")
    return str(case.path).removeprefix("/v1") if is_openais else ""


@schemathesis.check
def fits_openai(ctx: Any, response: Any, case: Any) -> None:
    """Check a successful response, or each event of a stream, against OpenAI's schemas."""
    if response.status_code != 200:
        return
    media_type = response.headers["content-type"][0].partition(";")[0]
    validator = DOCUMENT.answer(case.method, place(response, case), media_type)
    if validator is None:
        return
    if media_type != "text/event-stream":
        check(validator, response.json())
        return
    *blocks, _ = response.content.decode().split("\n\n")
    for block in blocks:
        data = "".join(
            line.removeprefix("data:") for line in block.split("\n") if line.startswith("data:")
        ).strip()
        if data not in ("", "[DONE]"):
            event = json.loads(data)
            if set(event) != {"error"}:  # what failed after the stream began
                check(validator, event)


@schemathesis.check
def refusals_say_why(ctx: Any, response: Any, case: Any) -> None:
    """Check that an error has a message, and a parameter's name if one is wrong."""
    if place(response, case) not in DOCUMENT.paths or response.status_code < 400:
        return
    error = response.json()["error"]
    assert response.status_code < 500, error
    assert error["message"], "a refusal without a message"
    if response.status_code == 400:
        named = error["param"] is not None or error["code"] in OF_THE_WHOLE
        assert named, f"it names nothing: {error}"


def check(validator: Any, instance: Any) -> None:
    """Raise AssertionError with the places that do not match."""
    errors = list(validator.iter_errors(instance))
    told = [f"{'/'.join(map(str, one.instance_path))}: {one.message}" for one in errors]
    assert not told, f"no answer by OpenAI's schema: {told[:3]}"[:1500]
