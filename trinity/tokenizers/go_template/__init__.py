"""Go templates: the chat templates of models in Ollama's store.

A template is foreign input. It runs in no process of its own, because it can do nothing but what
the evaluator does, step by step: `lexer` and `parser` make a tree of it, whose depth is limited;
`evaluator` renders it and counts steps and characters (`budget`). `template` has Ollama's rules of
which values it gets, and how often.
"""

from __future__ import annotations

from trinity.tokenizers.go_template.template import GoTemplate

__all__ = ["GoTemplate"]
