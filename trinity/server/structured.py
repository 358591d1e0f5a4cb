"""What an answer may be, from the forms in which APIs say it: JSON, a schema, a grammar."""

from __future__ import annotations

from typing import Any

from trinity.server.endpoints.messages import ResponseFormat, TextForm
from trinity.server.errors import ApiError


def format_options(form: ResponseFormat | None, param: str = "response_format") -> dict[str, Any]:
    """GenerationOptions for an answer of this form, which ``param`` says. Raises: ApiError."""
    if form is None or isinstance(form, TextForm):
        return {}
    raise ApiError(400, f"{param}: only text can be asked for", param)
