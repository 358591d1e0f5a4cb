"""A model in Hugging Face's format as a WeightProvider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from statistics import median

import numpy as np

from trinity.config import ModelConfig
from trinity.errors import FormatError, InputError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.configuration import config_from_metadata
from trinity.formats.defaults import Defaults
from trinity.formats.huggingface.canonical import CanonicalTensors
from trinity.formats.huggingface.config import class_name_of
from trinity.formats.huggingface.files import CONFIG
from trinity.formats.huggingface.hf_model import HFModel
from trinity.formats.huggingface.layer_numbers import number_keys
from trinity.formats.huggingface.logit_score import logit_score_tensors
from trinity.formats.huggingface.metadata import beyond_gguf, drafting_keys
from trinity.formats.huggingface.packed.methods import logical_checkpoint
from trinity.formats.huggingface.packed.mlx import is_packed
from trinity.formats.huggingface.sentence_transformers import dense_keys, dense_tensors
from trinity.formats.huggingface.tensors import other_networks
from trinity.formats.provider import Tensor
from trinity.formats.ternary_tensor import TernaryTensor
from trinity.providers.huggingface_description import HuggingFaceDescription
from trinity.providers.huggingface_tensors import hf_tensors, matrix_columns

# With a scale near 1 / sqrt(inputs), which is 0.02 for 2,560 inputs, a ternary layer's outputs are
# about as large as its inputs. The largest scale of published models is near 2. A much larger one
# is probably inverted: 0.02 becomes 50.
LARGEST_USUAL_SCALE = 8.0


class HuggingFaceProvider:
    """An open model in Hugging Face's format.

    ``files`` maps the names of config.json and the tokenizer's files to paths (see
    ``formats/huggingface/files.py``); ``name`` is the model's. The checkpoint is closed with the
    provider. ``weight_scale`` says whether packed ternary weights "multiply" or "divide" by their
    weight_scale, if config.json is wrong about it.

    Everything but the weights and the tokenizer is checked: raises FormatError, ConfigError or
    UnsupportedError for a model that is damaged, contradicts itself or is not supported, InputError
    if config.json is missing.
    """

    def __init__(
        self,
        path: str,
        files: Mapping[str, str],
        checkpoint: Checkpoint,
        *,
        name: str,
        weight_scale: str | None = None,
    ) -> None:
        self.path = path
        self._files = files
        self._checkpoint = checkpoint
        self._description = HuggingFaceDescription(path, files, name=name)
        self._hf = self._description.described
        family = self._hf.family
        if not family.ties or (family.mlx_head and is_packed(checkpoint)):
            self._hf = replace(self._hf, tied=None)  # the tensor itself decides
        ternary = self._hf.ternary
        if weight_scale is not None:
            if ternary is None or not ternary.packed:
                raise InputError(
                    "weight_scale is for packed ternary weights, which this model does not have"
                )
            ternary = replace(ternary, divides=weight_scale == "divide")
        self._ternary = ternary
        columns = partial(matrix_columns, self._hf, checkpoint)
        logical = logical_checkpoint(checkpoint, self._hf.values, columns)
        self._packing_notes = logical.notes
        needed = hf_tensors(self._hf, logical)
        needed += logit_score_tensors(files, self._hf, needed)
        # GGUF permutes the rows of Q and K of these classes; here they are in their own order.
        self.rope_interleaved = not any(tensor.permuted_heads for tensor in needed)
        self._tensors = CanonicalTensors(needed, ternary, logical)
        self._description.add(number_keys(self._hf, logical))
        if any(".nextn." in tensor.name for tensor in needed):
            self._description.add(drafting_keys(self._description.model))
        self._factors = {
            name: Tensor(name, values.shape, "F32", values.view(np.uint8), files[CONFIG])
            for name, values in self._hf.rope_factors().items()
        }
        dense = dense_tensors(files)
        self._factors |= dense
        self._description.add(
            {
                f"{self._description.model['general.architecture']}.{key}": value
                for key, value in dense_keys(files, dense).items()
            }
        )
        self._shapes = {**self._tensors.shapes, **{n: t.shape for n, t in self._factors.items()}}

    @property
    def paths(self) -> list[str]:
        """The paths of the files with weights, then of the others."""
        return [*self._checkpoint.paths, *self._files.values()]

    @property
    def files(self) -> Mapping[str, str]:
        """The paths of the files without weights, by name."""
        return self._files

    @property
    def checkpoint(self) -> Checkpoint:
        """All tensors of the files, those of other networks included."""
        return self._checkpoint

    @property
    def described(self) -> HFModel:
        """The model as its config.json describes it."""
        return self._hf

    @property
    def notes(self) -> list[str]:
        """Notes on parts of the model that are ignored or look wrong."""
        return [*filter(None, (self.left_out,)), *self.weight_notes]

    @property
    def left_out(self) -> str:
        """A note on networks other than the language model; "" if there are none."""
        if not other_networks(self._hf):
            return ""
        return (
            f"only the text model of {class_name_of(self._hf.values)} is read; the parts for "
            "images and sound are ignored"
        )

    @property
    def weight_notes(self) -> list[str]:
        """Notes on the weights."""
        return [*self._packing_notes, *self._inverted_scales()]

    @property
    def copied_bytes(self) -> int:
        """Bytes of weights that have to be copied into memory; see CanonicalTensors."""
        return self._tensors.copied_bytes()

    @property
    def metadata(self) -> Mapping[str, object]:
        """The model's keys and its tokenizer's; the tokenizer is read when one is needed."""
        return self._description.metadata

    @cached_property
    def config(self) -> ModelConfig:
        """The configuration. Raises ConfigError or UnsupportedError if the keys contain none."""
        config = config_from_metadata(
            self._description.model,
            self._shapes,
            source=self.path,
            num_tokens=self._hf.config.vocab_size,
        )
        return beyond_gguf(config, self._hf)

    @cached_property
    def defaults(self) -> Defaults:
        """The end tokens and sampling options of generation_config.json."""
        return self._description.defaults

    def tensor_names(self) -> list[str]:
        """Return all tensor names: embedding, layers in order, output, then RoPE factors."""
        return list(self._shapes)

    def tensor(self, name: str) -> Tensor:
        """Return the tensor of that name.

        Raises FormatError if there is none or the file was truncated.
        """
        if name in self._factors:
            return self._factors[name]
        if name not in self._shapes:
            raise FormatError(f"{self.path}: there is no tensor {name!r}")
        return self._tensors.tensor(name)

    def check(self) -> None:
        """Raise FormatError if a file was truncated or overwritten after it was opened."""
        self._checkpoint.check()

    def close(self) -> None:
        """Release the mappings; tensors given out must no longer be used."""
        self._checkpoint.close()

    def _inverted_scales(self) -> list[str]:
        if self._ternary is None:
            return []
        tensors = (self._tensors.tensor(name) for name in self._tensors.shapes)
        scales = [
            float(tensor.known_scale)
            for tensor in tensors
            if isinstance(tensor, TernaryTensor) and tensor.known_scale is not None
        ]
        if not scales or median(scales) <= LARGEST_USUAL_SCALE:
            return []
        used, other = ("divide", "multiply") if self._ternary.divides else ("multiply", "divide")
        return [
            f"the layers' scales look inverted: half of them exceed {median(scales):.3g}, but "
            f"usual scales are below {LARGEST_USUAL_SCALE:g}; by config.json, weight_scale was "
            f"taken to {used}; if the model generates nonsense, give --weight-scale {other}"
        ]
