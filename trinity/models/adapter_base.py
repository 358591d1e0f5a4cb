"""The parts of a model that adapters may change."""

from __future__ import annotations

from trinity.formats.adapters import Base
from trinity.formats.adapters.places import HEAD
from trinity.formats.huggingface.family import Family
from trinity.formats.provider import WeightProvider
from trinity.formats.tensor_names import complete
from trinity.models.decoder import Decoder, token_tables
from trinity.models.expert_operations import ExpertLinear
from trinity.models.operations import HeadLinear, Linear


def base_of(decoder: Decoder, provider: WeightProvider, families: tuple[Family, ...]) -> Base:
    """The embeddings, products and output of an open model that adapters must fit.

    ``families``: the transformers classes of such models.
    """
    config = decoder.config
    shapes = {
        prefix + complete(name): shape
        for prefix, operation in decoder.operations()
        if isinstance(operation, Linear | HeadLinear | ExpertLinear)
        for name, shape in operation.weights().items()
    }
    embeddings = {
        complete(table.weight): (config.vocab_size, table.width) for table in token_tables(decoder)
    }
    shapes |= embeddings | {HEAD: (config.vocab_size, config.hidden_size)}
    return Base(
        provider.path, config, shapes, frozenset(embeddings), provider.rope_interleaved, families
    )
