"""Speech to text over HTTP, by OpenAI's client and by hand, with the small random Whisper model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

import trinity
from tests.server.conftest import socket_server
from tests.speech.test_audio import tone, write_wav
from trinity.model import Model
from trinity.server.app import make_app
from trinity.server.errors import ApiError
from trinity.server.models import Models, Served
from trinity.server.multipart import form_fields
from trinity.server.settings import ServerOptions
from trinity.server.speech import Speech

openai = pytest.importorskip("openai")
PATHS = ("/v1/audio/transcriptions", "/v1/audio/translations")


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    return shared_data / "encoders" / "whisper"


@pytest.fixture(scope="module")
def whisper(folder: Path) -> Iterator[trinity.SpeechModel]:
    with trinity.SpeechModel(folder / "hf", threads=2) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def http(model: Model, folder: Path) -> Iterator[TestClient]:
    """A server of both kinds of models, the second with a limit of 200 kB a recording."""
    speech = Speech("toy", lambda: trinity.SpeechModel(folder / "hf", threads=2))
    models = Models([Served("demo", "demo.gguf", lambda: model, model=model)])
    models._unload = _keep  # type: ignore[method-assign]
    app = make_app(models, ServerOptions(max_audio=200_000), speech=speech)
    with TestClient(app, base_url="http://localhost") as client:
        yield client


async def _keep(served: Served) -> None:
    """The model is everybody's."""


def send(
    http: TestClient, audio: bytes, path: str = PATHS[0], **fields: str | list[str]
) -> httpx.Response:
    return http.post(path, files={"file": ("a.wav", audio)}, data=fields)


def test_official_client(model: Model, folder: Path, whisper: trinity.SpeechModel) -> None:
    speech = Speech("toy", lambda: trinity.SpeechModel(folder / "hf", threads=2))
    models = Models([Served("demo", "demo.gguf", lambda: model, model=model)])
    models._unload = _keep  # type: ignore[method-assign]
    wanted = whisper.transcribe(folder / "audio.wav", language="en", first_temperature=1.0)
    english = whisper.transcribe(folder / "audio.wav", task="translate", first_temperature=1.0)
    with (
        socket_server(make_app(models, ServerOptions(), speech=speech)) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        open(folder / "audio.wav", "rb") as file,
    ):
        audio = client.audio
        plain = audio.transcriptions.create(
            file=file, model="whisper-1", language="en", temperature=1
        )
        assert plain.text == wanted.text
        assert plain.usage.seconds == wanted.duration == 3.0
        file.seek(0)
        told = audio.transcriptions.create(
            file=file, model="toy", language="en", response_format="verbose_json", temperature=1,
            timestamp_granularities=["segment"],
        )  # fmt: skip
        assert (told.text, told.language) == (wanted.text, "en")
        found = [(one.start, one.end, one.text, tuple(one.tokens)) for one in told.segments]
        assert found == [(one.start, one.end, one.text, one.tokens) for one in wanted.segments]
        assert told.words is None
        file.seek(0)
        worded = audio.transcriptions.create(
            file=file, model="toy", language="en", response_format="verbose_json", temperature=1,
            timestamp_granularities=["word"],
        )  # fmt: skip
        timed = whisper.transcribe(
            folder / "audio.wav", language="en", first_temperature=1.0, word_times=True
        )
        assert [(one.word, one.start, one.end) for one in worded.words] == [
            (word.text.strip(), word.start, word.end)
            for one in timed.segments
            for word in one.words
        ]
        file.seek(0)
        with pytest.warns(DeprecationWarning, match="deprecated"):
            translated = audio.translations.create(file=file, model="toy", temperature=1)
        assert translated.text == english.text
        file.seek(0)
        lines = audio.transcriptions.create(
            file=file, model="toy", language="en", response_format="vtt", temperature=1
        )
        assert lines.startswith("WEBVTT\n")
        assert lines.count("-->") == len(wanted.segments)
        with pytest.raises(openai.NotFoundError, match="there is no speech model 'gpt-x'"):
            audio.transcriptions.create(file=file, model="gpt-x")


