"""Constraints on a response: a JSON schema, a regular expression, a grammar, a choice of texts."""
