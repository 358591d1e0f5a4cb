"""The options of `trinity serve`: where it listens, who may use it, and its limits."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from trinity.errors import InputError
from trinity.options.checks import parse_bytes
from trinity.options.option import NAMED, Option, check_options, path
from trinity.server.setting_values import addresses, listed, names, read_keys, read_names, texts

SHORTEST_KEY = 8


def size(help: str, low: int = 1) -> Option:
    """Parse a number of bytes, such as 4MB on the command line."""
    return Option(help, low=low, read=parse_bytes, metavar="SIZE")


def several(help: str, metavar: str) -> Option:
    """A flag that may be given several times."""
    return Option(help, check=texts, values="texts", repeated=True, read=texts, metavar=metavar)


def text(help: str, metavar: str, *flags: str) -> Option:
    """A text."""
    return Option(help, flags or NAMED, values="text", metavar=metavar)


Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of the HTTP server. Raises: InputError for a value that is out of range."""

    host: Annotated[
        str,
        Option(
            "Addresses to listen on, separated by commas; 0.0.0.0 for all interfaces.",
            check=addresses,
            values="text",
            metavar="ADDRESS",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int, Option("Port to listen on; 0 for any that is free.", low=0, high=65535)
    ] = 8080
    api_key: Annotated[
        Sequence[str],
        several("API key; requests other than GET /health need one. Repeatable.", "KEY"),
    ] = ()
    api_key_file: Annotated[Path | None, path("File with API keys, one per line.", "FILE")] = None
    allowed_host: Annotated[
        Sequence[str], several("Also accept this Host header; * accepts all. Repeatable.", "NAME")
    ] = ()
    allowed_origin: Annotated[
        Sequence[str],
        several("Also accept web pages of this origin; * accepts all. Repeatable.", "ORIGIN"),
    ] = ()
    any_model_name: Annotated[
        bool, Option("Let the first model answer for unknown model names.")
    ] = False
    allow_pull: Annotated[
        bool, Option("Let POST /api/pull download models of the hub and serve them.")
    ] = False
    allow_create: Annotated[
        bool,
        Option(
            "Let POST /api/create and /api/copy add models, and DELETE /api/delete remove them."
        ),
    ] = False
    allow_image_urls: Annotated[
        bool, Option("Fetch images whose http or https URL is in a request, from public addresses.")
    ] = False
    max_store: Annotated[
        int, size("Maximum size of the store of created models; beyond it, no more are created.")
    ] = 64 << 30
    strict: Annotated[
        bool,
        Option("Refuse fields that have no effect, instead of naming them in X-Trinity-Ignored."),
    ] = False
    speech_model: Annotated[
        str | None, text("Whisper model for /v1/audio/transcriptions.", "[NAME=]MODEL")
    ] = None
    speech_quantize: Annotated[
        str | None,
        Option(
            "Type to quantize the speech model's weights to, such as Q8_0.",
            values="a type of `trinity quantize`",
            metavar="TYPE",
        ),
    ] = None
    chat_template: Annotated[
        Path | None,
        path(
            "File with a Jinja2 chat template, instead of the models' own.",
            "FILE",
            "--chat-template",
            "--template",
            "--chat-template-file",
        ),
    ] = None
    chat_template_kwargs: Annotated[
        Mapping[str, object] | None,
        Option(
            "JSON object of default variables of chat templates.",
            check=names,
            values="an object",
            read=read_names,
            metavar="JSON",
        ),
    ] = None
    max_body: Annotated[int, size("Maximum size of a request's body.")] = 4 << 20
    max_audio: Annotated[int, size("Maximum size of a body with a recording or images.")] = 32 << 20
    max_audio_seconds: Annotated[
        float, Option("Maximum length of a recording in seconds.", above=0)
    ] = 7200.0
    max_file: Annotated[int, size("Maximum size of a body with a file of requests.")] = 100 << 20
    max_files: Annotated[
        int, size("Uploads are refused once --state's folder exceeds this size.")
    ] = 4 << 30
    max_header: Annotated[int, size("Maximum size of a request's line and headers.", low=1024)] = (
        64 << 10
    )
    max_messages: Annotated[int, Option("Maximum number of messages in a conversation.", low=1)] = (
        2048
    )
    max_answers: Annotated[
        int, Option("Maximum number of responses to one request: prompts times n.", low=1)
    ] = 64
    max_connections: Annotated[
        int | None,
        Option(
            "Maximum number of connections; by default half of the open file limit, up to 512.",
            low=1,
        ),
    ] = None
    max_queue: Annotated[
        int, Option("Maximum number of waiting responses of a model; more get 429.", low=1)
    ] = 256
    parallel: Annotated[
        int | None,
        Option(
            "Maximum number of running responses of a model; by default as many as fit the cache.",
            ("--parallel", "-np"),
            low=1,
        ),
    ] = None
    batch_size: Annotated[
        int | None,
        Option(
            "Maximum number of prompt tokens in a step; up to 512 by default.",
            ("--batch-size", "-b"),
            low=1,
        ),
    ] = None
    request_seconds: Annotated[
        float, Option("Maximum duration of a request in seconds.", above=0)
    ] = 3600.0
    drain: Annotated[
        float, Option("Seconds for running requests to end after SIGTERM or Ctrl-C.", low=0)
    ] = 30.0
    pooling: Annotated[
        Literal["mean", "cls", "last"] | None,
        Option(
            "Pooling of embeddings: mean, cls or last; by default as in the model's file.",
            choices=("mean", "cls", "last"),
        ),
    ] = None
    preload: Annotated[
        bool,
        Option(
            "Load the first model at the start, not with the first request.",
            ("--preload/--no-preload",),
        ),
    ] = True
    slot_save_path: Annotated[
        Path | None,
        path(
            "Folder for POST /slots/{id}?action=save; each slot then has its own cache.", "FOLDER"
        ),
    ] = None
    state: Annotated[
        Path | None,
        path(
            "Folder for files, batches and stored responses, which outlive the server's process.",
            "FOLDER",
        ),
    ] = None
    prefix_cache_bytes: Annotated[
        int, size("Maximum size of cached prompts in --state's folder; 0 for none.", low=0)
    ] = 0
    alias: Annotated[
        str | None,
        text("Further names of the first model, separated by commas.", "NAMES", "--alias", "-a"),
    ] = None
    tags: Annotated[
        str | None, text("Tags of the first model in GET /v1/models, separated by commas.", "WORDS")
    ] = None
    share_prefix_cache: Annotated[
        bool, Option("Let requests with different API keys share cached prompts.")
    ] = False
    memory_limit: Annotated[
        int | None, size("Maximum size of loaded models; the least recently used are unloaded.")
    ] = None
    idle_unload: Annotated[
        float,
        Option(
            "Seconds after which an unused model is unloaded; -1: never.",
            ("--idle-unload", "--sleep-idle-seconds"),
            low=-1,
        ),
    ] = -1
    disable: Annotated[
        Sequence[str], several("Path that is not served, such as /metrics. Repeatable.", "PATH")
    ] = ()
    verbose_answers: Annotated[
        bool, Option("Let chat completions show the prompt, as with verbose: true.")
    ] = False
    media_path: Annotated[
        Path | None,
        path(
            "Read images in this folder that requests name by file URLs.",
            "FOLDER",
            "--media-path",
            "--allowed-local-media-path",
        ),
    ] = None
    log_requests: Annotated[bool, Option("Log method, path, status and time of each request.")] = (
        False
    )
    log_format: Annotated[
        Literal["text", "json"],
        Option("Form of log lines: text, or a JSON object per line.", choices=("text", "json")),
    ] = "text"
    traces: Annotated[
        bool, Option("Send traces of requests with OpenTelemetry, as the variables OTEL_* say.")
    ] = False

    def __post_init__(self) -> None:
        check_options(self)
        if self.media_path is not None and not os.path.isdir(self.media_path):
            raise InputError(
                f"{os.fspath(self.media_path)}: there is no such folder (--media-path)"
            )
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
    def idle_seconds(self) -> float:
        """Seconds after which an unused model is unloaded."""
        return self.idle_unload if self.idle_unload >= 0 else math.inf

    @property
    def hosts(self) -> tuple[str, ...]:
        """Each address to listen on."""
        return tuple(host.strip() for host in self.host.split(","))

    def all_keys(self) -> tuple[str, ...]:
        """All API keys, including those of the file. Raises: InputError for an empty file."""
        keys = list(self.api_key)
        if self.api_key_file is not None:
            keys += read_keys(self.api_key_file)
        for key in keys:
            if len(key) < SHORTEST_KEY or not key.isascii() or not key.isprintable():
                raise InputError(
                    f"an API key has {len(key)} characters; it must have at least {SHORTEST_KEY}, "
                    "all of them printable ASCII"
                )
        return tuple(keys)
