"""Parameters that llama.cpp's server has for every completion, beside those of OpenAI's.

A parameter that would turn on a sampler that does not exist here is ignored and named, unless it
says that the sampler is off. The numbers that shape such a sampler have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from trinity.server.endpoints.formats import Forms
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable, Ignored
from trinity.server.schemas import Body

if TYPE_CHECKING:
    from trinity.model import Model
    from trinity.server.endpoint import Call

Off = Ignorable[Annotated[float, Meta(ge=0, le=0)] | None]
Penalty = Annotated[float, Meta(ge=-100, le=100)]
LEAST_TOP_P = 1e-9  # of top_p, where a request says 0: the best token alone
Sampler = Literal[
    "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "typical_p", "top_p", "min_p", "xtc",
    "temperature",
]  # fmt: skip
Bias = list[int | float | str | bool]
_ID = re.compile(r"-?[0-9]+")
MOST_DIGITS = 18  # of a token's id
MOST_BIASES = 10_000
MOST_SLOTS = 1024  # where there may be any number of answers
# The options that turn a sampler off which is not among those named, in the order of the samplers.
ORDER: dict[str, dict[str, Any]] = {
    "penalties": {"repetition_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0},
    "dry": {}, "top_n_sigma": {},
    "top_k": {"top_k": 0}, "typ_p": {}, "top_p": {"top_p": 1.0}, "min_p": {"min_p": 0.0},
    "xtc": {}, "temperature": {"temperature": 1.0},
}  # fmt: skip


class Lora(Body):
    """An adapter's number, and its weight."""

    id: Annotated[int, Meta(ge=0)]
    scale: float


Loras = Annotated[list[Lora], Meta(max_length=1024)]


