"""PEFT's adapters: adapter_config.json and adapter_model.safetensors.

A key is "base_model.model." + the module's path in transformers + the kind of tensor. Shapes:
lora_A (r, in) and lora_B (out, r); for an embedding lora_embedding_A (r, tokens) and
lora_embedding_B (width, r). Source: PEFT's LoraLayer, get_peft_model_state_dict and ParamWrapper.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trinity.errors import FormatError, UnsupportedError
from trinity.formats.adapters.adapter import Base, Elements, LoraAdapter
from trinity.formats.adapters.modules import NamedPair, placed, tied_output
from trinity.formats.adapters.peft_config import PeftConfig, peft_config
from trinity.formats.adapters.places import EMBEDDING
from trinity.formats.safetensors import SafeTensor, SafeTensorsFile

_PREFIX = "base_model.model."
_PAIR = re.compile(r"(.+)\.lora_(embedding_)?([AB])(?(2)|\.weight)")
# Suffixes of tensors that are not pairs, and what they are.
_NO_PAIRS = (
    (r".+\.lora_magnitude_vector(\.weight)?", "DoRA"),
    (r".+\.trainable_tokens_delta", "rows that replace the embedding's (trainable tokens)"),
    (r".+\.lora_B\.bias", "a bias (lora_bias)"),
    (r".+\.bias", "a bias"),
    (r"(?!.*lora_).+\.weight", "a whole tensor that replaces the model's (modules_to_save)"),
)
# transformers 5 stores all experts' matrices as parameters of one module, in this order.
_EXPERTS = re.compile(r"(.+\.experts)((?:\.base_layer)*)")
_PARAMETERS = ("gate_up_proj", "down_proj")


def read_peft(
    path: str, config: Mapping[str, object], source: str, weights: str, base: Base
) -> LoraAdapter:
    """Read an adapter; file ``source`` contains its ``config``, file ``weights`` its tensors.

    Raises UnsupportedError if it is not made of pairs, FormatError if it is damaged or does not
    fit.
    """
    settings = peft_config(config, source)
    with SafeTensorsFile(weights) as file:
        pairs = list(_pairs(file, settings, base))
        placed_pairs = placed(base, weights, pairs)
    if settings.ties_embeddings:
        placed_pairs = tied_output(base, placed_pairs)
    return LoraAdapter(path, placed_pairs)


def _pairs(file: SafeTensorsFile, settings: PeftConfig, base: Base) -> Iterator[NamedPair]:
    halves: dict[tuple[str, bool], dict[str, SafeTensor]] = {}
    for name in file.names():
        match = _PAIR.fullmatch(name.removeprefix(_PREFIX))
        if match is not None:
            halves.setdefault((match[1], bool(match[2])), {})[match[3]] = file.tensor(name)
        elif not _is_copy(file.tensor(name), base):
            raise _refusal(name, file.path)
    modules: dict[str, tuple[str, Elements, Elements, str]] = {}
    fused = {module for module, _ in halves if _EXPERTS.fullmatch(module)}
    for (module, is_embedding), tensors in halves.items():
        source = f"{file.path}: {module[:100]!r}"
        a, b = both_halves(tensors, "A", "B")
        if a.ndim != 2 or b.ndim != 2 or len(a) != b.shape[1] or not len(a):
            raise FormatError(
                f"{source}: lora_A has the shape {a.shape} and lora_B {b.shape}; expected (r, in) "
                "and (out, r): the file is damaged"
            )
        kind = "linear"
        if is_embedding:
            kind, a = "embedding", a.T
        elif module in fused:
            kind = "experts"
            module = _parameter(module, fused, settings, base, source)
            a, b = _by_expert(a, b, base, source)
        if module in modules:
            raise FormatError(
                f"{source}: there is a second pair for the same module; the file is damaged"
            )
        modules[module] = kind, a, b, source
    ranks = {module: b.shape[-1] for module, (_, _, b, _) in modules.items()}
    scales = settings.scales(ranks)
    for module, (kind, a, b, source) in modules.items():
        yield NamedPair(module, kind, a, b, scales[module], source)  # type: ignore[arg-type]


def both_halves(tensors: Mapping[str, SafeTensor], a: str, b: str) -> tuple[Elements, Elements]:
    """Return the elements of lora_a and lora_b, which the file calls ``a`` and ``b``.

    Raises FormatError if one of them is missing, UnsupportedError for an unknown type.
    """
    if tensors.keys() != {a, b}:
        here, lacking = (a, b) if a in tensors else (b, a)
        raise FormatError(
            f"{tensors[here].source}: tensor {tensors[here].name!r} has no lora_{lacking} to pair "
            "with; the file is damaged or incomplete"
        )
    return _elements(tensors[a]), _elements(tensors[b])


def _elements(tensor: SafeTensor) -> Elements:
    """Return a tensor's elements; F64 as float32. Raises UnsupportedError for other types."""
    if tensor.dtype in ("F32", "F16", "BF16"):
        return tensor.elements()
    return tensor.all_floats()


