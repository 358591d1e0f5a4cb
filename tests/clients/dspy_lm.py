"""dspy: language models through LiteLLM."""

# packages: dspy==3.4.1 numpy

from __future__ import annotations

from typing import Literal

import dspy
from rows import CHAT, EMBEDDER, SCRIPTED, SCRIPTED_URL, URL, main, row


def model(name: str = CHAT, url: str = URL) -> dspy.LM:
    return dspy.LM(f"openai/{name}", api_base=f"{url}/v1", api_key="none", max_tokens=60,
                   cache=False, num_retries=0)  # fmt: skip


class Sentiment(dspy.Signature):
    """Classify the sentiment."""

    sentence: str = dspy.InputField()
    sentiment: Literal["good", "bad"] = dspy.OutputField()


@row("LM call openai/")
def _() -> None:
    assert model()("Say hello.")[0]


@row("LM call ollama_chat/")
def _() -> None:
    lm = dspy.LM(f"ollama_chat/{CHAT}", api_base=URL, max_tokens=20, cache=False, num_retries=0)
    assert lm("Say hello.")[0]


@row("Embedder openai/")
def _() -> None:
    embedder = dspy.Embedder(f"openai/{EMBEDDER}", api_base=f"{URL}/v1", api_key="none")
    assert embedder(["one", "two"]).shape == (2, 384)


@row("Predict JSONAdapter")
def _() -> None:
    # The client asks for JSON in words alone: LiteLLM does not know whether the model has schemas.
    with dspy.context(lm=model(SCRIPTED, SCRIPTED_URL), adapter=dspy.JSONAdapter()):
        found = dspy.Predict(Sentiment)(sentence="What a fine day.").sentiment
    assert found == "good"


if __name__ == "__main__":
    main()
