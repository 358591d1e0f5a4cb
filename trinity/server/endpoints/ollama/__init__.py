"""Ollama's API: chats, completions, embeddings, the list of models and their management."""

from __future__ import annotations

from trinity.server.endpoints.ollama import embed, generate, manage, models

ENDPOINTS = (*generate.ENDPOINTS, *embed.ENDPOINTS, *models.ENDPOINTS, *manage.ENDPOINTS)
