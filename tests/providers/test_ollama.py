"""Models of Ollama's store: found by name, opened with their layers' settings, or refused."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import trinity
from tests.formats.raw_safetensors import entry, file_bytes
from tests.ollama_stores import layer, write_manifest, write_store
from tests.tiny_models import write_tiny_model
from trinity.cli.application import application
from trinity.errors import ConfigError, FormatError, InputError, TrinityError, UnsupportedError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.ollama import store as stores_module
from trinity.loading import load_tokenizer
from trinity.model import Model
from trinity.providers import open_weights

QUESTION = [{"role": "user", "content": "hello"}]
LEGACY = "{{ if .System }}{{ .System }}|{{ end }}Q {{ .Prompt }} A {{ .Response }};"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty store, the only one."""
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "store"


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    write_tiny_model(path, metadata={"general.sampling.temp": 0.125, "general.sampling.top_k": 9})
    return path


def rendered(model: Model) -> str:
    return model.detokenize(model.apply_chat_template(QUESTION), remove_special=False)


@pytest.mark.full
def test_store_of_ollama(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shared_data / "formats/ollama"
    golden = json.loads((folder / "gguf-store.golden.json").read_text())["models"]
    monkeypatch.setenv("OLLAMA_MODELS", str(folder / "gguf-store"))
    for name, known in golden.items():
        ids = known["prompt_ids"] + known["greedy_ids"]
        with trinity.load(shared_data / "models" / known["gguf"]) as model:
            expected = model.logits(ids)
        with trinity.load(f"ollama:{name}") as model:
            assert np.array_equal(model.logits(ids), expected)
            found = model.generate(
                known["prompt_ids"], temperature=0, repetition_penalty=1, max_tokens=16
            )
            assert found.token_ids == known["greedy_ids"]


def test_layers_of_ollamas_store(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(shared_data / "formats/ollama/gguf-store"))
    with trinity.load("ollama:stories") as model:
        request = model._request({"top_k": 3})
        assert (request.sampling.temperature, request.sampling.top_p) == (0.6, 0.9)
        assert (request.sampling.top_k, request.sampling.seed) == (3, 7)
        assert request.sampling.repetition_penalty == 1.1
        assert request.limits.stop == ("\n\n", "<end>")
        assert model.context_length == 128  # the model's own: less than num_ctx
        assert rendered(model) == (
            "<s>You tell very short stories.\n\n### Question:\nhello\n\n### Answer:\n"
        )
    with trinity.load("ollama:stories:big") as model:
        assert rendered(model) == (
            "<s><|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nOnce upon a time"
            "<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
        )


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("altered-blob", "system layer sha256:0b4e.* has another hash"),
        ("bad-digest", r"the digest 'sha256:\.\./\.\./\.\./etc/passwd'"),
        ("bad-json", "the manifest cannot be read"),
        ("cloud-stub", "a cloud model"),
        ("empty-manifest", "the manifest cannot be read: the file is empty"),
        ("missing-blob", "model layer sha256:a371.* is missing"),
        ("no-model-layer", "no model layer"),
        ("partial-download", "model layer sha256:a371.* is not completely downloaded"),
        ("truncated-blob", "model layer sha256:a371.* has 10 bytes instead of 32"),
    ],
)
def test_damaged_stores(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch, name: str, what: str
) -> None:
    root = shared_data / "formats/ollama/broken" / name
    monkeypatch.setenv("OLLAMA_MODELS", str(root))
    for call in (trinity.load, trinity.load_tokenizer, trinity.open_weights):
        with pytest.raises(TrinityError, match=what) as info:
            call("ollama:m")
        text = str(info.value)
        assert text.startswith(f"ollama:m: {root}/manifests/registry.ollama.ai/library/m/latest: ")
        assert "; " in text


def test_case_differs(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = shared_data / "formats/ollama/broken/case-differs"
    monkeypatch.setenv("OLLAMA_MODELS", str(root))
    with open_weights("ollama:acme/m:v1") as model:  # type: ignore[attr-defined]
        assert "sha256-a3718c79" in model.path


def test_exit_status(root: Path, gguf: Path) -> None:
    write_store(root, gguf)
    (root / "blobs").rename(root / "moved")
    result = CliRunner().invoke(application(), ["tokenize", "--model", "ollama:m", "x"])
    assert result.exit_code == 1
    assert "error: ollama:m: " in result.stderr


def test_params_between_the_file_and_the_request(root: Path, gguf: Path) -> None:
    write_store(root, gguf, params={"top_k": 5, "num_ctx": 64, "num_predict": 3, "stop": ["x"]})
    with trinity.load("ollama:m") as model:
        request = model._request({})
        assert (request.sampling.temperature, request.sampling.top_k) == (0.125, 5)
        assert (request.limits.max_tokens, request.limits.stop) == (3, ("x",))
        assert model._request({"top_k": 2, "stop": None}).limits.stop == ()
        assert model.context_length == 64
    with trinity.load("ollama:m", context_length=32) as model:
        assert model.context_length == 32


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ({"temperature": "hot"}, r"the params layer sha256:\w+: temperature is 'hot'"),
        ({"top_p": 7}, "its params layer: top_p is 7"),
        ([], "the params layer sha256:.*: it contains a list; expected a JSON object"),
    ],
)
def test_impossible_params(root: Path, gguf: Path, params: object, what: str) -> None:
    path = write_store(root, gguf, params=params)
    with pytest.raises((ConfigError, FormatError), match=what) as info:
        trinity.load("ollama:m")
    assert str(info.value).startswith(f"ollama:m: {path}: ")


