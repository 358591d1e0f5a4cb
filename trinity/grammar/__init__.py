"""What an answer may be: JSON of a schema, a regular expression, a grammar, a choice of texts."""
