"""Requests: how they reach the engine thread, and which of their tokens each step computes."""