class LlamaParameters(Forms, kw_only=True):
    """What llama.cpp's clients send with every completion.

    A temperature below 0 is 0, except in OpenAI's APIs; a ``top_k`` of -1 is off; ``n_cmpl`` is
    ``n``.

    ``id_slot`` counts where slots can be saved; else it changes nothing, for what is evaluated of a
    prompt is there for all. With ``cache_salt``, which is vLLM's, it never counts. Nor do
    ``n_discard``, for a context that is shifted always loses half, and ``backend_sampling``, for
    there is one way to sample.
    """

    model: str | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    n_cmpl: Annotated[int, Meta(ge=1, le=128)] | None = None
    n_predict: Annotated[int, Meta(ge=-2)] | None = None
    temperature: Annotated[float, Meta(le=100)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
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
    samplers: Ignorable[Annotated[list[Sampler], Meta(max_length=64)] | None] = None
    lora: Loras | None = None
    id_slot: Annotated[int, Meta(ge=-1)] | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    n_keep: Annotated[int, Meta(ge=-1)] | None = None
    n_discard: Annotated[int, Meta(ge=0)] | None = None
    backend_sampling: bool | None = None
    n_indent: Ignorable[Annotated[int, Meta(ge=0, le=0)] | None] = None
    n_cache_reuse: Ignorable[Annotated[int, Meta(ge=0, le=0)] | None] = None
    t_max_predict_ms: Ignorable[Annotated[int, Meta(ge=-1, le=0)] | None] = None
    min_keep: Ignorable[Annotated[int, Meta(ge=0, le=1)] | None] = None
    typical_p: Ignorable[Annotated[float, Meta(ge=1, le=1)] | None] = None
    top_n_sigma: Ignorable[Annotated[float, Meta(le=0)] | None] = None
    xtc_probability: Off = None
    xtc_threshold: Ignorable[float | None] = None
    dynatemp_range: Off = None
    dynatemp_exponent: Ignorable[float | None] = None
    mirostat: Ignorable[Annotated[int, Meta(ge=0, le=0)] | None] = None
    mirostat_tau: Ignorable[float | None] = None
    mirostat_eta: Ignorable[float | None] = None
    dry_multiplier: Off = None
    dry_base: Ignorable[float | None] = None
    dry_allowed_length: Ignorable[int | None] = None
    dry_penalty_last_n: Ignorable[int | None] = None
    dry_sequence_breakers: Ignorable[list[str] | None] = None
    adaptive_target: Ignorable[Annotated[float, Meta(lt=0)] | None] = None
    adaptive_decay: Ignorable[float | None] = None

    @property
    def count(self) -> int:
        """How many answers each prompt gets. Raises: ApiError."""
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
        return None if given is None else [one for one in given if one]

    def llama_options(self, ignored: Ignored, *, stream: bool) -> dict[str, Any]:
        """GenerationOptions of these, but for ``n_predict``. Raises: ApiError."""
        found: dict[str, Any] = {}
        if self.repeat_penalty is not None:
            found["repetition_penalty"] = self.repeat_penalty
        if self.repeat_last_n is not None:
            found["penalty_last_n"] = self.repeat_last_n
        if self.n_keep is not None:
            found["keep"] = None if self.n_keep < 0 else self.n_keep
        if self.lora is not None:
            found["lora"] = {one.id: one.scale for one in self.lora}
        if self.return_progress and not stream:
            ignored.add("return_progress")
        if stream and (self.return_progress or self.timings_per_token):
            found["progress"] = True
        return found

    def chain(self, ignored: Ignored) -> dict[str, Any]:
        """GenerationOptions that turn off what ``samplers`` leaves out.

        Another order than that in which they act is noted as ignored.
        """
        if self.samplers is None:
            return {}
        named = ["typ_p" if name == "typical_p" else name for name in self.samplers]
        if named != [name for name in ORDER if name in named]:
            ignored.add("samplers")
        left = (off for name, off in ORDER.items() if name not in named)
        return {name: value for off in left for name, value in off.items()}

    async def model_options(self, call: Call[Any]) -> dict[str, Any]:
        """GenerationOptions for which the model is asked: the slot, and additions to logits.

        Raises: ApiError for a slot that is not there, and a bias that is none.
        """
        found: dict[str, Any] = {}
        slot = self.id_slot if self.id_slot is not None and self.id_slot >= 0 else None
        if slot is None and not self.logit_bias:
            return found
        with await call.lease(self.model) as model:
            if slot is not None:
                check_slot(model, slot, "id_slot")
                if self.cache_salt is not None:
                    call.ignored.add("id_slot")
                elif call.service.settings.slot_save_path is not None:
                    found["slot"] = slot
            if self.logit_bias:
                found["logit_bias"] = await call.run(bias_of, model, self.logit_bias)
        return found


def check_slot(model: Model, slot: int, name: str) -> None:
    """Raises: ApiError for a slot that is not there."""
    most = model.max_sequences
    if most is not None and slot >= most:
        raise ApiError(400, f"{name} is {slot}; there are {most} slots, from 0", name)
    if slot >= MOST_SLOTS:
        raise ApiError(400, f"{name} is {slot}; it must be below {MOST_SLOTS}", name)


def bias_of(model: Model, given: list[Bias] | Mapping[str, float | bool]) -> dict[int, float]:
    """Additions to logits. Each is a pair of an id or a text and a number; false forbids.

    The names of an object are ids where they are numbers.

    Raises: ApiError.
    """
    found: dict[int, float] = {}
    pairs: Sequence[Sequence[int | float | str | bool]]
    if isinstance(given, Mapping):
        pairs = [(_id_or_text(key), value) for key, value in given.items()]
    else:
        pairs = given
    for place, pair in enumerate(pairs):
        if len(pair) != 2 or isinstance(pair[1], str) or isinstance(pair[0], bool | float):
            raise ApiError(400, "expected [token, bias]", f"logit_bias[{place}]")
        token, value = pair
        try:
            bias = float("-inf") if value is False else float(value)
        except OverflowError:
            raise ApiError(400, "the bias is too large", f"logit_bias[{place}]") from None
        if isinstance(token, str):
            for one in model.tokenize(token, add_bos=False):
                found[one] = bias
        else:
            found[int(token)] = bias
    if len(found) > MOST_BIASES:
        raise ApiError(
            400,
            f"logit_bias has {len(found)} tokens; at most {MOST_BIASES} are taken",
            "logit_bias",
        )
    return found


def _id_or_text(key: str) -> int | str:
    """A token's id if the key of an object is a number, else the text. Raises: ApiError."""
    if not _ID.fullmatch(key):
        return key
    if len(key) > MOST_DIGITS:
        raise ApiError(400, f"logit_bias has a token id of {len(key)} digits", "logit_bias")
    return int(key)
