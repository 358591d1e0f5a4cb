"""Map a model file read-only, with errors that say what to do."""

from __future__ import annotations

import mmap
import os
import stat
from contextlib import suppress

from trinity.errors import FormatError, InputError
from trinity.formats.foreign import WHOLE_DIRECTORY
from trinity.formats.mapping_table import TableMapping
from trinity.formats.other_models import other_model


def path_text(path: str | os.PathLike[str]) -> str:
    """Return ``path`` unchanged (``~`` is not expanded).

    Raises InputError if it cannot name a file.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        raise InputError(f"{path!r:.80} ({type(path).__name__}) is not a path; give a text")
    text = os.fsdecode(path)
    if not text or "\0" in text:
        raise InputError(f"{text!r} is not the name of a file; give a path")
    return text


class MappedFile:
    """One open model file.

    Raises InputError if the path cannot be opened, FormatError if it is not a regular file or is
    empty.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._place = os.path.abspath(path)
        # Only the mapping keeps the descriptor: Ctrl-C could leak one of our own.
        mapping, self._state = _map(path)
        self._mapping: TableMapping | None = mapping

    def buffer(self) -> mmap.mmap:
        """The mapping. Raises InputError after close, otherwise as ``check``."""
        if self._mapping is None:
            raise InputError(f"{self.path}: the file is closed; open it again to read more")
        self.check()
        return self._mapping

    def check(self) -> None:
        """Raise FormatError if the file is not what was opened; after close do nothing.

        If a file is overwritten or truncated in place, its mapping changes. Access to a page that
        no longer exists kills the process, or reads zeros if trinity_kernels' bus_errors.py has
        installed its handler.
        """
        mapping = self._mapping
        if mapping is None:
            return
        size = mapping.size()
        if size < len(mapping):
            raise FormatError(
                f"{self.path}: the file was truncated from {len(mapping)} to {size} bytes while "
                "it was open; restore it and open it again"
            )
        if mapping.failed:
            raise FormatError(
                f"{self.path}: a part of the file could not be read: it was truncated while it "
                "was open, or the disk failed; restore it and open it again"
            )
        try:
            state = os.stat(self._place)
        except OSError:  # renamed or removed, which does not affect the mapping
            return
        if os.path.samestat(state, self._state) and state.st_mtime_ns != self._state.st_mtime_ns:
            raise FormatError(
                f"{self.path}: the file was written to while it was open; open it again, and "
                "replace files by renaming a new one"
            )

    def close(self) -> None:
        """Close the mapping; the last array that views it unmaps it."""
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            with suppress(BufferError):  # the pages stay for tensors that are still in use
                mapping.close()


def _map(path: str) -> tuple[TableMapping, os.stat_result]:
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise FormatError(directory_refusal(path))
        if not stat.S_ISREG(mode):  # opening a pipe would block
            raise FormatError(
                f"{path}: this is a pipe or device, not a regular file; give a file on a disk"
            )
        with open(path, "rb") as file:
            state = os.fstat(file.fileno())
            if state.st_size == 0:
                raise FormatError(f"{path}: the file is empty; download or convert it again")
            mapping = TableMapping(file.fileno(), 0, access=mmap.ACCESS_READ)
            # A file that is read into memory now gets large pages if the file system has them;
            # scattered small ones cost up to a third of the read bandwidth.
            with suppress(AttributeError, OSError):
                mapping.madvise(mmap.MADV_HUGEPAGE)
            return mapping, state
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; check the path") from None
    except PermissionError:
        raise InputError(f"{path}: no permission to read it; check its owner and mode") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be opened: {reason}") from error


def read_whole(path: str, longest: int) -> bytes:
    """Return the bytes of a small file.

    Raises as MappedFile, and FormatError for a file of more than ``longest`` bytes.
    """
    file = MappedFile(path)
    try:
        raw = bytes(file.buffer()[: longest + 1])
    finally:
        file.close()
    if len(raw) > longest:
        raise FormatError(f"{path}: the file exceeds {longest} bytes, the limit for such files")
    return raw


def directory_refusal(path: str) -> str:
    """Describe a directory that was given instead of a file or model, and what to do."""
    names = sorted(os.listdir(path))
    models = [name for name in names if name.endswith(".gguf")]
    if models:
        shown = ", ".join(models[:5]) + (", ..." if len(models) > 5 else "")
        return f"{path}: this is a folder; give one of its files: {shown}"
    if "config.json" in names:
        state = "that looks like a Hugging Face model"
    elif any(name.endswith(".safetensors") for name in names):
        state = "with a part of a Hugging Face model, but no config.json"
    elif "model_index.json" in names:
        return f"{path}: this is a folder of diffusers: {other_model({}, class_name='diffusion')}"
    else:
        state = "with no config.json and no .gguf file"
    return f"{path}: this is a folder {state}; {WHOLE_DIRECTORY}"
