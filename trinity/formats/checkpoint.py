"""The tensors of a Hugging Face directory: one safetensors file, or several with their index.

Links that lead out of the directory are not followed (see ``directory_file``), because the
directory may be a stranger's.
"""

from __future__ import annotations

import os

from trinity.errors import FormatError, InputError
from trinity.formats.directory_file import directory_file
from trinity.formats.json_object import read_json_object
from trinity.formats.mapping import path_text
from trinity.formats.safetensors import SafeTensor, SafeTensorsFile

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_NO_FILES = ("", ".", "..")


class Checkpoint:
    """All tensors of a directory by name, or only those of its file ``single``.

    Raises InputError if the directory or a file is missing, FormatError if a file is malformed or
    the index contradicts the files.
    """

    def __init__(self, directory: str | os.PathLike[str], single: str | None = None) -> None:
        self.directory = path_text(directory)
        if not os.path.isdir(self.directory):
            raise InputError(
                f"{self.directory}: there is no such directory; give the one that contains the "
                "model's config.json"
            )
        self._files: list[SafeTensorsFile] = []
        self._owners: dict[str, SafeTensorsFile] = {}
        try:
            self._open(single)
        except BaseException:
            self.close()
            raise

    @property
    def paths(self) -> list[str]:
        """The files that hold tensors."""
        return [file.path for file in self._files]

    def names(self) -> list[str]:
        """All tensor names."""
        return list(self._owners)

    def tensor(self, name: str) -> SafeTensor:
        """Return the tensor of that name. Raises FormatError if there is none."""
        if name not in self._owners:
            raise FormatError(
                f"{self.directory}: there is no tensor {name!r}, which the model needs; the "
                "checkpoint is incomplete or of another architecture than config.json says"
            )
        return self._owners[name].tensor(name)

    def check(self) -> None:
        """Raise FormatError if a file was truncated or overwritten after it was opened."""
        for file in self._files:
            file.check()

    def close(self) -> None:
        """Release all mappings."""
        for file in self._files:
            file.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, given: str | None) -> None:
        index = directory_file(self.directory, INDEX)
        single = directory_file(self.directory, SINGLE if given is None else given)
        if os.path.lexists(index) and not os.path.lexists(single):
            self._open_shards(index, weight_map(index))
        elif os.path.lexists(single):
            file = self._add(single)
            self._owners = dict.fromkeys(file.names(), file)
        else:
            raise InputError(
                f"{self.directory}: there is neither {SINGLE} nor {INDEX}; "
                f"{_advice(self.directory)}"
            )

    def _open_shards(self, index: str, weight_map: dict[str, str]) -> None:
        missing = [
            shard
            for shard in dict.fromkeys(weight_map.values())
            if not os.path.isfile(os.path.join(self.directory, shard))
        ]
        if missing:
            raise InputError(
                f"{self.directory}: {len(missing)} of the files in {INDEX} are missing, such as "
                f"{', '.join(missing[:3])}; download the rest of the model"
            )
        for shard in dict.fromkeys(weight_map.values()):
            file = self._add(directory_file(self.directory, shard))
            for name in file.names():
                if name in self._owners:
                    raise FormatError(
                        f"{file.path}: tensor {name!r} is also in {self._owners[name].path}; "
                        "the files belong to different models: download them again"
                    )
                if name not in weight_map:
                    raise FormatError(
                        f"{file.path}: tensor {name!r} is not in {index}; the files belong to "
                        "different models: download them again"
                    )
                self._owners[name] = file
        for name, shard in weight_map.items():
            if name not in self._owners or os.path.basename(self._owners[name].path) != shard:
                raise FormatError(
                    f"{index}: tensor {name!r} should be in {shard}, but is not; the files belong "
                    "to different models: download them again"
                )

    def _add(self, path: str) -> SafeTensorsFile:
        file = SafeTensorsFile(path)
        self._files.append(file)
        return file


def weight_map(index: str) -> dict[str, str]:
    """Return each tensor's file from the index at that path. Raises FormatError."""
    value = read_json_object(index, is_config=False).get("weight_map")
    if not isinstance(value, dict) or not value:
        raise FormatError(f"{index}: weight_map is missing or not an object; download it again")
    for name, shard in value.items():
        if not isinstance(shard, str) or os.path.basename(shard) != shard or shard in _NO_FILES:
            raise FormatError(
                f"{index}: tensor {name!r} has the file {str(shard)[:80]!r}; expected the name of "
                "a file in the same folder"
            )
    return value


def _advice(directory: str) -> str:
    names = os.listdir(directory)
    if any(name.endswith(".gguf") for name in names):
        return "it contains a .gguf file, which needs no conversion"
    if any(name.endswith((".bin", ".pt", ".pth")) for name in names):
        return "PyTorch's pickle files are not supported: save the model as safetensors"
    return "download the whole model, including the weights"
