"""Usual mistakes: the message names the file or option, what was found, and the remedy."""

from __future__ import annotations

import re
import shlex
import socket
import sys
from pathlib import Path

import pytest

import trinity
from tests.tiny_models import write_tiny_model
from trinity.cli import _run
from trinity.cli.parameters import Exit
from trinity.formats.gguf_writer import GGUFWriter

LOADED = [  # words; what the message says
    ("--model dir hi", "dir: this is a folder with no config.json and no .gguf file; give the"),
    ("--model empty.gguf hi", "empty.gguf: the file is empty; download or convert it again"),
    ("--model text.gguf hi", "text.gguf: not a GGUF file.*give the model's .gguf file instead"),
    ("--model cut.gguf hi", "cut.gguf: .*damaged or incomplete: download or convert it again"),
    ("--model tex.gguf hi", "tex.gguf: there is no such file or model.*did you mean text.gguf"),
    ("--model missing hi", "missing: there is no such file or model; .*check the path"),
    ("--model user/repo hi", "user/repo: .*did you mean hf:user/repo"),
    ("--model hf:user hi", "hf:user: 'user' is not the name of a repository; expected hf:USER/"),
    ("--model https://huggingface.co/user/repo hi", "did you mean hf:user/repo"),
    ("--model http://host.invalid/a.gguf hi", "not loaded from a URL; download the file"),
    ("--model ollama:missing hi", "ollama:missing: there is no such model"),
    ("--file missing.txt", "missing.txt: cannot be read .No such file.*; give a text file"),
    ("--file dir", "dir: cannot be read .Is a directory.; give a text file"),
    ("--json-schema bad.json hi", "bad.json: the JSON schema is not valid JSON: .*line 2"),
    ("--json-schema '{\"type\": 5}' hi", "cannot be compiled: check its syntax and the types"),
    ("--regex '(' hi", "the regular expression cannot be used: .*unclosed group"),
    ("--lora missing hi", "error: missing: there is no such file; check the path"),
    ("--lora dir hi", "error: dir: there is no adapter_config.json in dir"),
    ("--lora text.gguf:abc hi", "--lora: text.gguf has the scale 'abc'; it must be a number, such"),
    ("--draft-model text.gguf hi", "error: text.gguf: not a GGUF file"),
    ("--grammar bad.gbnf hi", "bad.gbnf: the grammar is not valid GBNF: .*correct it at this"),
    (
        "--model words.gguf hi",
        "words.gguf: a vocabulary without weights.*give the model's own file",
    ),
    ("--image a.png hi", "reads only text: use a vision model, or a GGUF model with its --mmproj"),
]
USAGE = [
    ("generate -n -1x hi", "--max-tokens is '-1x'; it must be an integer"),
    ("generate -n 1.5 hi", "--max-tokens is '1.5'; it must be an integer"),
    ("generate --temp -1 hi", "--temperature is -1; it must be a finite number of at least 0"),
    ("generate --top-p 2 hi", "--top-p is 2; it must be a number from 0 to 1"),
    ("generate --kv-type q4 hi", "--kv-type is 'q4'; it must be f16 or q8_0 or f32"),
    ("generate --tempratur 1 hi", "No such option: --tempratur.*--temperature"),
    ("generate --prompt", "'--prompt' requires an argument"),
    ("generate two words", "'words' is a word too many: `generate` takes PROMPT; .* quotation"),
    ("serve m.gguf", "'m.gguf' is a word too many: .*write a model as --model m.gguf"),
    ("transcribe a.wav", "--model is missing: A Whisper model: .*hf:USER/REPO"),
    ("text.gguf", "no command 'text.gguf': use `trinity chat --model text.gguf`"),
    ("hf:user/repo hi", "no command 'hf:user/repo': use `trinity chat --model hf:user/repo`"),
    ("doctor now", "'now' is a word too many: `doctor` takes only options; remove it"),
    ("generate --samplers top_q hi", "--samplers has 'top_q'; it must be of penalties"),
    (
        "generate --grammar 'root ::= \"a\"' hi",
        "--grammar takes a file; write the grammar into one",
    ),
    ("generate --system x hi", "--system needs a chat template: add --chat"),
    ("generate --logit-bias x hi", "--logit-bias 'x': write it as ID=VALUE"),
    ("genrate hi", "'genrate'. Did you mean 'generate'"),
    ("frobnicate", "No such command 'frobnicate'"),
    ("serve --port 70000", "--port is 70000; it must be an integer from 0 to 65535"),
    ("serve --memory-limit lots", "--memory-limit is 'lots'; expected a size such as 16GB"),
    ("quantize a.gguf b.gguf Q9", "type is 'Q9'; it must be one of BF16, .*Q4_K_M"),
    ("quantize a.gguf", "Missing argument 'OUT'"),
    ("recommend --params x", "--params is 'x'; expected a number of parameters such as 7B"),
]
OTHERS = [
    ("schema bad.json", "bad.json: the JSON schema is not valid JSON: .*line 2"),
    ("quantize text.gguf out.gguf Q8_0", "text.gguf: not a GGUF file.*give the model's .gguf"),
    ("rm missing.gguf", "missing.gguf: there is no such model in .*list` shows"),
    ("rm text.gguf", "text.gguf: this file is not in .*where trinity keeps its files; remove it"),
    ("pull llama3.2", "'llama3.2' is not .*; `ollama pull llama3.2` downloads models for Ollama"),
    ("pull https://huggingface.co/u/r", "expected hf:USER/REPO.*; did you mean hf:u/r"),
    ("pull ..", "'..' is not the name of a repository; expected hf:USER/REPO"),
    ("inspect text.gguf", "text.gguf: not a GGUF file"),
    ("convert dir out.gguf", "dir: this is a folder with no config.json"),
    ("generate 'caf\udce9'", "the prompt is not UTF-8 text: .*set the terminal's encoding"),
    ("embed 'caf\udce9'", "the text is not UTF-8 text: .*or give the text in a file"),
    ("serve --api-key-file missing", "missing: the API keys cannot be read.*one key per line"),
    ("serve --host host.invalid", "cannot listen on host.invalid:8080: .*such as --host 127.0.0.1"),
]
CASES = [*((f"generate {words}", said) for words, said in LOADED), *USAGE, *OTHERS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mistakes")
    (made / "dir").mkdir()
    for name, content in (
        ("empty.gguf", b""), ("text.gguf", b"hello\n"), ("bad.json", b"{\n"),
        ("cut.gguf", b"GGUF\3\0\0\0" + bytes(4)), ("bad.gbnf", b'root ::= "a'),
    ):  # fmt: skip
        (made / name).write_bytes(content)
    write_tiny_model(made / "tiny.gguf")
    with trinity.open_weights(made / "tiny.gguf") as tiny, GGUFWriter(made / "words.gguf") as words:
        for key, value in tiny.metadata.items():
            words.add(key, value)
    (made / "tiny.gguf").unlink()
    return made


def said(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command line that must fail writes to standard error, on one line."""
    monkeypatch.setattr(sys, "argv", ["trinity", *shlex.split(words)])
    with pytest.raises((Exit, SystemExit)) as ended:
        _run(sys.argv[1:])
    assert ended.value.code in (1, 2)
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.few(12)
@pytest.mark.parametrize(("words", "text"), CASES)
def test_a_mistake_is_explained(
    words: str,
    text: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    assert re.search(text, said(words, monkeypatch, capsys))


def test_a_port_in_use_gives_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = said(f"serve --port {port}", monkeypatch, capsys)
    assert f"127.0.0.1:{port}: another program uses the port; give another one" in text
    assert f"--port {port + 1}" in text
