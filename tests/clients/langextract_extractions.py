"""langextract: extractions by its providers for Ollama and OpenAI-compatible servers."""

# packages: langextract[openai]==1.7.1

from __future__ import annotations

from typing import Any

import langextract as lx
from langextract import factory
from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row

EXAMPLE = lx.data.ExampleData(
    text="Tom greets Ann.",
    extractions=[lx.data.Extraction(extraction_class="person", extraction_text="Tom")],
)


def extract(config: factory.ModelConfig, **more: Any) -> Any:
    return lx.extract(
        text_or_documents="Ann greets Bob.", prompt_description="List the persons.",
        examples=[EXAMPLE], config=config, show_progress=False, **more,
    )  # fmt: skip


def ollama(url: str, model: str, **more: Any) -> factory.ModelConfig:
    return factory.ModelConfig(
        model_id=model, provider="OllamaLanguageModel",
        provider_kwargs={"model_url": url, "max_output_tokens": 200, **more},
    )  # fmt: skip


def openai(url: str, model: str) -> factory.ModelConfig:
    return factory.ModelConfig(
        model_id=model, provider="OpenAILanguageModel",
        provider_kwargs={"base_url": f"{url}/v1", "api_key": "none", "max_output_tokens": 200},
    )  # fmt: skip


def found(result: Any) -> None:
    (one,) = result.extractions
    assert (one.extraction_class, one.extraction_text) == ("person", "Ann")


@row("Ollama infer")
def _() -> None:
    model = factory.create_model(ollama(URL, CHAT))
    ((one,),) = model.infer(["A person as JSON:"], max_output_tokens=30)
    assert one.output.lstrip().startswith(("{", "["))


@row("Ollama infer options")
def _() -> None:
    made = ollama(URL, CHAT, temperature=0.5, top_k=5, top_p=0.9, num_threads=2, timeout=100)
    ((one,),) = factory.create_model(made).infer(["A person as JSON:"], max_output_tokens=30)
    assert one.output


@row("OpenAI infer")
def _() -> None:
    ((one,),) = factory.create_model(openai(URL, CHAT)).infer(
        ["A person as JSON:"], max_output_tokens=30
    )
    assert one.output


@row("Ollama extract")
def _() -> None:
    found(extract(ollama(SCRIPTED_URL, SCRIPTED)))


@row("OpenAI extract")
def _() -> None:
    found(extract(openai(SCRIPTED_URL, SCRIPTED), fence_output=False, use_schema_constraints=True))


if __name__ == "__main__":
    main()
