"""Keeps what was computed: KV pages, their pool and search, prefixes on disk, slots."""
