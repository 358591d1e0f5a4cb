"""The parameters that OpenAI's chat and text completions have in common, and their extensions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from trinity.server.endpoints.llama_parameters import LlamaParameters
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable, Ignored
from trinity.server.schemas import Body

# Names here that the engine has, too.
ENGINE_NAMES = ("repetition_penalty", "priority")


class StreamOptions(Body):
    """What a stream has beside the answer.

    ``continuous_usage_stats`` is vLLM's: with ``include_usage``, every chunk has the usage so far.
    """

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Sampling(LlamaParameters):
    """How tokens are chosen and when an answer ends; what is not given, the model decides.

    ``user``, ``metadata``, ``safety_identifier`` and ``prompt_cache_key`` change nothing: nothing
    is kept of a request, and prompts are shared without a key. ``stop_token_ids``, ``min_tokens``,
    ``skip_special_tokens`` and ``include_stop_str_in_output`` are vLLM's.
    """

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=-1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None  # as OpenAI has it
    repetition_penalty: Annotated[float, Meta(gt=0, le=100)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    priority: Annotated[int, Meta(ge=-1000, le=1000)] | None = None
    stop_token_ids: Annotated[list[Annotated[int, Meta(ge=0)]], Meta(max_length=1024)] | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    user: Ignorable[str | None] = None
    metadata: Ignorable[dict[str, str] | None] = None
    safety_identifier: Ignorable[str | None] = None
    prompt_cache_key: Ignorable[str | None] = None
    service_tier: Ignorable[Literal["auto", "default"] | None] = None

    @property
    def final_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        """Whether every chunk of a stream has the usage so far."""
        return self.final_usage and bool(self.stream_options.continuous_usage_stats)  # type: ignore[union-attr]

    def stop_shown(self, stop: str | None) -> str:
        """What the stop string that ended an answer adds to its text."""
        return stop if stop and self.include_stop_str_in_output else ""

    def options(self, ignored: Ignored) -> dict[str, Any]:
        """GenerationOptions of what was given. Raises: ApiError."""
        given = {name: getattr(self, name) for name in ENGINE_NAMES} | self.draw_options()
        if self.seed is not None:
            given["seed"] = self.seed % 2**64
        given["stop_tokens"] = self.stop_token_ids
        given["min_tokens"] = self.min_tokens
        given["skip_special"] = self.skip_special_tokens
        repeat = self.repeat_penalty
        if repeat is not None and self.repetition_penalty not in (None, repeat):
            raise ApiError(
                400, "repeat_penalty and repetition_penalty differ; give one", "repeat_penalty"
            )
        found = {name: value for name, value in given.items() if value is not None}
        found |= self._most()
        return found | self.llama_options(ignored, stream=bool(self.stream)) | self.chain(ignored)

    def _most(self) -> dict[str, Any]:
        """The most tokens, where one of the two names says it; -1 is no limit."""
        given = [one for one in (self.max_tokens, self.n_predict) if one is not None]
        if not given:
            return {}
        if len(given) == 2 and given[0] != given[1]:
            raise ApiError(400, "n_predict and max_tokens differ; give one", "n_predict")
        return {"max_tokens": None if given[0] < 0 else given[0]}