def _is_copy(tensor: SafeTensor, base: Base) -> bool:
    """Whether the tensor is the base's own embedding or output, which PEFT saves too."""
    copied = (".embed_tokens.base_layer.weight", ".lm_head.base_layer.weight")
    if not f".{tensor.name}".endswith(copied):
        return False
    if tensor.shape != base.shapes[EMBEDDING]:
        raise UnsupportedError(
            f"{tensor.source}: tensor {tensor.name!r} has the shape {tensor.shape}, but the "
            f"model's embedding has {base.shapes[EMBEDDING]}: the adapter changes the vocabulary; "
            "merge it into its model with PEFT, and convert the result"
        )
    return True


def _refusal(name: str, source: str) -> FormatError | UnsupportedError:
    for pattern, what in _NO_PAIRS:
        if re.fullmatch(pattern, name):
            return UnsupportedError(
                f"{source}: tensor {name!r} is {what}, which is not supported; trinity applies "
                "pairs of matrices: merge the adapter into its model with PEFT, and convert the "
                "result"
            )
    return FormatError(
        f"{source}: tensor {name!r} is not part of a LoRA adapter: its name does not end in "
        ".lora_A.weight or .lora_B.weight; save the adapter with PEFT's save_pretrained"
    )


def _parameter(module: str, fused: set[str], settings: PeftConfig, base: Base, source: str) -> str:
    """Return the parameter of an experts' module that one level of PEFT's wrappers belongs to.

    Wrappers are nested; the one of the module's first parameter is innermost.
    """
    match = _EXPERTS.fullmatch(module)
    assert match is not None
    depth = match[2].count(".base_layer")
    levels = sum(
        name.removesuffix(".base_layer" * name.count(".base_layer")) == match[1] for name in fused
    )
    named = [p for p in _PARAMETERS if any(t.endswith(p) for t in settings.target_parameters)]
    if len(named) != levels:
        named = list(_PARAMETERS)
    if levels != len(named) or depth >= levels:
        raise UnsupportedError(
            f"{source}: there are {levels} pairs for the parameters of this module, but "
            f"target_parameters is {list(settings.target_parameters)!r:.80}; trinity supports "
            f"{' and '.join(_PARAMETERS)}"
        )
    return f"{match[1]}.{named[levels - 1 - depth]}"


def _by_expert(a: Elements, b: Elements, base: Base, source: str) -> tuple[Elements, Elements]:
    """Reshape (E * r, in) and (out, r * E) to (E, r, in) and (E, out, r)."""
    experts = base.config.experts
    count = experts.num_experts if experts is not None else 0
    if not count or len(a) % count:
        raise FormatError(
            f"{source}: lora_A has {len(a)} rows for all experts, but the model {base.path} has "
            f"{count} experts: the adapter belongs to another model"
        )
    rank = len(a) // count
    parts = b.reshape(len(b), rank, count).transpose(2, 0, 1)
    return a.reshape(count, rank, a.shape[1]), parts
