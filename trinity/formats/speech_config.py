"""Read a Whisper model's configuration from its keys, and list the tensors that it must have.

Tensors have llama.cpp's names for T5, which has the same two stacks. Source of the keys: ggml's
description of GGUF, "Whisper"; docs/speech.md lists the additional ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import FIELDS
from trinity.formats.config_reader import shown
from trinity.formats.other_models import SPEECH, is_speech

ACTIVATIONS = {"gelu": "gelu_erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu"}
MOST_BANDS, MOST_POSITIONS = 1024, 1 << 13
EPS = 1e-5  # that of PyTorch's LayerNorm
# Half of the decoder's positions are for earlier text, and the prompt has 4 tokens.
_LEAST_POSITIONS = {"encoder": 1, "decoder": 10}
_MOST_VALUES = 1 << 25  # limit of a buffer, positions times width; large has 1500 * 5120


@dataclass(frozen=True, slots=True)
class Stack:
    """The layers of an encoder or a decoder."""

    layers: int
    heads: int
    inner: int
    positions: int


@dataclass(frozen=True, slots=True)
class SpeechConfig:
    """A model's sizes, and settings of its generation."""

    width: int
    vocab_size: int
    bands: int
    encoder: Stack
    decoder: Stack
    activation: str
    suppressed: tuple[int, ...]
    suppressed_first: tuple[int, ...]
    latest_first_time: int
    # (layer, head) of the decoder's heads whose attention follows the speech
    alignment_heads: tuple[tuple[int, int], ...]
    source: str

    @property
    def frames(self) -> int:
        """Mel frames of a window: two per position of the encoder."""
        return 2 * self.encoder.positions


def speech_config(metadata: Mapping[str, object], source: str) -> SpeechConfig:
    """Return the configuration that ``metadata`` describes.

    Raises UnsupportedError for another kind of model, ConfigError for a value that is missing or
    impossible.
    """
    if not is_speech(metadata):
        raise UnsupportedError(
            f"{source}: the architecture {shown(metadata.get('general.architecture'))} is not a "
            "speech model; trinity transcribes with Whisper models: for text use generate or chat"
        )
    keys = _Keys(metadata, source)
    width = keys.whole("encoder.embedding_length", int(FIELDS["hidden_size"].high))
    across = keys.whole("decoder.embedding_length", int(FIELDS["hidden_size"].high), width)
    if across != width:
        raise keys.error("decoder.embedding_length", f"must equal the encoder's, {width}")
    encoder, decoder = keys.stack("encoder", width), keys.stack("decoder", width)
    bands = keys.whole("encoder.mels_count", MOST_BANDS)
    widest = max(encoder.inner, 4 * bands, width)
    if encoder.positions * widest > _MOST_VALUES or decoder.positions * decoder.inner > (
        _MOST_VALUES
    ):
        raise keys.error(
            "encoder.context_length",
            f"times the width of a layer, such as {widest}, must not exceed {_MOST_VALUES}",
        )
    keys.check_eps()
    vocab_size = keys.vocab_size()
    return SpeechConfig(
        width=width,
        vocab_size=vocab_size,
        bands=bands,
        encoder=encoder,
        decoder=decoder,
        activation=keys.activation(),
        suppressed=keys.ids("suppress_tokens", vocab_size),
        suppressed_first=keys.ids("begin_suppress_tokens", vocab_size),
        latest_first_time=keys.whole("max_initial_timestamp_index", 1500, 50, least=0),
        alignment_heads=keys.alignment_heads(decoder),
        source=source,
    )


def tensor_shapes(config: SpeechConfig) -> dict[str, tuple[int, ...]]:
    """Return every tensor of such a model with its shape in NumPy's order."""
    d = config.width
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (config.vocab_size, d),
        "enc.conv1d.1.weight": (d, config.bands, 3),
        "enc.conv1d.1.bias": (d,),
        "enc.conv1d.2.weight": (d, d, 3),
        "enc.conv1d.2.bias": (d,),
    }
    for side, stack in (("enc", config.encoder), ("dec", config.decoder)):
        shapes[f"{side}.position_embd.weight"] = (stack.positions, d)
        norms, attentions = [f"{side}.output_norm"], []
        for layer in range(stack.layers):
            p = f"{side}.blk.{layer}."
            kinds = ["attn", "cross_attn"][: 1 + (side == "dec")]
            attentions += [p + kind for kind in kinds]
            norms += [f"{p}{kind}_norm" for kind in (*kinds, "ffn")]
            for name, n, k in (("ffn_up", stack.inner, d), ("ffn_down", d, stack.inner)):
                shapes |= {f"{p}{name}.weight": (n, k), f"{p}{name}.bias": (n,)}
        for name in norms:
            shapes |= {f"{name}.weight": (d,), f"{name}.bias": (d,)}
        for name in attentions:
            for part in "qkvo":
                shapes[f"{name}_{part}.weight"] = (d, d)
                if part != "k":
                    shapes[f"{name}_{part}.bias"] = (d,)
    return shapes


