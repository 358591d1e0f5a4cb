"""The forms in which models write calls of tools, a file for each."""

from __future__ import annotations

from functools import lru_cache

from trinity.conversation.dialects.deepseek import DeepSeek
from trinity.conversation.dialects.dialect import Dialect
from trinity.conversation.dialects.functionary import Functionary
from trinity.conversation.dialects.gemma import FUNCTION_GEMMA, GEMMA
from trinity.conversation.dialects.general import General
from trinity.conversation.dialects.glm import Glm
from trinity.conversation.dialects.harmony import Harmony
from trinity.conversation.dialects.hermes import Hermes
from trinity.conversation.dialects.kimi import Kimi
from trinity.conversation.dialects.llama import Llama
from trinity.conversation.dialects.marked import APRIEL, COMMAND, GIGACHAT, GRANITE, NEMOTRON, PHI
from trinity.conversation.dialects.minimax import DSML_CALLS, DSML_TOOLS, MINIMAX
from trinity.conversation.dialects.mistral import MistralArguments, MistralList
from trinity.conversation.dialects.qwen_coder import QWEN_CODER, SEED

GENERAL = General()
# The first that claims a template has it: those with rarer words come first.
DIALECTS: tuple[Dialect, ...] = (
    Harmony(), MistralArguments(), MistralList(), Kimi(),
    DSML_CALLS, DSML_TOOLS, DeepSeek(fenced=True), DeepSeek(),
    GEMMA, FUNCTION_GEMMA, MINIMAX, SEED, QWEN_CODER, Glm(),
    COMMAND, NEMOTRON, APRIEL, PHI, GRANITE, GIGACHAT, Functionary(), Hermes(), Llama(),
)  # fmt: skip


@lru_cache(maxsize=16)
def dialect_of(template: str) -> Dialect:
    """The dialect of a chat template; the general one if no other claims it."""
    return next((dialect for dialect in DIALECTS if dialect.claims(template)), GENERAL)
