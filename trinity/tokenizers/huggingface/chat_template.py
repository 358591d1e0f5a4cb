"""The chat template among the files of a model."""

from __future__ import annotations

from collections.abc import Mapping

from trinity.errors import TokenizerError
from trinity.formats.huggingface.files import CHAT_TEMPLATE
from trinity.formats.mapping import MappedFile

MAX_TEMPLATE_BYTES = 1 << 20  # the largest published ones have some 20,000


def chat_template(files: Mapping[str, str], tokenizer_config: Mapping[str, object]) -> str | None:
    """Return chat_template.jinja, else the (default) template of tokenizer_config.json, else None.

    Raises InputError if the file cannot be opened, TokenizerError if it is too large or not text.
    """
    if CHAT_TEMPLATE in files:
        return _read(files[CHAT_TEMPLATE])
    template = tokenizer_config.get("chat_template")
    if isinstance(template, list):
        named = [t for t in template if isinstance(t, dict) and t.get("name") == "default"]
        template = named[0].get("template") if named else None
    return template if isinstance(template, str) else None


def _read(path: str) -> str:
    file = MappedFile(path)
    try:
        if len(file.buffer()) > MAX_TEMPLATE_BYTES:
            raise TokenizerError(
                f"{path}: the file exceeds {MAX_TEMPLATE_BYTES} bytes, the limit for chat templates"
            )
        return bytes(file.buffer()).decode()
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path}: not UTF-8 text: {error}") from error
    finally:
        file.close()
