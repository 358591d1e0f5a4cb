"""Recognize files that are not GGUF, and advise their owner."""

from __future__ import annotations

import codecs
import struct

CONVERT = "convert the model to GGUF with llama.cpp's convert_hf_to_gguf.py"
WHOLE_DIRECTORY = "give the directory that contains the model's config.json, weights and tokenizer"

_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"FUGG", "a byte-swapped GGUF file", "use a little-endian copy of the model"),
    (b"lmgg", "an old GGML file, from before GGUF", CONVERT),
    (b"fmgg", "an old GGMF file, from before GGUF", CONVERT),
    (b"tjgg", "an old GGJT file, from before GGUF", CONVERT),
    (b"algg", "a GGLA adapter, from before GGUF", "convert the adapter's model to GGUF again"),
    (b"PK\x03\x04", "a zip archive, such as a PyTorch checkpoint", CONVERT),
    (b"\x1f\x8b", "a gzip archive", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstandard archive", "unpack it first"),
    (b"\xfd7zXZ", "an xz archive", "unpack it first"),
    (b"7z\xbc\xaf", "a 7z archive", "unpack it first"),
    (b"\x89HDF", "an HDF5 file", CONVERT),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself", "run `git lfs pull`"),
)


def looks_like(head: bytes, size: int) -> tuple[str, str]:
    """Return what a file of ``size`` bytes that begins with ``head`` seems to be, and advice."""
    for signature, description, advice in _SIGNATURES:
        if head.startswith(signature):
            return description, advice
    if len(head) >= 2 and head[0] == 0x80 and head[1] in range(1, 6):
        return "a Python pickle, such as an old PyTorch checkpoint", CONVERT
    if is_safetensors(head, size):
        return "a safetensors file", WHOLE_DIRECTORY
    if not any(head):
        return "zeros, as left by an unfinished download", "download the file again"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "a web page, as left by a failed download", "download the file again"
    if text.startswith((b"{", b"[")):
        return "a JSON file", "give the model's .gguf file instead"
    if _is_text(head):
        return "a text file", "give the model's .gguf file instead"
    return "no known model format", "give a .gguf file"


def is_safetensors(head: bytes, size: int) -> bool:
    """Whether a file of ``size`` bytes that begins with ``head`` seems to be a safetensors file."""
    return len(head) >= 9 and head[8:9] == b"{" and struct.unpack_from("<Q", head)[0] <= size


def _is_text(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return all(byte >= 32 or byte in b"\t\r\n" for byte in head)