def check_tensors(
    config: SpeechConfig, names: Collection[str], shape: Callable[[str], tuple[int, ...]]
) -> None:
    """Check that the model has exactly the tensors that the configuration needs.

    Raises ConfigError for a tensor that is missing, of another shape, or unknown.
    """
    wanted = tensor_shapes(config)
    for name, size in wanted.items():
        if name not in names:
            raise ConfigError(
                f"{config.source}: there is no tensor {name!r}, which the model needs; it is "
                "incomplete: download or convert it again"
            )
        if shape(name) != size:
            raise ConfigError(
                f"{config.source}: tensor {name!r} has shape {shape(name)}, but the configuration "
                f"needs {size}; they belong to different models: download or convert it again"
            )
    for name in names:
        if name not in wanted:
            raise ConfigError(
                f"{config.source}: tensor {name[:100]!r} does not belong to a Whisper model with "
                f"{config.encoder.layers} and {config.decoder.layers} layers; convert it again"
            )


class _Keys:
    """Values under ``whisper.``, each checked separately."""

    def __init__(self, metadata: Mapping[str, object], source: str) -> None:
        self._metadata, self._source = metadata, source

    def error(self, key: str, what: str) -> ConfigError:
        """Return a ConfigError with the key and its value."""
        full = f"{SPEECH}.{key}"
        state = f"is {shown(self._metadata[full])}" if full in self._metadata else "is missing"
        return ConfigError(f"{self._source}: {full} {state}; it {what}: convert the model again")

    def whole(self, key: str, largest: int, default: int | None = None, least: int = 1) -> int:
        """Return a whole number from ``least`` to ``largest``."""
        value = self._metadata.get(f"{SPEECH}.{key}", default)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= largest:
            return value
        raise self.error(key, f"must be a whole number from {least} to {largest}")

    def stack(self, side: str, width: int) -> Stack:
        """The sizes of the encoder or the decoder."""
        heads = self.whole(f"{side}.attention.head_count", int(FIELDS["num_heads"].high))
        if width % heads:
            raise self.error(f"{side}.attention.head_count", f"must divide the width, {width}")
        return Stack(
            layers=self.whole(f"{side}.block_count", int(FIELDS["num_layers"].high)),
            heads=heads,
            inner=self.whole(
                f"{side}.feed_forward_length", int(FIELDS["intermediate_size"].high), 4 * width
            ),
            positions=self.whole(
                f"{side}.context_length", MOST_POSITIONS, least=_LEAST_POSITIONS[side]
            ),
        )

    def vocab_size(self) -> int:
        """The rows of the embedding, or the vocabulary's length if no key gives them."""
        tokens, key = "tokenizer.ggml.tokens", "vocab_size"
        if f"{SPEECH}.{key}" in self._metadata or tokens not in self._metadata:
            return self.whole(key, int(FIELDS[key].high))
        listed = self._metadata[tokens]
        if isinstance(listed, list) and 0 < len(listed) <= int(FIELDS[key].high):
            return len(listed)
        raise ConfigError(
            f"{self._source}: {tokens} is {shown(listed)}; it must be a list of tokens: convert "
            "the model again"
        )

    def check_eps(self) -> None:
        """Raise UnsupportedError if norms use another epsilon."""
        key = f"{SPEECH}.decoder.attention.layer_norm_epsilon"
        value = self._metadata.get(key, EPS)
        if not isinstance(value, float) or abs(value - EPS) > EPS / 100:
            raise UnsupportedError(
                f"{self._source}: {key} is {shown(value)}; Whisper's models have {EPS:g}"
            )

    def activation(self) -> str:
        """The kernels' name of the activation function in the feed-forward."""
        key = f"{SPEECH}.hidden_activation"
        name = self._metadata.get(key, "gelu")
        if isinstance(name, str) and name in ACTIVATIONS:
            return ACTIVATIONS[name]
        raise UnsupportedError(
            f"{self._source}: {key} is {shown(name)}; known are {', '.join(ACTIVATIONS)}"
        )

    def ids(self, key: str, vocab_size: int) -> tuple[int, ...]:
        """Return token ids; none if the key is missing."""
        value = self._metadata.get(f"{SPEECH}.{key}")
        if value is None:
            return ()
        if (
            not isinstance(value, np.ndarray)
            or value.dtype.kind not in "iu"
            or value.size > vocab_size
            or not ((value >= 0) & (value < vocab_size)).all()
        ):
            raise self.error(key, f"must be an array of token ids below {vocab_size}")
        return tuple(value.tolist())

    def alignment_heads(self, decoder: Stack) -> tuple[tuple[int, int], ...]:
        """Return pairs of layer and head; without the key, all in the decoder's second half.

        Source: openai/whisper, model.py, for models that name none.
        """
        key = "alignment_heads"
        value = self._metadata.get(f"{SPEECH}.{key}")
        if value is None:
            layers = range(decoder.layers // 2, decoder.layers)
            return tuple((layer, head) for layer in layers for head in range(decoder.heads))
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and 0 < value.size <= 1 << 12:
            numbers = value.tolist()
            pairs = tuple(zip(numbers[::2], numbers[1::2], strict=False))
            if len(numbers) % 2 == 0 and all(
                0 <= layer < decoder.layers and 0 <= head < decoder.heads for layer, head in pairs
            ):
                return pairs
        raise self.error(
            key, f"must be pairs of a layer below {decoder.layers} and a head below {decoder.heads}"
        )
