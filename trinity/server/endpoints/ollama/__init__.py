"""Ollama's API: /api/chat, /api/generate, /api/embed, and which models there are."""

from __future__ import annotations

from trinity.server.endpoints.ollama import embed, generate, models

ENDPOINTS = (*generate.ENDPOINTS, *embed.ENDPOINTS, *models.ENDPOINTS)
