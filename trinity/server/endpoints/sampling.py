"""The parameters that OpenAI's chat and text completions have in common, and their extensions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from trinity.server.endpoints.llama_parameters import LlamaParameters
from trinity.server.errors import ApiError
from trinity.server.schemas import Body

Stop = Annotated[str, Meta(min_length=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
# Names here that the engine has under another one.
ENGINE_NAMES = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty",
    "frequency_penalty", "presence_penalty", "logit_bias", "stop", "ignore_eos", "cache_prompt",
    "priority")  # fmt: skip


class StreamOptions(Body):
    """What a stream has beside the answer."""

    include_usage: bool | None = None


class Sampling(LlamaParameters):
    """How tokens are chosen and when an answer ends; what is not given, the model decides.

    ``user``, ``metadata``, ``safety_identifier`` and ``prompt_cache_key`` change nothing: nothing
    is kept of a request, and prompts are shared without a key.
    """

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=100)] | None = None
    logit_bias: dict[int, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=64)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    ignore_eos: bool | None = None
    cache_prompt: bool | None = None
    priority: Annotated[int, Meta(ge=-1000, le=1000)] | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    service_tier: Literal["auto", "default"] | None = None

    def options(self) -> dict[str, Any]:
        """GenerationOptions of what was given. Raises: ApiError."""
        given = {name: getattr(self, name) for name in ENGINE_NAMES}
        if self.seed is not None:
            given["seed"] = self.seed % 2**64
        given["max_tokens"] = self.max_tokens
        if self.n_predict is not None and self.n_predict >= 0:
            if self.max_tokens not in (None, self.n_predict):
                raise ApiError(400, "n_predict and max_tokens differ; give one", "n_predict")
            given["max_tokens"] = self.n_predict
        repeat = self.repeat_penalty
        if repeat is not None and self.repetition_penalty not in (None, repeat):
            raise ApiError(
                400, "repeat_penalty and repetition_penalty differ; give one", "repeat_penalty"
            )
        found = {name: value for name, value in given.items() if value is not None}
        return found | self.llama_options(stream=bool(self.stream)) | self.chain()
