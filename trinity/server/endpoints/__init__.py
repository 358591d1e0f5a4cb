"""The table of all endpoints. A new API is a file with ENDPOINTS, and a name here."""

from __future__ import annotations

from trinity.server.endpoint import Endpoint
from trinity.server.endpoints import (
    anthropic,
    batches,
    chat_completions,
    completions,
    embeddings,
    files,
    health,
    llama_completion,
    llama_infill,
    llama_lora,
    llama_props,
    llama_slots,
    llama_streams,
    metrics,
    models,
    ollama,
    openapi,
    page,
    rerank,
    responses,
    tokens,
    transcriptions,
)

ENDPOINTS: tuple[Endpoint, ...] = (
    *health.ENDPOINTS,
    *chat_completions.ENDPOINTS,
    *responses.ENDPOINTS,
    *anthropic.ENDPOINTS,
    *embeddings.ENDPOINTS,
    *rerank.ENDPOINTS,
    *transcriptions.ENDPOINTS,
    *files.ENDPOINTS,
    *batches.ENDPOINTS,
    *ollama.ENDPOINTS,
    *completions.ENDPOINTS,
    *models.ENDPOINTS,
    *tokens.ENDPOINTS,
    *llama_completion.ENDPOINTS,
    *llama_infill.ENDPOINTS,
    *llama_lora.ENDPOINTS,
    *llama_props.ENDPOINTS,
    *llama_slots.ENDPOINTS,
    *llama_streams.ENDPOINTS,
    *metrics.ENDPOINTS,
    *openapi.ENDPOINTS,
    *page.ENDPOINTS,
)
