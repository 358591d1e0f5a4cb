"""What requests of Ollama's API have in common: options, the form of answers, thinking."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from trinity.server.endpoints.messages import ObjectForm, Schema, SchemaForm
from trinity.server.endpoints.ollama.errors import known_name
from trinity.server.errors import ApiError
from trinity.server.schemas import Body
from trinity.server.service import Service
from trinity.server.structured import format_options
from trinity.server.thinking import NONE, SOME

# A length of time as Go writes it, such as 5m or 1h30m, or a number of seconds.
Duration = Annotated[str, Meta(pattern=r"^-?(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+$|^-?\d+(\.\d+)?$")]
One = Annotated[float, Meta(ge=1, le=1)]
ENGINE_NAMES = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repeat_penalty": "repetition_penalty",
    "repeat_last_n": "penalty_last_n",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "stop": "stop",
}


class Options(Body):
    """How tokens are chosen and when an answer ends; what is not given, the model decides.

    ``num_ctx`` may be as much as the model was loaded with: it then has at least that. Nothing of a
    prompt is ever dropped, so ``num_keep`` holds anyway. The rest may only say what is so.
    """

    seed: int | None = None
    num_predict: Annotated[int, Meta(ge=-2)] | None = None
    num_ctx: Annotated[int, Meta(ge=1)] | None = None
    num_keep: Annotated[int, Meta(ge=-1)] | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repeat_penalty: Annotated[float, Meta(gt=0)] | None = None
    repeat_last_n: Annotated[int, Meta(ge=-1)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: str | list[str] | None = None
    typical_p: One | None = None
    tfs_z: One | None = None
    mirostat: Literal[0] | None = None
    penalize_newline: Literal[True] | None = None
    use_mmap: Literal[True] | None = None
    use_mlock: Literal[False] | None = None
    low_vram: Literal[False] | None = None
    numa: Literal[False] | None = None
    num_gpu: Literal[0] | None = None
    main_gpu: Literal[0] | None = None

    def generation(self) -> dict[str, Any]:
        """GenerationOptions of what was given."""
        found = {
            own: getattr(self, name)
            for name, own in ENGINE_NAMES.items()
            if getattr(self, name) is not None
        }
        if self.seed is not None and self.seed >= 0:  # else a random one
            found["seed"] = self.seed
        if self.num_predict is not None and self.num_predict >= 0:  # else until the end
            found["max_tokens"] = self.num_predict
        return found


class Generating(Body, kw_only=True):
    """What requests for chats and for single answers have in common.

    A prompt that does not fit the context is refused, never cut: ``truncate`` and ``shift`` may
    only be false. A model stays loaded at least for ``keep_alive``, so that 0 is refused.
    """

    model: Annotated[str, Meta(min_length=1)]
    stream: bool | None = None
    options: Options | None = None
    format: Literal["", "json"] | dict[str, Any] | None = None
    think: bool | Literal["low", "medium", "high"] | None = None
    keep_alive: float | Duration | None = None
    truncate: Literal[False] | None = None
    shift: Literal[False] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None

    def generation(self) -> dict[str, Any]:
        """GenerationOptions of what was given. Raises: ApiError."""
        check_keep_alive(self.keep_alive)
        found = {} if self.options is None else self.options.generation()
        if self.top_logprobs and not self.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs: true", "top_logprobs")
        if self.logprobs:
            found["logprobs"] = self.top_logprobs or 0
        if not self.format:
            return found
        if isinstance(self.format, str):
            return found | format_options(ObjectForm())
        schema = SchemaForm(json_schema=Schema(name="format", schema=self.format, strict=True))
        return found | format_options(schema, "format")

    def effort(self) -> str | None:
        """How much the model thinks."""
        if isinstance(self.think, bool):
            return SOME if self.think else NONE
        return self.think

    async def name(self, service: Service) -> str:
        """The model's own name. Raises: ApiError where it has less context than is asked for."""
        name = known_name(service.models, self.model)
        wanted = None if self.options is None else self.options.num_ctx
        if wanted is not None:
            with await service.models.lease(name) as model:
                if wanted > model.context_length:
                    raise ApiError(
                        400,
                        f"options.num_ctx is {wanted}, but the model was loaded with a context of "
                        f"{model.context_length}",
                        "options.num_ctx",
                    )
        return name


def check_keep_alive(value: float | str | None) -> None:
    """Raise ApiError where a model shall be unloaded, which is done by least use alone."""
    if value is None:
        return
    text = str(value).lstrip("-")
    if not text.strip("0.smhnuµ"):
        raise ApiError(
            400, "keep_alive: models are unloaded by least use alone, so 0 means nothing",
            "keep_alive",
        )  # fmt: skip
