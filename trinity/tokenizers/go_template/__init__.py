"""Go templates: the chat templates of models in Ollama's store.

A template is foreign input. It needs no confined process, because it can only do what the
evaluator does: `lexer` and `parser` turn it into a tree of limited depth, `evaluator` renders the
tree and counts steps and characters (`budget`). `template` has Ollama's rules: which values a
template gets, and how often it is rendered.
"""

from __future__ import annotations

from trinity.tokenizers.go_template.template import GoTemplate

__all__ = ["GoTemplate"]