def test_system_text_and_first_messages(root: Path, gguf: Path) -> None:
    first = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    write_store(root, gguf, template=LEGACY, system="be brief", messages=first)
    with trinity.load("ollama:m") as model:
        assert rendered(model) == "<s>be brief|Q a A b;Q hello A "


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        ({}, "it contains a dict; expected a JSON list"),
        ([{"content": "x"}], 'no "role"'),
        ([{"role": "user", "content": 1}], 'the "content" of a message is not text'),
        (b"[", "not valid JSON"),
        (b"\xff", "not valid JSON"),
    ],
)
def test_malformed_messages(root: Path, gguf: Path, messages: object, what: str) -> None:
    write_store(root, gguf, messages=messages)
    with pytest.raises(FormatError, match=f"the messages layer sha256:.*{what}"):
        open_weights("ollama:m")


def test_template_outside_of_the_subset_gives_way(root: Path, tmp_path: Path) -> None:
    jinja = "[{{ messages[0].content }}]"
    write_tiny_model(tmp_path / "j.gguf", metadata={"tokenizer.chat_template": jinja})
    lines: list[str] = []
    for number, template in enumerate(("{{ break_me }}", "{{ if }}", "{{ len 5 }}", None)):
        layers = {} if template is None else {"template": template}
        write_store(root, tmp_path / "j.gguf", f"library/m/{number}", **layers)
        with trinity.load(f"ollama:m:{number}", progress=lines.append) as model:
            assert rendered(model) == "<s>[hello]"
    told = [line for line in lines if "own files instead" in line]
    assert [line.split(":")[2] for line in told] == ["0", "1", "2"]
    assert "break_me" in told[0]


def test_template_outside_of_the_subset_without_another(root: Path, gguf: Path) -> None:
    write_store(root, gguf, template="{{ break_me }}")
    with trinity.load("ollama:m") as model:
        with pytest.raises(UnsupportedError, match=r"its layer sha256:.*'break_me', a function"):
            rendered(model)
        ids = model.apply_chat_template(QUESTION, template="x")
        assert model.detokenize(ids, remove_special=False) == "<s>x"


def test_model_without_a_template(root: Path, gguf: Path) -> None:
    write_store(root, gguf, system="be brief")
    lines: list[str] = []
    with trinity.load("ollama:m", progress=lines.append) as model:
        assert rendered(model) == "<s>hello"
    assert any("no chat template" in line for line in lines)


