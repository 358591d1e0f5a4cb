"""Bytes of connections to requests and back: limits of number, size and pace."""
