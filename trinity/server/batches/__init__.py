"""Batches of requests: files of rows, their store and queue, and the answers."""
