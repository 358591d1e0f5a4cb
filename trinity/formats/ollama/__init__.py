"""Ollama's store: names, manifests, blobs. Describes Ollama 0.33.

`name` parses a model's name, `store` finds its manifest, `manifest` and `blob` read it and its
files, `params` translates options, and `model` combines them. `own_store` writes to trinity's own
store, which has the same layout. Nothing is opened before its location is checked: a digest must be
a SHA-256, and its blob must be in the store.
"""
