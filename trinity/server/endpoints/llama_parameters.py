"""Parameters that llama.cpp's server has for every completion, beside those of OpenAI's.

What a parameter would turn on that is not there may only be said to be off; numbers that shape it
then have no effect, and may be anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from trinity.server.errors import ApiError
from trinity.server.schemas import Body

if TYPE_CHECKING:
    from trinity.model import Model
    from trinity.server.service import Service

Off = Annotated[float, Meta(ge=0, le=0)]
Sampler = Literal[
    "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "typical_p", "top_p", "min_p", "xtc",
    "temperature",
]  # fmt: skip
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


class LlamaParameters(Body, kw_only=True):
    """What llama.cpp's clients send with every completion.

    ``id_slot`` counts where slots can be saved; else it changes nothing, for what is evaluated of a
    prompt is there for all. Nor do ``n_discard``, for a context that is shifted always loses half,
    and ``backend_sampling``, for there is one way to sample.
    """

    model: str | None = None
    n_predict: Annotated[int, Meta(ge=-1)] | None = None
    repeat_penalty: Annotated[float, Meta(gt=0, le=100)] | None = None
    repeat_last_n: Annotated[int, Meta(ge=-1)] | None = None
    samplers: list[Sampler] | None = None
    lora: list[Lora] | None = None
    id_slot: Annotated[int, Meta(ge=-1)] | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    n_keep: Annotated[int, Meta(ge=-1)] | None = None
    n_discard: Annotated[int, Meta(ge=0)] | None = None
    backend_sampling: bool | None = None
    n_indent: Annotated[int, Meta(ge=0, le=0)] | None = None
    n_cache_reuse: Annotated[int, Meta(ge=0, le=0)] | None = None
    t_max_predict_ms: Annotated[int, Meta(ge=-1, le=0)] | None = None
    min_keep: Annotated[int, Meta(ge=0, le=1)] | None = None
    typical_p: Annotated[float, Meta(ge=1, le=1)] | None = None
    top_n_sigma: Annotated[float, Meta(le=0)] | None = None
    xtc_probability: Off | None = None
    xtc_threshold: float | None = None
    dynatemp_range: Off | None = None
    dynatemp_exponent: float | None = None
    mirostat: Annotated[int, Meta(ge=0, le=0)] | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    dry_multiplier: Off | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: list[str] | None = None
    adaptive_target: Annotated[float, Meta(lt=0)] | None = None
    adaptive_decay: float | None = None

    def llama_options(self, *, stream: bool) -> dict[str, Any]:
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
            raise ApiError(400, "return_progress needs stream: true", "return_progress")
        if stream and (self.return_progress or self.timings_per_token):
            found["progress"] = True
        return found

    def chain(self) -> dict[str, Any]:
        """GenerationOptions that turn off what ``samplers`` leaves out.

        Raises: ApiError for another order than that in which they act.
        """
        if self.samplers is None:
            return {}
        named = ["typ_p" if name == "typical_p" else name for name in self.samplers]
        if named != [name for name in ORDER if name in named]:
            raise ApiError(
                400, f"samplers act once each, in this order: {', '.join(ORDER)}", "samplers"
            )
        left = (off for name, off in ORDER.items() if name not in named)
        return {name: value for off in left for name, value in off.items()}

    async def slot_options(self, service: Service) -> dict[str, Any]:
        """GenerationOptions of the slot. Raises: ApiError for a slot that is not there."""
        if self.id_slot is None or self.id_slot < 0:
            return {}
        with await service.models.lease(self.model) as model:
            check_slot(model, self.id_slot, "id_slot")
        return {} if service.settings.slot_save_path is None else {"slot": self.id_slot}


def check_slot(model: Model, slot: int, name: str) -> None:
    """Raises: ApiError for a slot that is not there."""
    most = model.max_sequences
    if most is not None and slot >= most:
        raise ApiError(400, f"{name} is {slot}; there are {most} slots, from 0", name)
    if slot >= MOST_SLOTS:
        raise ApiError(400, f"{name} is {slot}; it must be below {MOST_SLOTS}", name)
