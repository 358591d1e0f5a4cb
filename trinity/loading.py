"""Loading: from what a caller names to a model that runs."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Unpack

from trinity.errors import InputError, TrinityError, about
from trinity.model import Model
from trinity.model_defaults import checked_defaults, with_defaults
from trinity.options.adapter_files import adapter_files
from trinity.options.keywords import unknown_keyword
from trinity.options.load_options import LoadKeywords, LoadOptions
from trinity.runtime.generation import Completion
from trinity.runtime.options import GenerationOptions, Request
from trinity_kernels.uninterrupted import uninterrupted

if TYPE_CHECKING:
    from trinity.formats import WeightProvider
    from trinity.images.encoder import ImageEncoder
    from trinity.runtime.engine import CPUEngine
    from trinity.runtime.interface import Engine
    from trinity.tokenizers import Tokenizer

Path = str | os.PathLike[str]
Progress = Callable[[str], None]


def load(
    path: Path, *, progress: Callable[[str], None] | None = None, **options: Unpack[LoadKeywords]
) -> Model:
    """Load the model that ``path`` names.

    ``path`` is one of:

    - a GGUF file; of a split model, its first part,
    - a directory in Hugging Face's format, or a .safetensors file in one,
    - "hf:USER/REPO[@REVISION][:FILE-OR-QUANT]", a model on the Hugging Face hub, which is
      downloaded,
    - "ollama:NAME[:TAG]", a model in Ollama's store.

    ``progress`` receives lines such as "compiling kernels: norm rms avx2". ``LoadKeywords`` in
    ``trinity.options.load_options`` explains the options.

    Raises: TrinityError, of which ``trinity.errors`` lists the subclasses; TypeError for an
    unknown option.
    """
    unknown = options.keys() - LoadKeywords.__annotations__.keys()
    if unknown:
        raise unknown_keyword(unknown, LoadKeywords.__annotations__)
    chosen = LoadOptions(**options)
    from trinity.formats.configuration import check_is_model
    from trinity.models import check_architecture
    from trinity.providers import open_weights
    from trinity.tokenizers import tokenizer_from_metadata

    provider = open_weights(
        path,
        i2s_layout=chosen.i2s_layout,
        tl_config=chosen.tl_config,
        weight_scale=chosen.weight_scale,
        notice=progress or _silent,
    )
    source, opened = provider.path, provider
    try:
        if chosen.quantize is None:
            _override(provider, chosen)
        others = [os.fspath(name) for name, _ in adapter_files(chosen.lora)]
        if chosen.mmproj is not None:
            others.append(os.fspath(chosen.mmproj))
        if chosen.draft_model is not None:
            others.append(os.fspath(chosen.draft_model))
        with about(source, os.fspath(path), *provider.paths, *others):
            check_is_model(provider.metadata, source)
            check_architecture(provider)
            if chosen.quantize is not None:
                provider = _quantized(provider, chosen, progress or _silent)
                _override(provider, chosen)
            with _libraries():
                defaults = checked_defaults(provider)
                tokenizer = tokenizer_from_metadata(
                    provider.metadata, defaults.end_ids, source=source
                )
            chosen = with_defaults(chosen, defaults)
            # Imported late: loading kernels takes time, and a wrong path should fail before it.
            with _libraries():
                building = uninterrupted(importlib.import_module, "trinity.runtime.engine_building")
            engine = building.build_engine(provider, chosen, progress)
            try:
                if chosen.draft_model is not None:
                    _draft_with(engine, provider, chosen, progress)
                images = None
                if chosen.vision:
                    images = open_images(opened, engine, chosen.mmproj, progress or _silent)
            except BaseException:
                engine.close()
                raise
    except BaseException:
        provider.close()
        raise
    model = Model(
        engine, tokenizer, provider,
        max_sequences=chosen.max_sequences, batch_size=chosen.batch_size, images=images,
    )  # fmt: skip
    if model.embedder.lacks_pooler:
        _warn_of_pooler(provider.path, progress)
    return model


def _draft_with(
    engine: CPUEngine, provider: WeightProvider, options: LoadOptions, progress: Progress | None
) -> None:
    """Load the draft model. Raises: as ``load``; InputError for one of another vocabulary."""
    from trinity.formats.configuration import check_is_model
    from trinity.models import check_architecture
    from trinity.providers import open_weights
    from trinity.runtime.engine_building import build_engine
    from trinity.runtime.speculation.draft_model import DraftModel, check_same_vocabulary

    assert options.draft_model is not None
    path = options.draft_model
    draft = open_weights(path, notice=progress or _silent)
    try:
        with about(draft.path, os.fspath(path), *draft.paths):
            check_is_model(draft.metadata, draft.path)
            check_architecture(draft)
            check_same_vocabulary(draft, provider)
            of_draft = LoadOptions(
                threads=engine.threads,
                context_length=min(engine.context_length, draft.config.context_length),
                kv_type=options.kv_type,
                isa=engine.isa,
            )
            built = build_engine(draft, of_draft, progress, engine.team)
        engine.draft_with(DraftModel(built, draft, engine.config.vocab_size))
    except BaseException:
        draft.close()
        raise


def _override(provider: WeightProvider, options: LoadOptions) -> None:
    """Replace the keys of ``override_kv``. Raises InputError if the model has no such keys."""
    if not options.override_kv:
        return
    from trinity.formats import GGUFProvider

    if not isinstance(provider, GGUFProvider):
        raise InputError(f"{provider.path}: override_kv only applies to GGUF files", "override_kv")
    provider.override(options.override_kv)


def open_images(
    provider: WeightProvider, engine: Engine, mmproj: str | os.PathLike[str] | None,
    notice: Callable[[str], None], made: type[ImageEncoder] | None = None,
) -> ImageEncoder | None:  # fmt: skip
    """The encoder of a model's images, of class ``made``, if the model has a vision tower."""
    from trinity.formats import GGUFProvider

    own = None
    if isinstance(provider, GGUFProvider):
        own = provider.mmproj
        if mmproj is None and own is None:
            return None  # before the imports, which take time
    from trinity.images.encoder import ImageEncoder
    from trinity.images.opening import open_encoder

    return open_encoder(provider, engine, mmproj, own, notice, made or ImageEncoder)


