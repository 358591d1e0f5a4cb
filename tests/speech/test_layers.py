from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from tests.formats.raw_safetensors import write_safetensors
from tests.speech import naive_whisper
from tests.speech.small_whisper import write_model
from trinity.errors import ConfigError, FormatError, UnsupportedError
from trinity.formats.speech_config import SpeechConfig, check_tensors, speech_config
from trinity.providers import open_weights
from trinity.runtime.kernel_choice import KernelChoice
from trinity.runtime.records.recorder import Recorder
from trinity.speech.decoder import SpeechDecoder
from trinity.speech.encoder import SpeechEncoder
from trinity.speech.weights import SpeechWeights
from trinity_kernels.isa import available_levels, select_level
from trinity_kernels.team import Team


def read_config(folder: Path) -> SpeechConfig:
    with closing(open_weights(folder)) as provider:
        return speech_config(provider.metadata, provider.path)


IDS = [50, 3, 7, 49, 12, 70, 0, 33]


@pytest.mark.parametrize("dtype", ["F16", "BF16", "F32"])
@pytest.mark.parametrize("threads", [1, 2])
def test_encoder_and_decoder_follow_the_formulas(tmp_path: Path, dtype: str, threads: int) -> None:
    """Sizes do not fill vectors, row groups or pages; tokens come together and singly."""
    tensors = write_model(tmp_path, dtype)
    config = read_config(tmp_path)
    features = np.random.default_rng(3).normal(size=(config.frames, config.bands))
    states = naive_whisper.encode(tensors, features.astype(np.float32), 3, 2)
    logits = naive_whisper.decode(tensors, IDS, states, 4, 3)
    with closing(open_weights(tmp_path)) as provider:
        weights = SpeechWeights(provider)
        recorder = Recorder(KernelChoice(select_level(), None), threads)
        encoder = SpeechEncoder(config, weights, recorder)
        decoder = SpeechDecoder(config, weights, recorder, encoder.cross)
        team = Team(threads)
        for _ in range(2):  # nothing of a window stays for the next one
            found = encoder.run(team, features.astype(np.float32))
            np.testing.assert_allclose(found, states, atol=2e-4)
        one, two = decoder.begin(), decoder.begin()
        whole = decoder.run(team, [(token, one) for token in IDS], range(len(IDS)))
        np.testing.assert_allclose(whole, logits, atol=1e-3)
        for number, token in enumerate(IDS):
            step = decoder.run(team, [(token, two)], [0])
            np.testing.assert_allclose(step[0], logits[number], atol=1e-3)
        team.close()


def _cosines(found: NDArray[Any], wanted: NDArray[Any]) -> NDArray[Any]:
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1)
    cosines: NDArray[Any] = (found * wanted).sum(1) / lengths
    return cosines


@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize(("quantize", "least"), [("Q8_0", 0.998), ("Q4_0", 0.9), ("Q6_K", 0.998)])
def test_quantized_linears_stay_close(
    tmp_path: Path, level: str, quantize: str, least: float
) -> None:
    """On every level; Q6_K does not fit rows of 64 and 96, which become Q8_0."""
    sizes: dict[str, object] = {
        "d_model": 64, "encoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96,
        "max_source_positions": 75, "num_mel_bins": 32,
    }  # fmt: skip
    tensors = write_model(tmp_path, "F32", **sizes)
    config = read_config(tmp_path)
    features = np.random.default_rng(3).normal(size=(config.frames, 32)).astype(np.float32)
    states = naive_whisper.encode(tensors, features, 4, 2)
    logits = naive_whisper.decode(tensors, IDS, states, 4, 3)
    with closing(open_weights(tmp_path)) as provider:
        weights = SpeechWeights(provider, quantize)
        assert weights.linear("enc.blk.0.ffn_up", 96, 64).form == "q8"
        recorder, team = Recorder(KernelChoice(select_level(level), None), 2), Team(2)
        encoder = SpeechEncoder(config, weights, recorder)
        decoder = SpeechDecoder(config, weights, recorder, encoder.cross)
        for _ in range(2):
            assert _cosines(encoder.run(team, features), states).mean() > least
        history = decoder.begin()
        found = decoder.run(team, [(token, history) for token in IDS], range(len(IDS)))
        assert _cosines(found, logits).mean() > least
        team.close()


def test_values_that_are_no_numbers_are_not_quantized(tmp_path: Path) -> None:
    stored = write_model(tmp_path, "F32")["encoder.layers.0.fc1.weight"].astype(np.float32)
    stored[3, 5] = np.inf
    write_safetensors(tmp_path / "model.safetensors", {"encoder.layers.0.fc1.weight": stored})
    with (
        closing(open_weights(tmp_path)) as provider,
        pytest.raises(FormatError, match="not finite"),
    ):
        SpeechWeights(provider, "F16").linear("enc.blk.0.ffn_up", 70, 48)


