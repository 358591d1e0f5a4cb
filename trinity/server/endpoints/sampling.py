"""Generation parameters of OpenAI's and llama.cpp's completions, and their extensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from trinity.runtime.sampling.sampler_names import (
    MOST_BREAKERS,
    MOST_SAMPLERS,
    sampler_name,
    sampler_of_letter,
)
from trinity.server.endpoints.formats import Forms
from trinity.server.endpoints.logit_bias import MOST_BIASES, Bias, bias_of
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable, Ignored
from trinity.server.schemas import Body

if TYPE_CHECKING:
    from trinity.model import Model
    from trinity.server.endpoint import Call

# Names that the engine also uses.
ENGINE_NAMES = ("repetition_penalty", "priority")
MOST_PRIORITY = 1000  # the engine's; vLLM has no limit
REFUSED = ("allowed_token_ids", "bad_words", "use_beam_search")
# Fields of samplers; the engine's options have the same names.
SAMPLER_FIELDS = (
    "typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold", "dynatemp_range",
    "dynatemp_exponent", "mirostat", "mirostat_tau", "mirostat_eta", "dry_multiplier", "dry_base",
    "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "adaptive_target",
    "adaptive_decay",
)  # fmt: skip
Priority = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Penalty = Annotated[float, Meta(ge=-100, le=100)]
LEAST_TOP_P = 1e-9  # for a top_p of 0: only the best token
SamplerLetters = Annotated[str, Meta(max_length=MOST_SAMPLERS)]
MOST_SLOTS = 1024  # of a server without --parallel
LONGEST_BREAKERS = 65_536  # characters of the list as JSON


class Lora(Body):
    """A LoRA adapter's number, and its scale."""

    id: Annotated[int, Meta(ge=0)]
    scale: float


Loras = Annotated[list[Lora], Meta(max_length=1024)]


