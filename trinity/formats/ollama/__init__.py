"""Ollama's store: names, manifests, blobs. Facts are those of Ollama 0.33.

`name` reads a model's name, `store` finds its manifest, `manifest` and `blob` read that and what it
lists, `params` translates its options, and `model` puts them together. Where a manifest points is
checked before anything is opened: a digest is a SHA-256, and its blob lies in the store.
"""
