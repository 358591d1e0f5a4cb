"""Opening a model by its name: the provider, errors, and what comes with the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trinity
from tests.tiny_models import write_tiny_model
from tests.toy_model import ToyEngine, ToyTokenizer
from trinity.errors import ConfigError, FormatError, InputError, UnsupportedError
from trinity.formats.defaults import ChatTemplate, Defaults
from trinity.model import Model
from trinity.model_defaults import with_defaults
from trinity.options.load_options import LoadOptions
from trinity.providers import open_weights
from trinity.providers.opening import KINDS
from trinity.tokenizers.chat import first_known, render

MESSAGES = [{"role": "user", "content": "x"}]


class Provider:
    """A provider with defaults only."""

    path = "model.gguf"

    def __init__(self, **given: Any) -> None:
        self.defaults = Defaults(source="d.json", **given)
        self.metadata: dict[str, object] = {}

    def tensor_names(self) -> list[str]:
        return []

    def close(self) -> None:
        pass


def toy(**given: Any) -> Model:
    return Model(ToyEngine(), ToyTokenizer(), Provider(**given))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["no-such.gguf", "no/such/folder/model.gguf", "nobody:knows"])
def test_unknown_name_lists_what_was_tried(name: str) -> None:
    for call in (trinity.load, trinity.load_tokenizer, trinity.open_weights):
        with pytest.raises(InputError, match="there is no such file or model; tried: ") as info:
            call(name)
        assert str(info.value).startswith(f"{name}: ")
        assert all(kind.what in str(info.value) for kind in KINDS)


def test_close_names_are_proposed(tmp_path: Path) -> None:
    (tmp_path / "Llama-3.2-1B-Q4_K_M.gguf").touch()
    (tmp_path / "readme.md").touch()
    with pytest.raises(InputError, match=r"did you mean .*Llama-3.2-1B-Q4_K_M.gguf\?"):
        open_weights(tmp_path / "llama-3.2-1b-q4_k_s.gguf")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("user/repo", "hf:user/repo"),
        ("user/repo:Q4_K_M", "hf:user/repo:Q4_K_M"),
        ("https://hub.example/user/repo", "hf:user/repo"),
        ("https://hub.example/user/repo/tree/main", "hf:user/repo"),
        ("https://hub.example/user/repo/blob/main/a/b-Q8_0.gguf", "hf:user/repo:a/b-Q8_0.gguf"),
        ("https://hub.example/user/repo/resolve/v2/b.gguf?download=true", "hf:user/repo@v2:b.gguf"),
        ("hub.example/user/repo:Q8_0", "hf:user/repo:Q8_0"),
    ],
)
def test_names_and_addresses_of_the_hub_are_proposed(typed: str, meant: str) -> None:
    with pytest.raises(InputError) as info:
        open_weights(typed)
    assert f"did you mean {meant}?" in str(info.value)


@pytest.mark.parametrize("typed", ["folder/model", "a/b/c", "./a/b", "/a/b", "user/model.gguf"])
def test_paths_are_no_names_of_the_hub(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="check the path; a model of the hub is named hf:"):
        open_weights(typed)


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800" * 3, "x" * 5000])
def test_no_name_at_all(name: str) -> None:
    with pytest.raises(InputError):
        open_weights(name)


def test_file_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(FormatError, match="zip archive"):
        open_weights(path)


def test_request_goes_before_the_models_defaults() -> None:
    model = toy(options={"temperature": 0.25, "top_k": 7})
    assert model._request({}).sampling.temperature == 0.25
    assert model._request({"temperature": 0.5}).sampling.temperature == 0.5
    assert model._request({"temperature": 0.5}).sampling.top_k == 7
    assert toy()._request({}).sampling == trinity.SamplingParams()


def test_impossible_default_is_refused_with_its_file() -> None:
    with pytest.raises(ConfigError, match=r"d\.json: top_p is 7"):
        toy(options={"top_p": 7})
    defaults = Defaults(loading={"context_length": "x"}, source="d.json")
    with pytest.raises(ConfigError, match=r"d\.json: context_length is 'x'"):
        with_defaults(LoadOptions(), defaults)


def test_load_options_go_before_the_models_defaults() -> None:
    defaults = Defaults(loading={"context_length": 77, "threads": 2})
    assert with_defaults(LoadOptions(threads=1), defaults) == LoadOptions(
        threads=1, context_length=77
    )


def test_system_text_and_messages_go_before_the_conversation() -> None:
    first = ({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"})
    model = toy(system="s", messages=first)
    text = model.detokenize(model.apply_chat_template(MESSAGES))
    assert text.count("[system]s") == 1
    assert text.index("[system]s") < text.index("[user]a") < text.index("[assistant]b")
    assert text.index("[assistant]b") < text.index("[user]x")
    own = [{"role": "system", "content": "own"}, *MESSAGES]
    assert "[system]s" not in model.detokenize(model.apply_chat_template(own))


def test_models_template_goes_before_the_vocabularys() -> None:
    model = toy(templates=(ChatTemplate("<s>T{{ messages[0].content }}"),))
    assert "Tx" in model.detokenize(model.apply_chat_template(MESSAGES))
    assert [t.language for t in model.chat_templates] == ["jinja", "jinja"]


def test_template_of_an_unknown_kind_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str, messages: object, **names: object) -> str:
        raise UnsupportedError("{{ break }} is not known")

    monkeypatch.setitem(trinity.tokenizers.chat._RENDERERS, "go", refuse)  # type: ignore[attr-defined]

    def use(template: ChatTemplate) -> str:
        return render(template, MESSAGES)

    strange = ChatTemplate("{{ break }}", "go", "the layer")
    assert first_known((strange, ChatTemplate("second")), use) == "second"
    with pytest.raises(UnsupportedError, match=r"the layer: \{\{ break \}\} is not known"):
        first_known((strange,), use)


def test_ends_beside_the_vocabularys(tmp_path: Path) -> None:
    from trinity.tokenizers import tokenizer_from_metadata

    write_tiny_model(tmp_path / "m.gguf")
    metadata = open_weights(tmp_path / "m.gguf").metadata
    plain = tokenizer_from_metadata(metadata).eog_ids
    more = tokenizer_from_metadata(metadata, (5, 7, 10**9)).eog_ids
    assert more == plain | {5, 7}


def test_sampling_of_a_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    keys = {"temp": 0.25, "top_k": -1, "top_p": 0.5, "min_p": 0.125, "penalty_repeat": 1.5}
    write_tiny_model(path, metadata={f"general.sampling.{k}": v for k, v in keys.items()})
    with trinity.load(path) as model:
        sampling = model._request({}).sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.25, 0, 0.5)
    assert (sampling.min_p, sampling.repetition_penalty) == (0.125, 1.5)


def test_sampling_of_a_gguf_file_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_model(path, metadata={"general.sampling.temp": "hot"})
    with pytest.raises(ConfigError, match=r"general.sampling.temp is 'hot'; expected a number"):
        trinity.load(path)
