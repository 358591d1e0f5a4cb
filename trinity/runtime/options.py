"""The keyword arguments of all generating methods, checked and grouped."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypedDict, Unpack, cast

from trinity.errors import InputError
from trinity.options.adapter_files import LARGEST_SCALE
from trinity.options.checks import check_integer, check_number
from trinity.options.keywords import unknown_keyword
from trinity.options.option import API_ONLY, Declared, Option, check_options, declared
from trinity.runtime.limits import GenerationLimits
from trinity.runtime.pages.page import Domain
from trinity.runtime.sampling.active_samplers import has_dry, keeps_state
from trinity.runtime.sampling.guide import Grammar, check_grammar
from trinity.runtime.sampling.sampling_params import SamplingParams

if TYPE_CHECKING:
    from trinity.formats.defaults import ChatTemplate


class Cancel(Protocol):
    """An object that tells whether to stop, such as a ``threading.Event``."""

    def is_set(self) -> bool:
        """Whether to stop now."""
        ...


class GenerationOptions(TypedDict, total=False):
    """Options of every method that generates; all are optional.

    ``SamplingParams`` explains the first group, ``GenerationLimits`` the second.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    penalty_last_n: int
    logit_bias: Mapping[int, float] | None
    seed: int | None
    samplers: Sequence[str]
    typical_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    dynatemp_range: float
    dynatemp_exponent: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: Sequence[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    adaptive_target: float
    adaptive_decay: float

    max_tokens: int | None
    stop: str | Sequence[str] | None
    stop_tokens: Collection[int] | None
    min_tokens: int
    ignore_eos: bool
    logprobs: int | None
    processed_logprobs: bool
    context_shift: bool
    keep: int | None

    grammar: Grammar | None
    """Constrains the text: JSON of a schema, a regular expression, a choice or a grammar.

    The response ends with "stop" when the grammar is complete; with any other finish reason it is
    the beginning of a complete one.
    """
    add_bos: bool
    """Add BOS if the model's file asks for it (default True)."""
    parse_special: bool
    """Read text such as "<|eot_id|>" in the prompt as special tokens (default False)."""
    cache_prompt: bool
    """Share keys and values with requests with the same first tokens (default True).

    With False, equal calls do exactly the same arithmetic. This matters for quantized types whose
    prefill and decode round differently.
    """
    skip_special: bool
    """Omit special tokens from the text (default True).

    ``trinity.conversation`` needs False, because models write tool calls and reasoning between
    special tokens.
    """
    speculative: bool | int
    """Speculate repeated text (default True); a number limits the tokens per step.

    It changes the speed but not the text.
    """
    priority: int
    """Lower values are scheduled first (default 0).

    Requests with 1000 or more pause while any other request runs.
    """
    lora: Mapping[int, float] | None
    """Scales of adapters by number, in the order of loading; 0 for others (default: as loaded)."""
    slot: int | None
    """Share cached prefixes only with requests of this slot (default: no slot)."""
    cache_salt: str
    """Share cached prefixes only with requests of the same salt (default "")."""
    progress: bool
    """Report timings in every chunk, and progress during prefill (default False)."""
    resumed: Sequence[int] | None
    """Tokens of an interrupted response to the same request, to continue from (default None).

    The text begins with theirs. Needs a seed or temperature 0, and no ``logprobs``.
    """
    cancel: Cancel | None
    """Ends the generation before the next token, or the next part of the prompt, once set.

    The engine thread calls its ``is_set``.
    """


PROPOSALS = 15
LONG_STOP = 256  # characters of stop strings from which preparing them takes time
SAMPLING = frozenset(option.name for option in declared(SamplingParams))
LIMITS = frozenset(option.name for option in declared(GenerationLimits))


class PromptOptions(TypedDict, total=False):
    """How a conversation becomes a prompt."""

    template: str | ChatTemplate | None
    """Replaces the chat template of the model's file."""
    tools: Sequence[Mapping[str, Any]] | None
    """Tools that may be called, in the form of OpenAI's API."""
    variables: Mapping[str, object] | None
    """Further variables of the template, such as enable_thinking."""


class ChatOptions(PromptOptions, GenerationOptions, total=False):
    """All options of a chat."""


def split_options(options: ChatOptions) -> tuple[PromptOptions, GenerationOptions]:
    """The options of the prompt, and those of the generation."""
    of_prompt = PromptOptions.__annotations__.keys()
    prompt = {name: value for name, value in options.items() if name in of_prompt}
    rest = {name: value for name, value in options.items() if name not in of_prompt}
    return cast(PromptOptions, prompt), cast(GenerationOptions, rest)


def check_speculative(name: str, value: object) -> bool | int:
    """Return a bool, or the maximum number of tokens to speculate. Raises InputError."""
    return value if isinstance(value, bool) else check_integer(name, value, low=0)


def check_lora(name: str, value: object) -> Mapping[int, float]:
    """Return the scales of adapters by index. Raises InputError."""
    if not isinstance(value, Mapping):
        raise InputError(
            f"{name} is {value!r:.80} ({type(value).__name__}); it must be a dict that maps the "
            "index of an adapter, from 0, to its scale, such as {0: 0.5}"
        )
    return {
        check_integer(f"a key of {name}", number, low=0): check_number(
            f"{name}[{number!r:.20}]", weight, -LARGEST_SCALE, LARGEST_SCALE
        )
        for number, weight in value.items()
    }


def check_tokens(name: str, value: object) -> list[int] | None:
    """Return token ids as a list, or None. Raises InputError."""
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError(f"{name} is {value!r:.40} ({type(value).__name__}); it must be token ids")
    return [check_integer(f"one of {name}", token, low=0) for token in value]


@dataclass(frozen=True, slots=True)
class Request:
    """The checked options of a request."""

    sampling: SamplingParams
    limits: GenerationLimits
    grammar: Annotated[
        Grammar | None,
        Option(
            "Grammar of the text: a JSON schema, a regular expression, a choice or a grammar.",
            API_ONLY,
            check=check_grammar,
            values="a trinity.Grammar",
        ),
    ] = None
    add_bos: Annotated[
        bool,
        Option(
            "Add the BOS token before the prompt if the model's file asks for it.",
            ("--bos/--no-bos",),
        ),
    ] = True
    parse_special: Annotated[
        bool, Option("Read special tokens written in the prompt as tokens.")
    ] = False
    cache_prompt: Annotated[
        bool, Option("Reuse the KV cache of an earlier prompt with the same prefix.", API_ONLY)
    ] = True
    skip_special: Annotated[bool, Option("Omit special tokens from the text.", API_ONLY)] = True
    speculative: Annotated[
        bool | int,
        Option(
            "Speculate tokens of repetitive text: faster, with the same text.",
            ("--speculate/--no-speculate",),
            check=check_speculative,
            values="True, False, or the most tokens to speculate at once",
        ),
    ] = True
    priority: Annotated[
        int,
        Option(
            "Lower values are scheduled first; requests with 1000 or more are paused while any "
            "other request runs.",
            API_ONLY,
        ),
    ] = 0
    lora: Annotated[
        Mapping[int, float] | None,
        Option(
            "Weights of adapters by index; 0 for others; as loaded if not given.",
            API_ONLY,
            check=check_lora,
            values="a dict of indices and weights",
        ),
    ] = None
    slot: Annotated[
        int | None,
        Option(
            "Slot id; requests share cached prefixes only within the same slot.", API_ONLY, low=0
        ),
    ] = None
    cache_salt: Annotated[
        str,
        Option(
            "Requests share cached prompts only with requests of the same salt.",
            API_ONLY,
            values="text",
        ),
    ] = ""
    progress: Annotated[
        bool, Option("Report timings with every chunk, and chunks during prefill.", API_ONLY)
    ] = False
    resumed: Annotated[
        Sequence[int] | None,
        Option(
            "Token ids of an interrupted response to continue from.",
            API_ONLY,
            check=check_tokens,
            values="token ids",
        ),
    ] = None
    cancel: Annotated[
        Cancel | None,
        Option("Ends generation once it is set.", API_ONLY, values="anything with is_set()"),
    ] = None

    def __post_init__(self) -> None:
        check_options(self)
        if self.resumed and self.limits.logprobs is not None:
            raise InputError(
                "resumed cannot be used with logprobs: those of the earlier tokens are lost",
                "resumed",
            )
        if self.resumed and keeps_state(self.sampling):
            raise InputError(
                "resumed cannot be used with mirostat, xtc or adaptive_p: what they remember of "
                "the earlier tokens is lost",
                "resumed",
            )

    @property
    def domain(self) -> Domain:
        """The domain of texts that the request shares KV pages with."""
        return Domain(self.slot, self.cache_salt)

    @property
    def proposals(self) -> int:
        """The maximum number of tokens to speculate at once."""
        return PROPOSALS if self.speculative is True else int(self.speculative)

    @property
    def takes_time(self) -> bool:
        """Whether preparing the request takes too long for an event loop.

        Grammars are compiled, many stop strings become an automaton, and the vocabulary is
        searched for DRY's breakers.
        """
        many_stops = sum(map(len, self.limits.stop)) > LONG_STOP
        return self.grammar is not None or many_stops or has_dry(self.sampling)

    def sample(self, number: int) -> Request:
        """The request for completion ``number`` of several; it uses seed + ``number``."""
        seed = self.sampling.seed
        if seed is None:
            return self
        return replace(self, sampling=replace(self.sampling, seed=seed + number))

    @classmethod
    def of(cls, **options: Unpack[GenerationOptions]) -> Request:
        """Check keyword arguments. Raises: TypeError for an unknown name, InputError for a bad
        value.
        """
        unknown = options.keys() - GenerationOptions.__annotations__.keys()
        if unknown:
            raise unknown_keyword(unknown, GenerationOptions.__annotations__)
        rest = options.keys() - SAMPLING - LIMITS
        given: dict[str, object] = {**options}
        return cls(
            SamplingParams(**{k: v for k, v in given.items() if k in SAMPLING}),  # type: ignore[arg-type]
            GenerationLimits(**{k: v for k, v in given.items() if k in LIMITS}),  # type: ignore[arg-type]
            **{k: v for k, v in given.items() if k in rest},  # type: ignore[arg-type]
        )


def generation_options() -> tuple[Declared, ...]:
    """The type of every name in ``GenerationOptions``."""
    return declared(GenerationLimits) + declared(SamplingParams) + declared(Request)
