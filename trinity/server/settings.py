"""How the server listens, whom it lets in, and what it bears: the options of `trinity serve`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from trinity.errors import InputError
from trinity.options.checks import check_text, parse_bytes
from trinity.options.option import Option, check_options
from trinity_kernels.whole_file import check_writable

SHORTEST_KEY = 8


def texts(name: str, value: object) -> tuple[str, ...]:
    """Several texts, none of them empty. Raises InputError."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError(f"{name} is {value!r:.40}; it must be a list of texts")
    for one in value:
        if not check_text(f"one of {name}", one).strip():
            raise InputError(f"one of {name} is empty")
    return tuple(value)


def addresses(name: str, value: object) -> str:
    """One address, or several with commas between. Raises InputError."""
    text = check_text(name, value)
    if "," in text and not all(one.strip() for one in text.split(",")):
        raise InputError(f"{name} is {text!r:.80}; an address between its commas is missing")
    return text


def names(name: str, value: object) -> Mapping[str, object] | None:
    """Names with values. Raises InputError."""
    if value is not None and not isinstance(value, Mapping):
        raise InputError(f"{name} is {value!r:.40}; it must be an object of names and values")
    return value


def read_names(flag: str, text: str) -> Mapping[str, object]:
    """A JSON object. Raises InputError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{flag} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{flag} is {text!r:.40}; it must be a JSON object")
    return found


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of the HTTP server. Raises: InputError for a value that is out of range."""

    host: Annotated[
        str,
        Option(
            "Address to listen on, or several with commas between; 0.0.0.0 for all, which others "
            "can then reach.",
            ("--host",),
            check=addresses,
            values="text",
            metavar="ADDRESS",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int, Option("Port to listen on; 0 for any that is free.", ("--port",), low=0, high=65535)
    ] = 8080
    api_key: Annotated[
        Sequence[str],
        Option(
            "Key that requests must have, all but GET /health; may be several.",
            ("--api-key",),
            check=texts,
            values="texts",
            repeated=True,
            read=texts,
            metavar="KEY",
        ),
    ] = ()
    api_key_file: Annotated[
        str | os.PathLike[str] | None,
        Option(
            "File with such keys, one a line.",
            ("--api-key-file",),
            values="a path",
            metavar="FILE",
        ),
    ] = None
    allowed_host: Annotated[
        Sequence[str],
        Option(
            "Further name that a request's Host may have; * for any; may be several.",
            ("--allowed-host",),
            check=texts,
            values="texts",
            repeated=True,
            read=texts,
            metavar="NAME",
        ),
    ] = ()
    allowed_origin: Annotated[
        Sequence[str],
        Option(
            "Further origin of web pages that may ask, such as https://example.org; * for any; "
            "may be several.",
            ("--allowed-origin",),
            check=texts,
            values="texts",
            repeated=True,
            read=texts,
            metavar="ORIGIN",
        ),
    ] = ()
    any_model_name: Annotated[
        bool,
        Option(
            "Let the first model answer requests that name a model that is not there.",
            ("--any-model-name",),
        ),
    ] = False
    strict: Annotated[
        bool,
        Option(
            "Refuse requests with a field that has no effect, rather than name it in the answer's "
            "X-Trinity-Ignored header.",
            ("--strict",),
        ),
    ] = False
    speech_model: Annotated[
        str | None,
        Option(
            "Whisper model for /v1/audio/transcriptions, beside those that write.",
            ("--speech-model",),
            values="text",
            metavar="[NAME=]MODEL",
        ),
    ] = None
    speech_quantize: Annotated[
        str | None,
        Option(
            "Type that the speech model's weights are quantized to while loading, such as Q8_0.",
            ("--speech-quantize",),
            values="a type of `trinity quantize`",
            metavar="TYPE",
        ),
    ] = None
    chat_template: Annotated[
        str | os.PathLike[str] | None,
        Option(
            "File with a chat template (Jinja2) in place of the models' own.",
            ("--chat-template",),
            values="a path",
            metavar="FILE",
        ),
    ] = None
    chat_template_kwargs: Annotated[
        Mapping[str, object] | None,
        Option(
            "JSON object of names for chat templates where a request does not give them, such as "
            '{"enable_thinking": false}.',
            ("--chat-template-kwargs",),
            check=names,
            values="an object",
            read=read_names,
            metavar="JSON",
        ),
    ] = None
    max_body: Annotated[
        int,
        Option(
            "Most bytes of a request's body.",
            ("--max-body",),
            low=1,
            read=parse_bytes,
            metavar="SIZE",
        ),
    ] = 4 << 20
    max_audio: Annotated[
        int,
        Option(
            "Most bytes of a body with a recording.",
            ("--max-audio",),
            low=1,
            read=parse_bytes,
            metavar="SIZE",
        ),
    ] = 32 << 20
    max_file: Annotated[
        int,
        Option(
            "Most bytes of a body with a file of requests.",
            ("--max-file",),
            low=1,
            read=parse_bytes,
            metavar="SIZE",
        ),
    ] = 100 << 20
    max_files: Annotated[
        int,
        Option(
            "Bytes of files and answers in --state's folder from which on no file is taken.",
            ("--max-files",),
            low=1,
            read=parse_bytes,
            metavar="SIZE",
        ),
    ] = 4 << 30
    max_header: Annotated[
        int,
        Option(
            "Most bytes of a request's line and headers.",
            ("--max-header",),
            low=1024,
            read=parse_bytes,
            metavar="SIZE",
        ),
    ] = 64 << 10
    max_messages: Annotated[
        int, Option("Most messages of a conversation.", ("--max-messages",), low=1)
    ] = 2048
    max_answers: Annotated[
        int,
        Option("Most answers to one request: prompts times n.", ("--max-answers",), low=1),
    ] = 64
    max_connections: Annotated[
        int | None,
        Option(
            "Most connections; half of the files that the process may open, up to 512, if not "
            "given.",
            ("--max-connections",),
            low=1,
        ),
    ] = None
    max_queue: Annotated[
        int,
        Option(
            "Most answers of a model that wait for their first step; then 429.",
            ("--max-queue",),
            low=1,
        ),
    ] = 256
    parallel: Annotated[
        int | None,
        Option(
            "Most answers of a model that run at the same time; as many as find room in the cache "
            "if not given.",
            ("--parallel", "-np"),
            low=1,
        ),
    ] = None
    batch_size: Annotated[
        int | None,
        Option(
            "Most tokens of prompts in a step, after which progress is told; up to 512 if not "
            "given.",
            ("--batch-size", "-b"),
            low=1,
        ),
    ] = None
    request_seconds: Annotated[
        float,
        Option("Most seconds that a request takes.", ("--request-seconds",), above=0),
    ] = 3600.0
    drain: Annotated[
        float,
        Option(
            "Seconds in which running answers may end after SIGTERM or Ctrl-C.",
            ("--drain",),
            low=0,
        ),
    ] = 30.0
    pooling: Annotated[
        Literal["mean", "cls", "last"] | None,
        Option(
            "Which hidden states are a text's vector: mean of all, cls (the first) or last; as the "
            "model's file says if not given.",
            ("--pooling",),
            choices=("mean", "cls", "last"),
        ),
    ] = None
    preload: Annotated[
        bool,
        Option(
            "Load the first model at the start; else when it is first asked for.",
            ("--preload/--no-preload",),
        ),
    ] = True
    slot_save_path: Annotated[
        str | os.PathLike[str] | None,
        Option(
            "Folder in which slots may be saved by POST /slots/{id}?action=save; each slot then "
            "has a cache of its own.",
            ("--slot-save-path",),
            values="a path",
            metavar="FOLDER",
        ),
    ] = None
    state: Annotated[
        str | os.PathLike[str] | None,
        Option(
            "Folder for files and batches, which outlive the server's process.",
            ("--state",),
            values="a path",
            metavar="FOLDER",
        ),
    ] = None
    prefix_cache_bytes: Annotated[
        int,
        Option(
            "Most bytes of evaluated texts in --state's folder, with which later processes, and "
            "others, begin; 0 for none.",
            ("--prefix-cache-bytes",),
            low=0,
            read=parse_bytes,
            metavar="SIZE",
        ),
    ] = 0
    alias: Annotated[
        str | None,
        Option(
            "Further names of the first model, with commas between.",
            ("--alias", "-a"),
            values="text",
            metavar="NAMES",
        ),
    ] = None
    tags: Annotated[
        str | None,
        Option(
            "Words that GET /v1/models says of the first model, with commas between.",
            ("--tags",),
            values="text",
            metavar="WORDS",
        ),
    ] = None
    share_prefix_cache: Annotated[
        bool,
        Option(
            "Let requests with different API keys share cached prompts; otherwise each of several "
            "keys has its own.",
            ("--share-prefix-cache",),
        ),
    ] = False
    memory_limit: Annotated[
        int | None,
        Option(
            "Bytes that several models may take together; the least used ones are unloaded.",
            ("--memory-limit",),
            low=1,
            read=parse_bytes,
            metavar="SIZE",
        ),
    ] = None
    disable: Annotated[
        Sequence[str],
        Option(
            "Path that is not served, such as /metrics; may be several.",
            ("--disable",),
            check=texts,
            values="texts",
            repeated=True,
            read=texts,
            metavar="PATH",
        ),
    ] = ()
    verbose_answers: Annotated[
        bool,
        Option(
            "Let chat completions say how the model read the request, as with verbose: true.",
            ("--verbose-answers",),
        ),
    ] = False
    log_requests: Annotated[
        bool,
        Option("Write a line for each request: method, path, status, time.", ("--log-requests",)),
    ] = False

    def __post_init__(self) -> None:
        check_options(self)
        if self.prefix_cache_bytes and self.state is None:
            raise InputError("prefix_cache_bytes needs a folder; give state (--state), too")

    @property
    def aliases(self) -> tuple[str, ...]:
        """Further names of the first model. Raises: InputError for an empty one."""
        return listed("alias", self.alias)

    @property
    def all_tags(self) -> tuple[str, ...]:
        """Words about the first model. Raises: InputError for an empty one."""
        return listed("tags", self.tags)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Each address to listen on."""
        return tuple(one.strip() for one in self.host.split(","))

    def all_keys(self) -> tuple[str, ...]:
        """All keys, those of the file too. Raises: InputError for a file that gives none."""
        found = list(self.api_key)
        if self.api_key_file is not None:
            found += read_keys(self.api_key_file)
        for key in found:
            if len(key) < SHORTEST_KEY or not key.isascii() or not key.isprintable():
                raise InputError(
                    f"an API key has {len(key)} characters; it must have at least {SHORTEST_KEY}, "
                    "printable ones of ASCII"
                )
        return tuple(found)


def listed(name: str, text: str | None) -> tuple[str, ...]:
    """The parts of a text with commas between, each once. Raises: InputError."""
    if text is None:
        return ()
    parts = [one.strip() for one in text.split(",")]
    if not all(parts):
        raise InputError(f"{name} is {text!r:.80}; a word between its commas is missing")
    return tuple(dict.fromkeys(parts))


def check_folder(path: str | os.PathLike[str]) -> None:
    """Raises: InputError where slots cannot be saved in it."""
    try:
        check_writable(os.fspath(path))
    except OSError as error:
        raise InputError(f"{os.fspath(path)}: slots cannot be saved there: {error}") from error


def read_template(path: str | os.PathLike[str]) -> str:
    """The text of a chat template's file. Raises: InputError."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{os.fspath(path)}: no chat template can be read: {error}") from error


def read_keys(path: str | os.PathLike[str]) -> list[str]:
    """The keys of a file, one a line; empty lines count for nothing. Raises: InputError."""
    try:
        with open(path, encoding="utf-8") as file:
            keys = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{os.fspath(path)}: no file of API keys can be read: {error}") from error
    keys = [key for key in keys if key]
    if not keys:
        raise InputError(f"{os.fspath(path)}: there is no API key in it; write one on a line")
    return keys
