"""The forms in which models write calls of tools, a file for each."""

from __future__ import annotations

from functools import lru_cache

from trinity.conversation.dialects.apertus import APERTUS
from trinity.conversation.dialects.deepseek import DeepSeek
from trinity.conversation.dialects.dialect import Dialect
from trinity.conversation.dialects.functionary import Functionary
from trinity.conversation.dialects.gemma import FUNCTION_GEMMA, GEMMA
from trinity.conversation.dialects.general import General
from trinity.conversation.dialects.glm import Glm, LongCat
from trinity.conversation.dialects.harmony import Harmony
from trinity.conversation.dialects.hermes import Ernie, Hermes, LongCatJson
from trinity.conversation.dialects.hunyuan import Hunyuan
from trinity.conversation.dialects.kimi import Kimi, Solar
from trinity.conversation.dialects.kimi_sections import KimiSections
from trinity.conversation.dialects.lfm import Lfm, Olmo
from trinity.conversation.dialects.llama import Llama
from trinity.conversation.dialects.marked import (
    APRIEL,
    COMMAND,
    GIGACHAT,
    GIGACHAT_3,
    GRANITE,
    MINIMAX_M1,
    NEMOTRON,
    PHI,
)
from trinity.conversation.dialects.minicpm import MiniCPM
from trinity.conversation.dialects.minimax import DOTS, DSML_CALLS, DSML_TOOLS, MINIMAX, MINIMAX_M3
from trinity.conversation.dialects.mistral import MistralArguments, MistralList
from trinity.conversation.dialects.muse import MUSE
from trinity.conversation.dialects.qwen_coder import QWEN_CODER, SEED
from trinity.conversation.dialects.recipients import Recipients

GENERAL = General()
# The first that claims a template has it: those with rarer words come first.
DIALECTS: tuple[Dialect, ...] = (
    Harmony(), MistralArguments(), MistralList(), Kimi(), KimiSections(),
    DSML_CALLS, DSML_TOOLS, DeepSeek(fenced=True), DeepSeek(),
    GEMMA, FUNCTION_GEMMA, MINIMAX, MINIMAX_M3, DOTS, MUSE, SEED, QWEN_CODER, Hunyuan(), Glm(),
    LongCat(), LongCatJson(), MiniCPM(), Lfm(), Olmo(), Solar(), APERTUS, COMMAND, NEMOTRON,
    MINIMAX_M1, APRIEL, PHI, GRANITE, GIGACHAT, GIGACHAT_3, Recipients(), Functionary(),
    Ernie(), Hermes(), Llama(),
)  # fmt: skip


@lru_cache(maxsize=16)
def dialect_of(template: str) -> Dialect:
    """The dialect of a chat template; the general one if no other claims it."""
    return next((dialect for dialect in DIALECTS if dialect.claims(template)), GENERAL)
