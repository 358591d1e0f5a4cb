"""Writes stores of models in Ollama's layout: manifests and blobs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

IMAGE = "application/vnd.ollama.image."
CONFIG = {"model_format": "gguf", "model_family": "llama"}


def write_blob(root: Path, content: bytes) -> dict[str, object]:
    """The digest and the size of ``content``, which lies in the store now."""
    digest = hashlib.sha256(content).hexdigest()
    folder = root / "blobs"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"sha256-{digest}").write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}


def layer(root: Path, kind: str, content: bytes | str | object) -> dict[str, object]:
    """A layer of bytes, of text, or of what becomes JSON."""
    if not isinstance(content, bytes | str):
        content = json.dumps(content)
    raw = content if isinstance(content, bytes) else content.encode()
    return {"mediaType": IMAGE + kind, **write_blob(root, raw)}


def write_manifest(
    root: Path, name: str, layers: list[dict[str, object]], config: object = CONFIG
) -> Path:
    """The manifest of ``name``: host, namespace, model and tag with slashes between them."""
    path = root / "manifests" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            **write_blob(root, json.dumps(config).encode()),
        },
        "layers": layers,
    }
    path.write_text(json.dumps(manifest))
    return path


def write_store(root: Path, model: Path, name: str = "library/m/latest", **layers: object) -> Path:
    """A store with one model: the GGUF file ``model``, and layers by their kind."""
    found = [layer(root, "model", model.read_bytes())]
    found += [layer(root, kind, content) for kind, content in layers.items()]
    return write_manifest(root, f"registry.ollama.ai/{name}", found)