@pytest.mark.parametrize(
    ("jinja", "go", "chosen", "expected"),
    [
        ("J{{ messages[0].content }}", "G{{ .Prompt }}", "", "<s>Ghello"),
        ("J{{ messages[0].content }}", "G{{ .Prompt }}", "0", "<s>Jhello"),
        ("J{% if tools %}{% endif %}", "G{{ .Prompt }}", "", "<s>J"),
        ("J{% if tools %}{% endif %}", "G{{ .Prompt }}", "1", "<s>Ghello"),
        (
            "J{# <think> </think> tools #}",
            "{{ .Tools }}G{{ range .Messages }}{{ end }}",
            "",
            "<s>J",
        ),
        ("J{# tools #}", "G{{ range .Messages }}{{ $.Tools }}{{ end }}", "", "<s>Gnull"),
    ],
)
def test_which_template_ollama_takes(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    jinja: str, go: str, chosen: str, expected: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("OLLAMA_GO_TEMPLATE", chosen)
    write_tiny_model(tmp_path / "j.gguf", metadata={"tokenizer.chat_template": jinja})
    write_store(root, tmp_path / "j.gguf", template=go)
    with trinity.load("ollama:m") as model:
        assert rendered(model) == expected


def test_format_that_is_built_into_ollama(root: Path, gguf: Path) -> None:
    layers = [layer(root, "model", gguf.read_bytes()), layer(root, "template", "{{ .Prompt }}")]
    write_manifest(root, "registry.ollama.ai/library/m/latest", layers, {"renderer": "qwen3-coder"})
    lines: list[str] = []
    model = trinity.load("ollama:m", progress=lines.append)
    with model, pytest.raises(InputError, match="no chat template"):
        rendered(model)
    assert any("'qwen3-coder' is built into Ollama" in line for line in lines)


@pytest.mark.parametrize(
    ("kinds", "config", "what"),
    [
        (["model", "model"], {}, "2 model layers"),
        (["model"], {"model_format": "safetensors"}, "model_format is 'safetensors'"),
        (["model"], {"remote_host": "https://ollama.com"}, "a cloud model"),
    ],
)
def test_what_trinity_does_not_run(
    root: Path, gguf: Path, kinds: list[str], config: object, what: str
) -> None:
    layers = [layer(root, kind, gguf.read_bytes()) for kind in kinds]
    write_manifest(root, "registry.ollama.ai/library/m/latest", layers, config)
    with pytest.raises(UnsupportedError, match=what):
        open_weights("ollama:m")


def test_adapter_layers_are_applied(root: Path, shared_data: Path) -> None:
    folder = shared_data / "adapters" / "llama3_rope" / "all_r8"
    base = shared_data / "architectures" / "llama3_rope" / "model.gguf"
    write_store(root, base, adapter=(folder / "adapter.gguf").read_bytes())
    prompt = json.loads((folder / "golden.json").read_text())["prompt_ids"]
    with trinity.load("ollama:m", kv_type="f32") as model:
        found, bare = model.logits(prompt), model.logits(prompt, lora={})
    assert np.abs(found - np.load(folder / "logits_1.npy")).max() < 1e-3
    assert np.abs(found - bare).max() > 1e-2


def write_tensors(root: Path, directory: Path, **layers: object) -> None:
    """A store with the model of a directory of Hugging Face's form, a blob for each tensor."""
    kinds = [layer(root, kind, content) for kind, content in layers.items()]
    with Checkpoint(directory) as checkpoint:
        for name in checkpoint.names():
            tensor = checkpoint.tensor(name)
            header = {name: entry(tensor.dtype, list(tensor.shape), 0, tensor.data.nbytes)}
            raw = file_bytes(header, bytes(tensor.data))
            kinds.append({**layer(root, "tensor", raw), "name": f"layer of {name}"})
    for path in sorted(directory.glob("*.json")) + sorted(directory.glob("tokenizer.model")):
        kinds.append({**layer(root, "json", path.read_bytes()), "name": path.name})
    kinds.append({**layer(root, "json", "{}"), "name": "draft/config.json"})
    config = {"model_format": "safetensors"}
    write_manifest(root, "registry.ollama.ai/library/m/latest", kinds, config)


@pytest.mark.full
def test_tensor_blobs(root: Path) -> None:
    directory = Path(__file__).parents[1] / "data/hf/llama-sharded"
    write_tensors(root, directory, template=LEGACY, params={"top_k": 3})
    ids = list(range(3, 20))
    with trinity.load(directory) as model:
        expected = model.logits(ids)
        ends = model.defaults.end_ids
    with trinity.load("ollama:m") as model:
        assert np.array_equal(model.logits(ids), expected)
        assert model.defaults.end_ids == ends
        assert model._request({}).sampling.top_k == 3
        assert rendered(model).endswith("Q hello A ")
        assert model.config.name == "m"


def test_tensor_blob_that_is_damaged(root: Path) -> None:
    write_tensors(root, Path(__file__).parents[1] / "data/hf/llama-sharded")
    blobs = sorted((root / "blobs").iterdir(), key=lambda blob: blob.stat().st_size)
    blobs[-1].write_bytes(b"\xff" * blobs[-1].stat().st_size)
    with pytest.raises(FormatError, match=r"ollama:m: .*/latest: the tensor layer sha256:"):
        open_weights("ollama:m")
    blobs[-1].unlink()
    with pytest.raises(InputError, match=r"the tensor layer sha256:\w* is missing"):
        open_weights("ollama:m")


def test_a_projector_that_is_not_supported_leaves_the_text(root: Path, gguf: Path) -> None:
    write_store(root, gguf, projector="x", license="y")
    lines: list[str] = []
    trinity.load("ollama:m", progress=lines.append).close()
    assert any("images are not read" in line for line in lines)
    assert not any("license" in line for line in lines)


def test_bare_name(root: Path, gguf: Path) -> None:
    write_store(root, gguf, "Acme/M/V1")
    lines: list[str] = []
    open_weights("acme/m:v1", notice=lines.append).close()
    assert "using the model in Ollama's store (ollama:acme/m:v1)" in lines[0]
    result = CliRunner().invoke(application(), ["tokenize", "--model", "acme/m:v1", "hello"])
    assert result.exit_code == 0
    assert "using the model in Ollama's store" in result.stderr
    Path("acme").mkdir()
    Path("acme/m:v1").write_bytes(gguf.read_bytes())  # a file goes before it
    assert open_weights("acme/m:v1").path == "acme/m:v1"


def test_close_names(root: Path, gguf: Path) -> None:
    write_store(root, gguf, "library/stories/latest")
    with pytest.raises(InputError, match=r"did you mean ollama:stories:latest\?"):
        open_weights("ollama:storys")
    with pytest.raises(InputError, match=r"did you mean stories:latest\?"):
        open_weights("storys")
    with pytest.raises(InputError, match="`ollama pull quite-another` downloads it"):
        open_weights("ollama:quite-another")


@pytest.mark.parametrize("name", ["", "a b", "../x", "m@sha256:abc", "a/b/c/d", "m:", "x" * 500])
def test_no_name(root: Path, name: str) -> None:
    with pytest.raises(InputError, match="not a valid name in Ollama's store"):
        open_weights(f"ollama:{name}")


def test_models_on_servers(root: Path) -> None:
    with pytest.raises(UnsupportedError, match="runs on Ollama's servers"):
        open_weights("ollama:m:cloud")


def test_places(tmp_path: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(stores_module, "SERVICE_STORE", str(tmp_path / "service"))
    with pytest.raises(InputError, match=r"\.ollama/models/.* and .*/service/.*OLLAMA_MODELS"):
        open_weights("ollama:m")
    write_store(tmp_path / "service", gguf)
    assert "/service/" in open_weights("ollama:m").path
    write_store(tmp_path / ".ollama/models", gguf)
    assert "/.ollama/" in open_weights("ollama:m").path
    write_store(tmp_path / "own", gguf)
    monkeypatch.setenv("OLLAMA_MODELS", f' "{tmp_path / "own"}" ')
    assert "/own/" in open_weights("ollama:m").path


def test_older_names_of_blobs(root: Path, gguf: Path) -> None:
    write_store(root, gguf, system="x")
    for blob in (root / "blobs").iterdir():
        blob.rename(blob.with_name(blob.name.replace("-", ":")))
    assert open_weights("ollama:m").defaults.system == "x"


def test_links_out_of_the_store(root: Path, gguf: Path, tmp_path: Path) -> None:
    path = write_store(root, gguf, system="x")
    (system,) = [blob for blob in (root / "blobs").iterdir() if blob.read_bytes() == b"x"]
    system.rename(tmp_path / "outside")
    system.symlink_to(tmp_path / "outside")
    with pytest.raises(FormatError, match=r"the system layer .* is a link out of the store"):
        open_weights("ollama:m")
    path.rename(tmp_path / "manifest")
    path.symlink_to(tmp_path / "manifest")
    with pytest.raises(FormatError, match="a link out of the store"):
        open_weights("ollama:m")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the super-user reads all")
def test_closed_folder(root: Path, gguf: Path) -> None:
    write_store(root, gguf)
    (root / "manifests").chmod(0)
    try:
        with pytest.raises(InputError, match="must be open to you"):
            open_weights("ollama:m")
    finally:
        (root / "manifests").chmod(0o755)


@pytest.mark.parametrize("seed", range(10))
def test_mutated_stores_end_in_a_model_or_an_error(root: Path, gguf: Path, seed: int) -> None:
    rng = random.Random(seed)
    layers = {"params": {"top_k": 1, "stop": ["a"]}, "template": LEGACY, "system": "s"}
    path = write_store(root, gguf, messages=QUESTION, **layers)
    original = path.read_bytes()
    pieces = [b'"', b"{", b"}", b"[", b"]", b":", b",", b"null", b"0", b"-1", b"1e9", b"\\u0000"]
    pieces += [b"sha256:", b"..", b"/", b"\xff", b"model", b"template", b"params", b""]
    told = []
    for _ in range(60):
        raw = bytearray(original)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(raw))
            raw[at : at + rng.choice((0, 1, 4, 30))] = rng.choice(pieces)
        path.write_bytes(raw)
        try:
            model = open_weights("ollama:m")
        except TrinityError as error:
            told.append(str(error))
        else:
            assert model.defaults.source
            model.close()
    assert all(text.startswith(f"ollama:m: {path}: ") for text in told)
    assert len(told) > 30


def test_tokenizer(root: Path, gguf: Path) -> None:
    write_store(root, gguf)
    assert load_tokenizer("ollama:m").vocab_size == load_tokenizer(gguf).vocab_size