def test_forks_of_a_text_go_their_own_ways(tmp_path: Path) -> None:
    """The fork is past a page: earlier tokens are shared, later ones are not."""
    tensors = write_model(tmp_path, "F32")
    config = read_config(tmp_path)
    features = np.random.default_rng(4).normal(size=(config.frames, config.bands))
    states = naive_whisper.encode(tensors, features.astype(np.float32), 3, 2)
    begin = [int(one) for one in np.random.default_rng(5).integers(0, 71, 131)]
    with closing(open_weights(tmp_path)) as provider:
        recorder, team = Recorder(KernelChoice(select_level(), None), 2), Team(2)
        weights = SpeechWeights(provider)
        encoder = SpeechEncoder(config, weights, recorder)
        decoder = SpeechDecoder(config, weights, recorder, encoder.cross)
        encoder.run(team, features.astype(np.float32))
        left = decoder.begin()
        decoder.run(team, [(one, left) for one in begin], [])
        right = left.fork()
        decoder.run(team, [(8, left), (9, right)], [0, 1])
        found = decoder.run(team, [(1, left), (2, right)], [0, 1])
        for row, rest in zip(found, ([8, 1], [9, 2]), strict=True):
            wanted = naive_whisper.decode(tensors, [*begin, *rest], states, 4, 3)[-1]
            np.testing.assert_allclose(row, wanted, atol=1e-3)
        team.close()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"d_model": 50},
            ConfigError,
            "whisper.encoder.attention.head_count is 3; it must divide the width, 50",
        ),
        ({"d_model": None}, ConfigError, "d_model is missing"),
        ({"num_mel_bins": 0}, ConfigError, "num_mel_bins is 0; it must be a whole number from 1"),
        ({"activation_function": "relu"}, UnsupportedError, "activation_function is 'relu'"),
        (
            {"suppress_tokens": [99]},
            ConfigError,
            "suppress_tokens is .99.; it has 99; expected token ids",
        ),
        ({"scale_embedding": True}, UnsupportedError, "scale_embedding is True"),
        ({"eos_token_id": 71}, ConfigError, "eos_token_id is 71"),
    ],
)
def test_wrong_configurations(
    tmp_path: Path, changes: dict[str, object], error: type[Exception], message: str
) -> None:
    import json

    from tests.speech.small_whisper import CONFIG

    write_model(tmp_path, "F32")
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **changes}), encoding="utf-8")
    with pytest.raises(error, match=message):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("listed", "heads"),
    [
        ([[2, 3], [0, 1]], ((2, 3), (0, 1))),
        ([[2, 3], [7, 0]], tuple((layer, head) for layer in (1, 2) for head in range(4))),
        ([[2, 4]], tuple((layer, head) for layer in (1, 2) for head in range(4))),
    ],
)
def test_alignment_heads_of_another_model_are_none(
    tmp_path: Path, listed: list[list[int]], heads: tuple[tuple[int, int], ...]
) -> None:
    """Some distilled models declare the heads of the model that they were distilled from."""
    write_model(tmp_path, "F32", alignment_heads=listed)
    assert read_config(tmp_path).alignment_heads == heads


@pytest.mark.parametrize("listed", [[[1]], [[1, -1]], [1, 0], [[True, 0]], "[[1, 0]]"])
def test_alignment_heads_that_are_no_pairs(tmp_path: Path, listed: object) -> None:
    write_model(tmp_path, "F32", alignment_heads=listed)
    with pytest.raises(ConfigError, match=r"alignment_heads is .*a list of pairs"):
        read_config(tmp_path)


def test_what_is_for_texts_says_where_speech_models_run(tmp_path: Path) -> None:
    write_model(tmp_path, "F32", architectures=["WhisperForConditionalGeneration"])
    with pytest.raises(UnsupportedError, match=r"a Whisper model, .* `trinity transcribe`"):
        trinity.load(tmp_path)


def test_tensors_of_another_model(tmp_path: Path) -> None:
    import json

    write_model(tmp_path, "F32")
    path = tmp_path / "config.json"
    values = json.loads(path.read_text(encoding="utf-8"))

    def check() -> None:
        with closing(open_weights(tmp_path)) as provider:
            names = provider.tensor_names()
            config = speech_config(provider.metadata, provider.path)
            check_tensors(config, names, lambda name: provider.tensor(name).shape)

    check()
    path.write_text(json.dumps({**values, "encoder_ffn_dim": 71}), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"ffn_up.weight' has shape \(70, 48\), but the config"):
        check()
    path.write_text(json.dumps({**values, "encoder_layers": 3}), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"no tensor 'enc.blk.2.ffn_up.weight', which the"):
        check()
    path.write_text(json.dumps({**values, "decoder_layers": 2}), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"tensor 'dec.blk.2.* does not belong to a Whisper"):
        check()