class LlamaParameters(Forms, kw_only=True):
    """Parameters of llama.cpp's completions, and those that OpenAI's have in common with them."""

    model: str | None = None
    stream: bool | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    n_cmpl: Annotated[int, Meta(ge=1, le=128)] | None = None  # the same as n
    n_predict: Annotated[int, Meta(ge=-2)] | None = None
    temperature: Annotated[float, Meta(le=100)] | None = None  # below 0: 0
    top_k: Annotated[int, Meta(ge=-1)] | None = None  # -1: off
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    min_p: Annotated[float, Meta(le=1)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repeat_penalty: Annotated[float, Meta(gt=0, le=100)] | None = None
    repeat_last_n: Annotated[int, Meta(ge=-1)] | None = None
    stop: str | list[str | None] | None = None
    logit_bias: (
        Annotated[list[Bias], Meta(max_length=MOST_BIASES)]
        | Annotated[dict[str, float | bool], Meta(max_length=MOST_BIASES)]
        | None
    ) = None
    ignore_eos: bool | None = None
    cache_prompt: bool | None = None
    # Names in order, or llama.cpp's letters; unknown ones are ignored.
    samplers: Annotated[list[str], Meta(max_length=MOST_SAMPLERS)] | SamplerLetters | None = None
    lora: Loras | None = None
    # Has an effect only if slots can be saved, and not with a cache_salt.
    id_slot: Annotated[int, Meta(ge=-1)] | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None  # vLLM's
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    n_keep: Annotated[int, Meta(ge=-1)] | None = None
    n_discard: Ignorable[int | None] = None  # a shift drops half
    backend_sampling: Ignorable[bool | None] = None
    n_indent: Ignorable[Annotated[int, Meta(ge=0, le=0)] | None] = None
    n_cache_reuse: Ignorable[Annotated[int, Meta(ge=0, le=0)] | None] = None
    t_max_predict_ms: Ignorable[Annotated[int, Meta(ge=-1, le=0)] | None] = None
    min_keep: Ignorable[Annotated[int, Meta(ge=0, le=1)] | None] = None
    typical_p: Annotated[float, Meta(ge=0)] | None = None  # above 1: off
    top_n_sigma: float | None = None  # below 0: off
    xtc_probability: Annotated[float, Meta(ge=0, le=1)] | None = None
    xtc_threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    dynatemp_range: float | None = None  # below 0: off
    dynatemp_exponent: Annotated[float, Meta(ge=0)] | None = None
    mirostat: Annotated[int, Meta(ge=0, le=2)] | None = None
    mirostat_tau: Annotated[float, Meta(ge=0)] | None = None
    mirostat_eta: Annotated[float, Meta(ge=0)] | None = None
    dry_multiplier: Annotated[float, Meta(ge=0)] | None = None
    dry_base: float | None = None  # below 1: the default
    dry_allowed_length: Annotated[int, Meta(ge=0)] | None = None
    dry_penalty_last_n: Annotated[int, Meta(ge=-1)] | None = None
    # A list, or its JSON with or without brackets, as text-generation-webui and TabbyAPI take it.
    dry_sequence_breakers: (
        Annotated[list[str], Meta(max_length=MOST_BREAKERS)]
        | Annotated[str, Meta(max_length=LONGEST_BREAKERS)]
        | None
    ) = None
    adaptive_target: Annotated[float, Meta(le=1)] | None = None  # below 0: off
    adaptive_decay: Annotated[float, Meta(ge=0, le=0.99)] | None = None

    @property
    def count(self) -> int:
        """The number of responses per prompt. Raises: ApiError."""
        if self.n is not None and self.n_cmpl not in (None, self.n):
            raise ApiError(400, "n and n_cmpl differ; give one", "n_cmpl")
        return self.n or self.n_cmpl or 1

    def draw_options(self) -> dict[str, Any]:
        """GenerationOptions of the parameters that have the engine's names, None if not given."""
        top_p, temperature = self.top_p, self.temperature
        return {
            "temperature": None if temperature is None else max(temperature, 0.0),
            "top_k": None if self.top_k is None else max(self.top_k, 0),
            "top_p": None if top_p is None else max(top_p, LEAST_TOP_P),
            "min_p": None if self.min_p is None else max(self.min_p, 0.0),
            "frequency_penalty": self.frequency_penalty,
            "presence_penalty": self.presence_penalty,
            "stop": self.stops(),
            "ignore_eos": self.ignore_eos,
            "cache_prompt": self.cache_prompt,
            "cache_salt": self.cache_salt,
        }

    def stops(self) -> list[str] | None:
        """The stop strings; an empty one means nothing."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop
        return None if given is None else [text for text in given if text]

    def llama_options(self, ignored: Ignored) -> dict[str, Any]:
        """Return the ``GenerationOptions`` except ``n_predict``. Raises: ApiError."""
        options: dict[str, Any] = {}
        if self.repeat_penalty is not None:
            options["repetition_penalty"] = self.repeat_penalty
        if self.repeat_last_n is not None:
            options["penalty_last_n"] = self.repeat_last_n
        if self.n_keep is not None:
            options["keep"] = None if self.n_keep < 0 else self.n_keep
        if self.lora is not None:
            options["lora"] = {adapter.id: adapter.scale for adapter in self.lora}
        if self.return_progress and not self.stream:
            ignored.add("return_progress")
        if self.stream and (self.return_progress or self.timings_per_token):
            options["progress"] = True
        return options

    def sampler_options(self, ignored: Ignored) -> dict[str, Any]:
        """Return the ``GenerationOptions`` of the samplers and their order. Raises: ApiError."""
        options = {
            name: value for name in SAMPLER_FIELDS if (value := getattr(self, name)) is not None
        }
        limits = (("typical_p", min, 1.0), ("top_n_sigma", max, -1.0), ("dynatemp_range", max, 0.0),
                  ("adaptive_target", max, -1.0))  # fmt: skip
        for name, limit, value in limits:
            if name in options:
                options[name] = limit(options[name], value)
        if options.get("dry_base", 1.0) < 1:
            del options["dry_base"]
        if isinstance(self.dry_sequence_breakers, str):
            options["dry_sequence_breakers"] = _breakers(self.dry_sequence_breakers)
        if self.samplers is not None:
            options["samplers"] = self._samplers(self.samplers, ignored)
        return options

    def _samplers(self, given: list[str] | str, ignored: Ignored) -> list[str]:
        """The samplers in order; unknown ones are noted as ignored."""
        names = [
            sampler_of_letter(part) if isinstance(given, str) else sampler_name(part)
            for part in given
        ]
        if None in names:
            ignored.add("samplers")
        return [name for name in names if name is not None]

    async def model_options(self, call: Call[Any]) -> dict[str, Any]:
        """Return the ``GenerationOptions`` that depend on the model: the slot and the logit bias.

        Raises: ApiError for a slot that does not exist, and for an invalid bias.
        """
        options: dict[str, Any] = {}
        slot = self.id_slot if self.id_slot is not None and self.id_slot >= 0 else None
        if slot is None and not self.logit_bias:
            return options
        with await call.lease(self.model) as model:
            if slot is not None:
                check_slot(model, slot, "id_slot")
                if self.cache_salt is not None:
                    call.ignored.add("id_slot")
                elif call.service.settings.slot_save_path is not None:
                    options["slot"] = slot
            if self.logit_bias:
                options["logit_bias"] = await call.run(bias_of, model, self.logit_bias)
        return options


def _breakers(text: str) -> list[str]:
    """Return the list that a text contains as JSON. Raises: ApiError."""
    try:
        listed = text if text.lstrip().startswith("[") else f"[{text}]"
        return msgspec.json.decode(listed, type=list[str])
    except msgspec.DecodeError:
        raise ApiError(
            400,
            f"dry_sequence_breakers is {text!r:.60}; it must be a list of texts, or such a list as"
            " JSON in a text",
            "dry_sequence_breakers",
        ) from None


class StreamOptions(Body):
    """Options of a stream: what it contains in addition to the response."""

    include_usage: bool | None = None
    # vLLM's: with include_usage, every chunk has the usage so far.
    continuous_usage_stats: bool | None = None


class Sampling(LlamaParameters):
    """Parameters of OpenAI's chat and text completions; the model's files give the defaults."""

    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=-1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None  # as OpenAI has it
    repetition_penalty: Annotated[float, Meta(gt=0, le=100)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    priority: Priority | None = None
    # vLLM's four:
    stop_token_ids: Annotated[list[Annotated[int, Meta(ge=0)]], Meta(max_length=1024)] | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    # vLLM's three that are refused, because without them the response would be another one:
    allowed_token_ids: Annotated[list[int], Meta(max_length=1024)] | None = None
    bad_words: Annotated[list[str], Meta(max_length=1024)] | None = None
    use_beam_search: bool | None = None
    # No effect: nothing is kept of a request, and prompts are shared without a key.
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
        """Return the text of the stop string that is shown after a response."""
        return stop if stop and self.include_stop_str_in_output else ""

    def options(self, ignored: Ignored) -> dict[str, Any]:
        """Return the ``GenerationOptions``. Raises: ApiError."""
        for name in REFUSED:
            if getattr(self, name):
                raise ApiError(
                    400, f"{name} is not supported; the response would be another one", name
                )
        given = {name: getattr(self, name) for name in ENGINE_NAMES} | self.draw_options()
        if self.priority is not None:
            given["priority"] = within(self.priority)
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
        options = {name: value for name, value in given.items() if value is not None}
        options |= self._most()
        return options | self.llama_options(ignored) | self.sampler_options(ignored)

    def _most(self) -> dict[str, Any]:
        """The most tokens, where one of the two names says it; -1 is no limit."""
        given = [count for count in (self.max_tokens, self.n_predict) if count is not None]
        if not given:
            return {}
        if len(given) == 2 and given[0] != given[1]:
            raise ApiError(400, "n_predict and max_tokens differ; give one", "n_predict")
        return {"max_tokens": None if given[0] < 0 else given[0]}


def within(priority: int) -> int:
    """The engine's priority that is nearest to a request's."""
    return min(max(priority, -MOST_PRIORITY), MOST_PRIORITY)


def check_slot(model: Model, slot: int, name: str) -> None:
    """Raises: ApiError for a slot that is not there."""
    most = model.max_sequences
    if most is not None and slot >= most:
        raise ApiError(400, f"{name} is {slot}; there are {most} slots, from 0", name)
    if slot >= MOST_SLOTS:
        raise ApiError(400, f"{name} is {slot}; it must be below {MOST_SLOTS}", name)
