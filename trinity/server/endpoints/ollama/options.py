"""The parts that Ollama's requests share: options, the response format, thinking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from trinity.server.endpoint import Call
from trinity.server.endpoints.formats import format_options
from trinity.server.endpoints.messages import ObjectForm, Schema, SchemaForm
from trinity.server.endpoints.ollama.names import KeepAlive, seconds_of, served_name
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable, Ignored
from trinity.server.schemas import Body
from trinity.server.thinking import NONE, SOME

if TYPE_CHECKING:
    from trinity.model import Model
    from trinity.server.models import Models
    from trinity.server.served import ModelLease

One = Ignorable[Annotated[float, Meta(ge=1, le=1)] | None]
On = Ignorable[Literal[True] | None]
Off = Ignorable[Literal[False] | None]
# As in Ollama: how many first tokens a context shift keeps, and the longest response without a
# limit, as a multiple of the context length.
NUM_KEEP, LONGEST = 4, 10
# Options of loading a model, which clients send with those of sampling.
RUNNER = ("num_ctx", "use_mmap", "use_mlock", "low_vram", "numa", "embedding_only", "num_gpu",
          "main_gpu")  # fmt: skip
ENGINE_NAMES = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repeat_penalty": "repetition_penalty",
    "repeat_last_n": "penalty_last_n",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "typical_p": "typical_p",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}


class Options(Body):
    """Sampling options and limits; missing options have the model's defaults.

    Options of Ollama's runner have no effect; they are accepted if they equal the actual settings.
    """

    seed: int | None = None
    num_predict: int | None = None
    num_ctx: int | None = None  # a loaded model with less is loaded again, if memory allows
    num_keep: int | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_k: int | None = None
    top_p: Annotated[float, Meta(ge=0)] | None = None  # above 1: 1
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repeat_penalty: Annotated[float, Meta(gt=0)] | None = None
    repeat_last_n: Annotated[int, Meta(ge=-1)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: str | list[str] | None = None
    typical_p: Annotated[float, Meta(ge=0)] | None = None  # above 1: 1
    mirostat: Annotated[int, Meta(ge=0, le=2)] | None = None
    mirostat_tau: Annotated[float, Meta(ge=0)] | None = None
    mirostat_eta: Annotated[float, Meta(ge=0)] | None = None
    tfs_z: One = None
    penalize_newline: On = None
    use_mmap: On = None
    use_mlock: Off = None
    low_vram: Off = None
    numa: Off = None
    embedding_only: Off = None
    num_gpu: Ignorable[Literal[0, -1] | None] = None
    main_gpu: Ignorable[Literal[0] | None] = None

    def generation(self) -> dict[str, Any]:
        """Return the ``GenerationOptions``."""
        options = {
            own: getattr(self, name)
            for name, own in ENGINE_NAMES.items()
            if getattr(self, name) is not None
        }
        if self.top_k is not None:
            options["top_k"] = max(self.top_k, 0)
        for name in ("top_p", "typical_p"):
            if name in options:
                options[name] = min(options[name], 1.0)
        if self.seed is not None and self.seed >= 0:  # a negative seed means a random one
            options["seed"] = self.seed
        if self.num_predict is not None and self.num_predict >= 0:  # a negative limit means none
            options["max_tokens"] = self.num_predict
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if any(stop):
            options["stop"] = [text for text in stop if text]
        return options

    def check_context(self, ignored: Ignored, model: Model) -> None:
        """Note ``num_ctx`` as ignored if it exceeds the model's context length."""
        if self.num_ctx is not None and self.num_ctx > model.context_length:
            ignored.add("options.num_ctx")


class Asking(Body, kw_only=True):
    """Fields that all requests about one model share."""

    model: str | None = None
    name: str | None = None
    keep_alive: KeepAlive | None = None  # how long the model stays loaded after the request
    options: Options | None = None

    def served(self, ignored: Ignored, models: Models) -> str:
        """Return the server's name of the model. Raises: as ``served_name`` and ``seconds_of``."""
        seconds_of(self.keep_alive)
        return served_name(ignored, models, self.model, self.name)

    @property
    def shown(self) -> str:
        """The model's name as the response repeats it."""
        return self.model or self.name or ""

    async def lease(self, call: Call[Any], name: str) -> ModelLease:
        """Lease the model of the server's ``name``, with the context of ``num_ctx`` if possible."""
        tokens = None if self.options is None else self.options.num_ctx
        lease = await call.lease(name)
        if tokens is not None and tokens > lease.model.context_length:
            lease.release()
            models = call.service.models
            await models.lengthen(models.find(call.ignored, name), tokens)
            lease = await call.lease(name)
        return lease

    def keep(self, call: Call[Any], name: str) -> None:
        """Keep the model of the server's ``name`` loaded as long as ``keep_alive`` says."""
        seconds = seconds_of(self.keep_alive)
        if seconds is not None:
            call.keep(name, seconds)


class Generating(Asking, kw_only=True):
    """Fields that the requests for chats and completions share."""

    stream: bool | None = None
    format: str | dict[str, Any] | None = None
    think: bool | Literal["low", "medium", "high", "max"] | None = None
    truncate: bool | None = None  # false: refuse a prompt that does not fit instead of cutting it
    shift: bool | None = None  # when the context is full, drop its older half and continue
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None

    @property
    def num_keep(self) -> int:
        """How many first tokens a context shift keeps; negative: the whole prompt."""
        given = None if self.options is None else self.options.num_keep
        return NUM_KEEP if given is None else given

    @property
    def cut_after(self) -> int | None:
        """See ``ChatJob.cut_after``."""
        return None if self.truncate is False else self.num_keep

    def generation(self, ignored: Ignored, context_length: int) -> dict[str, Any]:
        """Return the ``GenerationOptions``. Raises: ApiError."""
        options = {} if self.options is None else self.options.generation()
        if self.shift:
            options["context_shift"] = True
            options["keep"] = None if self.num_keep < 0 else self.num_keep
            options.setdefault("max_tokens", LONGEST * context_length)
        if self.top_logprobs and not self.logprobs:
            ignored.add("top_logprobs")
        elif self.logprobs:
            options["logprobs"] = self.top_logprobs or 0
        if not self.format:
            return options
        if isinstance(self.format, str):
            if self.format != "json":
                raise ApiError(
                    400,
                    f'format is {self.format!r:.40}; it must be "json" or a JSON schema',
                    "format",
                )
            return options | format_options(ObjectForm())
        schema = SchemaForm(json_schema=Schema(name="format", schema=self.format, strict=True))
        return options | format_options(schema, "format")

    def effort(self) -> str | None:
        """Return the reasoning effort."""
        if isinstance(self.think, bool):
            return SOME if self.think else NONE
        return self.think