def test_formats(http: TestClient, folder: Path) -> None:
    audio = (folder / "audio.wav").read_bytes()
    text = send(http, audio, response_format="text", temperature="1", prompt="a name")
    assert text.status_code == 200
    assert text.headers["content-type"].startswith("text/plain")
    lines = send(http, audio, response_format="srt", temperature="1").text
    assert lines.startswith("1\n00:00:")
    assert " --> 00:00:" in lines


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"timestamp_granularities[]": ["segment"]}, "take response_format verbose_json"),
        ({"response_format": "xml"}, "response_format: Invalid enum value 'xml'"),
        ({"temperature": "1.5"}, "temperature: Expected `float` <= 1.0"),
        ({"temperature": "warm"}, "temperature: Expected `float`"),
        ({"language": "xx"}, "language is 'xx'; this model knows"),
        ({"stream": "true"}, "transcripts are not streamed"),
        ({"prompt": "word " * 300}, "initial_prompt has"),
    ],
)
def test_wrong_fields(
    http: TestClient, folder: Path, fields: dict[str, str | list[str]], message: str
) -> None:
    answer = send(http, (folder / "audio.wav").read_bytes(), **fields)
    assert answer.status_code == 400, answer.text
    assert message in answer.json()["error"]["message"]


def test_wrong_audio(http: TestClient, folder: Path, tmp_path: Path) -> None:
    whole = (folder / "audio.wav").read_bytes()
    for audio, message in (
        (b"", "file: the file is empty"),
        (whole[:20000], "file: cut: its header promises 3.0 s"),
        (b"no audio at all, but bytes", "file: no"),
    ):
        answer = send(http, audio)
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert message in error["message"]
        assert error["param"] == "file"
    assert http.post(PATHS[1], files={"other": b"x"}).status_code == 400
    assert send(http, bytes(300_000)).status_code == 413
    write_wav(tmp_path / "stereo.wav", np.stack([tone(8000, 1.0)] * 2, 1), 8000)
    answer = send(
        http,
        (tmp_path / "stereo.wav").read_bytes(),
        response_format="verbose_json",
        temperature="1",
    )
    assert answer.json()["duration"] == 1.0


def test_others_are_served_meanwhile(http: TestClient, folder: Path) -> None:
    assert http.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200
    assert http.post(PATHS[0], json={"file": "x"}).status_code == 415


def test_without_a_speech_model(client: TestClient) -> None:
    for path in PATHS:
        answer = client.post(path, files={"file": b"x"})
        assert answer.status_code == 404
        assert "--speech-model" in answer.json()["error"]["message"]


def part(name: str, value: bytes, more: bytes = b"") -> bytes:
    return b'--x\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n' % (
        name.encode(), more, value,
    )  # fmt: skip


FORM = "multipart/form-data; boundary=x"


def test_a_form() -> None:
    audio = b"\r\n--y\r\n\r\n\x00\xff--x"
    body = part("file", audio, b'; filename="a--x.wav"\r\nContent-Type: audio/wav')
    body += part("list[]", b"1") + part("list[]", b"2") + part("text", "ä".encode()) + b"--x--\r\n"
    assert form_fields(body, FORM) == {"file": audio, "list": ["1", "2"], "text": "ä"}
    assert form_fields(b"before\r\n" + body, FORM)["text"] == "ä"


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"", FORM, 400),
        (b"nothing", FORM, 400),
        (part("a", b"1"), FORM, 400),  # no end
        (b"--x\r\n\r\nvalue\r\n--x--", FORM, 400),  # no name
        (b"--x\r\nContent-Disposition: form-data; name=a\r\n--x--", FORM, 400),
        (part("a", b"1") * 2 + b"--x--", FORM, 400),
        (part("a", b"1") * 100 + b"--x--", FORM, 400),
        (part("a", b"\xff") + b"--x--", FORM, 400),
        (part("a", b"1" * 100_000) + b"--x--", FORM, 400),
        (part("a", b"1") + b"--x--", "multipart/form-data", 415),
        (part("a", b"1") + b"--x--", "application/json", 415),
        (part("a", b"1") + b"--x--", "multipart/form-data; boundary=" + "x" * 71, 400),
    ],
)
def test_damaged_forms(body: bytes, kind: str, status: int) -> None:
    with pytest.raises(ApiError) as caught:
        form_fields(body, kind)
    assert caught.value.status == status


def test_a_large_damaged_form_takes_no_time() -> None:
    body = part("file", b"\r\n-" * 5_000_000, b'; filename="a"')
    began = time.thread_time()
    with pytest.raises(ApiError):
        form_fields(body, FORM)
    assert time.thread_time() - began < 2.0