def _warn_of_pooler(path: str, progress: Callable[[str], None] | None) -> None:
    """Warn if a BERT reranker lacks the layer before its classifier, which converters omit."""
    message = (
        f"{path}: there is a classifier (cls.output.weight) without the layer before it "
        "(cls.weight), which converters to GGUF omit from BERT rerankers: scores may "
        "order texts wrongly; use a reranker of another family, such as bge-reranker"
    )
    if progress:
        progress(f"warning: {message}")
    else:
        warnings.warn(message, RuntimeWarning, stacklevel=3)


@contextmanager
def _libraries() -> Iterator[None]:
    """Convert errors of loading libraries to a TrinityError."""
    try:
        yield
    except (ImportError, OSError, MemoryError) as error:
        raise TrinityError(
            f"a library cannot be loaded ({str(error) or 'out of memory'}): install trinity's "
            "requirements again, or give the process more memory (ulimit -v)"
        ) from error


def generate(
    path_or_model: Path | Model, prompt: str | Sequence[int], **options: Unpack[GenerationOptions]
) -> Completion:
    """Complete ``prompt`` with a loaded model, or with one that is loaded only for this call."""
    if isinstance(path_or_model, Model):
        return path_or_model.generate(prompt, **options)
    Request.of(**options)  # a bad option must not cost a load
    with load(path_or_model) as model:
        return model.generate(prompt, **options)


def demo_model() -> str:
    """Return the path of the small BitNet model in the package.

    Raises: InputError if the installation lacks it.
    """
    return _packaged("demo.gguf", "demo model")


def chat_model() -> str:
    """Return the path of the packaged demo model that answers questions about its book.

    Raises: InputError if the installation lacks it.
    """
    return _packaged("demo-chat.gguf", "demo chat model")


def _packaged(name: str, title: str) -> str:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", name)
    if not os.path.isfile(path):
        raise InputError(
            f"{path}: the {title} is missing from this installation; install trinity again, "
            "or give a model's file (--model FILE)"
        )
    return path


def load_tokenizer(path: Path, *, notice: Callable[[str], None] | None = None) -> Tokenizer:
    """The tokenizer of a model, which ``path`` names as for ``load``, with or without weights.

    Of a model on the hub no weights are downloaded: of a directory the files that describe it, of
    a GGUF file its beginning. ``notice`` receives lines that the user should see. Raises:
    TrinityError.
    """
    from trinity.providers import open_description
    from trinity.tokenizers import tokenizer_from_metadata

    described = open_description(path, notice=notice or _silent)
    try:
        source = os.fspath(path)
        with about(source):
            return tokenizer_from_metadata(
                described.metadata, described.defaults.end_ids, source=source
            )
    finally:
        described.close()


def open_weights(path: Path, *, notice: Callable[[str], None] | None = None) -> WeightProvider:
    """The tensors, metadata and configuration of a model, without loading it to run.

    ``path`` is whatever ``load`` takes. A GGUF file without a usable configuration opens too.
    ``notice`` receives lines that the user should see. Raises: TrinityError.
    """
    from trinity.providers import open_weights as open_provider

    return open_provider(path, notice=notice or _silent)


def _quantized(
    provider: WeightProvider, options: LoadOptions, notice: Callable[[str], None]
) -> WeightProvider:
    with _libraries():  # the compiler's, for quantizing is compiled
        module = uninterrupted(importlib.import_module, "trinity.quantization.cached")
    made: WeightProvider = module.quantized(provider, options, options.quantize, notice)
    return made


def _silent(line: str) -> None:
    """Ignore a notice."""
