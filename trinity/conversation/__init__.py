"""Conversations as APIs have them: messages, tools, reasoning, and the marks models write them in."""
