"""Ollama's API: chat, completion, embedding, and the listing and management of models."""

from __future__ import annotations

from trinity.server.endpoints.ollama import create, embed, generate, manage, models

ENDPOINTS = (
    *generate.ENDPOINTS,
    *embed.ENDPOINTS,
    *models.ENDPOINTS,
    *manage.ENDPOINTS,
    *create.ENDPOINTS,
)
