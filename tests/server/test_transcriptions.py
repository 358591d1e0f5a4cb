"""Transcription over HTTP, with OpenAI's client and raw requests, on a small Whisper model."""

from __future__ import annotations

import asyncio
import io
import queue
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

import trinity
from tests.processor_time import within
from tests.server.conftest import LIMIT, socket_server
from tests.speech.test_audio import tone, write_wav
from trinity.model import Model
from trinity.server.app import make_app
from trinity.server.errors import ApiError
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.settings import ServerOptions
from trinity.server.speech import LONGEST, Speech
from trinity.server.transport.multipart import form_fields

openai = pytest.importorskip("openai")
soundfile = pytest.importorskip("soundfile")
PATHS = ("/v1/audio/transcriptions", "/v1/audio/translations")


@pytest.fixture(scope="module")
def folder(short_whisper: Path) -> Path:
    return short_whisper


@pytest.fixture(scope="module")
def whisper(folder: Path) -> Iterator[trinity.SpeechModel]:
    with trinity.SpeechModel(folder / "hf", threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def http(model: Model, folder: Path) -> Iterator[TestClient]:
    """A server of both kinds of models, the second with a limit of 200 kB a recording."""
    speech = Speech("toy", lambda: trinity.SpeechModel(folder / "hf", threads=1))
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
    speech = Speech("toy", lambda: trinity.SpeechModel(folder / "hf", threads=1))
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


@pytest.fixture(scope="module")
def official(model: Model, folder: Path) -> Iterator[openai.OpenAI]:
    """OpenAI's client and a server whose speech model is called toy."""
    speech = Speech("toy", lambda: trinity.SpeechModel(folder / "hf", threads=1))
    models = Models([Served("demo", "demo.gguf", lambda: model, model=model)])
    models._unload = _keep  # type: ignore[method-assign]
    with (
        socket_server(make_app(models, ServerOptions(), speech=speech)) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as made,
    ):
        yield made


DRAWN = {"language": "en", "temperature": 1}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", get_args(openai.types.AudioModel))
def test_models_that_openais_client_names(official: openai.OpenAI, folder: Path, name: str) -> None:
    with open(folder / "audio.wav", "rb") as file:
        found = official.audio.transcriptions.create(file=file, model=name, **DRAWN)
    assert found.text


@pytest.mark.full
def test_a_stream_in_openais_client(
    official: openai.OpenAI, folder: Path, whisper: trinity.SpeechModel
) -> None:
    options: dict[str, Any] = {"language": "en", "first_temperature": 1.0}
    samples = np.tile(tone(16000, 1.0), 35)
    write = io.BytesIO()
    soundfile.write(write, samples, 16000, format="WAV", subtype="FLOAT")
    audio = write.getvalue()
    wanted = whisper.transcribe(samples.astype(np.float32), **options)
    with official.audio.transcriptions.create(
        file=("a.wav", audio), model="gpt-4o-transcribe", stream=True, include=["logprobs"], **DRAWN
    ) as stream:
        *deltas, done = stream
    assert [one.type for one in deltas] == ["transcript.text.delta"] * len(wanted.segments)
    assert len(deltas) > 1
    assert "".join(one.delta for one in deltas) == wanted.text == done.text
    assert done.type == "transcript.text.done"
    assert [one.logprob for delta in deltas for one in delta.logprobs] == [
        one.logprob for one in done.logprobs
    ]
    with official.audio.transcriptions.create(
        file=("a.wav", audio), model="toy", stream=True, **DRAWN
    ) as stream:
        assert all(one.logprobs is None for one in stream)


def test_a_stream_of_wrong_audio_has_its_status(official: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="file: soundfile cannot read it"):
        official.audio.transcriptions.create(file=("a.mp3", b"nothing"), model="toy", stream=True)


@pytest.mark.full
def test_logprobs_of_the_tokens(
    official: openai.OpenAI, folder: Path, whisper: trinity.SpeechModel
) -> None:
    """The bytes form the text; with the timestamps and the end they give avg_logprob."""
    with open(folder / "audio.wav", "rb") as file:
        found = official.audio.transcriptions.create(
            file=file, model="toy", include=["logprobs"], chunking_strategy="auto", **DRAWN
        )
    segments = whisper.transcribe(
        folder / "audio.wav", language="en", first_temperature=1.0
    ).segments
    said = b"".join(bytes(map(int, one.bytes)) for one in found.logprobs)
    texts = [b"".join(piece for piece, _ in whisper.pieces(one)) for one in segments]
    assert said == b"".join(texts)
    assert [one.decode("utf-8", "replace").strip() for one in texts] == [
        one.text for one in segments
    ]
    assert all(one.logprob <= 0 for one in found.logprobs)
    with open(folder / "audio.wav", "rb") as file:
        assert (
            official.audio.transcriptions.create(file=file, model="toy", **DRAWN).logprobs is None
        )


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "subtype"), [("MP3", "MPEG_LAYER_III"), ("FLAC", "PCM_16"), ("OGG", "OPUS")]
)
def test_compressed_audio(official: openai.OpenAI, folder: Path, kind: str, subtype: str) -> None:
    samples, rate = soundfile.read(folder / "audio.wav")
    write = io.BytesIO()
    soundfile.write(write, samples, rate, format=kind, subtype=subtype)
    found = official.audio.transcriptions.create(
        file=("speech.mp3", write.getvalue()), model="toy", response_format="verbose_json", **DRAWN
    )
    assert found.duration == pytest.approx(3.0, abs=0.15)


@pytest.mark.full
def test_fields_without_an_effect_are_named(http: TestClient, folder: Path) -> None:
    audio = (folder / "audio.wav").read_bytes()
    fields: dict[str, str | list[str]] = {
        "temperature": "1", "chunking_strategy[type]": "server_vad", "include[]": ["logprobs"],
        "timestamp_granularities[]": ["segment"], "response_format": "text", "beam": "5",
    }  # fmt: skip
    answer = send(http, audio, **fields)
    assert answer.status_code == 200, answer.text
    assert sorted(answer.headers["x-trinity-ignored"].split(", ")) == [
        "beam",
        "chunking_strategy[type]",
        "include",
        "timestamp_granularities",
    ]
    once = {"timestamp_granularities": "word", "response_format": "verbose_json"}
    answer = send(http, audio, temperature="1", **once)
    assert "words" in answer.json()
    assert "x-trinity-ignored" not in answer.headers


@pytest.mark.full
def test_keywords_are_shown_to_the_model(
    http: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[object] = []
    transcribe = Speech.transcribe

    async def watched(self: Speech, client: str, audio: bytes, **options: object) -> Any:
        shown.append(options["initial_prompt"])
        return await transcribe(self, client, audio, **options)

    monkeypatch.setattr(Speech, "transcribe", watched)
    audio = (folder / "audio.wav").read_bytes()
    fields: dict[str, str | list[str]] = {"keywords[]": ["Ada", "Lovelace"]}
    assert send(http, audio, prompt="A talk", temperature="1", **fields).status_code == 200
    assert send(http, audio, temperature="1").status_code == 200
    assert shown == ["A talk, Ada, Lovelace", ""]


@pytest.mark.full
def test_seek_is_the_windows(
    http: TestClient, folder: Path, whisper: trinity.SpeechModel, tmp_path: Path
) -> None:
    """As in openai/whisper: every segment of a window has the window's first frame."""
    write_wav(tmp_path / "long.wav", np.tile(tone(1000, 1.0), 35), 1000)
    wanted = whisper.transcribe(tmp_path / "long.wav", language="en", first_temperature=1.0)
    audio = (tmp_path / "long.wav").read_bytes()
    answer = send(http, audio, response_format="verbose_json", temperature="1", language="en")
    seeks = [one["seek"] for one in answer.json()["segments"]]
    assert seeks == [one.seek for one in wanted.segments]
    assert len(set(seeks)) > 1


@pytest.mark.parametrize("broken", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_speech_model_that_cannot_be_loaded_does_not_end_the_server(
    model: Model, folder: Path, tmp_path: Path, broken: str
) -> None:
    shutil.copytree(folder / "hf", tmp_path / "hf")
    (tmp_path / "hf" / broken).write_bytes(b"{")
    lines: list[str] = []
    speech = Speech("toy", lambda: trinity.SpeechModel(tmp_path / "hf", threads=1), lines.append)
    models = Models([Served("demo", "demo.gguf", lambda: model, model=model)])
    models._unload = _keep  # type: ignore[method-assign]
    failures: list[BaseException] = []
    app = make_app(models, ServerOptions(), failures.append, speech=speech)
    with TestClient(app, base_url="http://localhost") as client:
        answer = send(client, (folder / "audio.wav").read_bytes())
        assert answer.status_code == 503
        assert broken not in answer.json()["error"]["message"]  # it is in the log
        streamed = send(client, (folder / "audio.wav").read_bytes(), stream="true")
        assert streamed.status_code == 503
        body = {"prompt": "a", "max_tokens": 1}
        assert client.post("/v1/completions", json=body).status_code == 200
    assert failures == []
    (line,) = lines
    assert line.startswith("warning: the speech model toy cannot be loaded")
    assert broken in line


@pytest.mark.full
def test_formats(http: TestClient, folder: Path) -> None:
    audio = (folder / "audio.wav").read_bytes()
    text = send(http, audio, response_format="text", temperature="1", prompt="a name")
    assert text.status_code == 200
    assert text.headers["content-type"].startswith("text/plain")
    lines = send(http, audio, response_format="srt", temperature="1").text
    assert lines.startswith("1\n00:00:")
    assert " --> 00:00:" in lines


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (PATHS[0].removeprefix("/v1"), {"language": "en"}),
        (PATHS[0] + "/", {"language": "EN"}),
        (PATHS[0], {"language": "en-US", "prompt": "", "response_format": ""}),
        (PATHS[0], {"language": "en_GB", "timestamp_granularities": "", "stream": ""}),
    ],
)
def test_unusual_forms(
    http: TestClient, folder: Path, path: str, fields: dict[str, str | list[str]]
) -> None:
    audio = (folder / "audio.wav").read_bytes()
    expected = send(http, audio, language="en", temperature="1").json()
    found = send(http, audio, path, temperature="1", **fields)
    assert found.status_code == 200, found.text
    assert found.json() == expected
    emptied = send(http, audio, temperature="", language="xx")
    assert "language is 'xx'" in emptied.json()["error"]["message"]  # the temperature is none


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"timestamp_granularities[]": ["word"]}, "need response_format verbose_json"),
        ({"response_format": "diarized_json"}, "needs a model that distinguishes speakers"),
        ({"response_format": "xml"}, "response_format: Invalid enum value 'xml'"),
        ({"temperature": "1.5"}, "temperature: Expected `float` <= 1.0"),
        ({"temperature": "warm"}, "temperature: Expected `float`"),
        ({"language": "xx"}, "language is 'xx'; this model knows"),
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
        (whole[:20000], "file: truncated: its header says 3.0 s"),
        (b"no audio at all, but bytes", "file: soundfile cannot read it"),
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
        name.encode(),
        more,
        value,
    )


FORM = "multipart/form-data; boundary=x"


def test_a_form() -> None:
    audio = b"\r\n--y\r\n\r\n\x00\xff--x"
    body = part("file", audio, b'; filename="a--x.wav"\r\nContent-Type: audio/wav')
    body += part("list[]", b"1") + part("list[]", b"2") + part("text", "ä".encode()) + b"--x--\r\n"
    assert form_fields(body, FORM) == {"file": audio, "list": ["1", "2"], "text": "ä"}
    assert form_fields(b"before\r\n" + body, FORM)["text"] == "ä"
    nameless = part("file", audio) + part("text", b"a") + b"--x--\r\n"
    assert form_fields(nameless, FORM, with_filename=True) == {"file": audio, "text": "a"}


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

    def test() -> None:
        with pytest.raises(ApiError):
            form_fields(body, FORM)

    within(2.0, test)


@pytest.mark.few(1)
@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_long_recording_is_refused_by_its_seconds(
    model: Model, folder: Path, stream: str
) -> None:
    """The recording has three seconds; the server's limit is two and a half, then three."""
    models = Models([Served("demo", "demo.gguf", lambda: model, model=model)])
    models._unload = _keep  # type: ignore[method-assign]
    audio = (folder / "audio.wav").read_bytes()
    for longest, status in ((2.5, 413), (3.0, 200)):
        speech = Speech(
            "toy", lambda: trinity.SpeechModel(folder / "hf", threads=1), longest=longest
        )
        app = make_app(models, ServerOptions(), speech=speech)
        with TestClient(app, base_url="http://localhost") as client:
            answer = send(client, audio, temperature="1", language="en", stream=stream)
        assert answer.status_code == status
    assert ServerOptions().max_audio_seconds == LONGEST


def test_clients_take_turns_and_none_has_the_whole_queue() -> None:
    """One client's recordings wait: another client's is next, and the first's ninth is refused."""
    speech = Speech("toy", lambda: None)  # type: ignore[arg-type, return-value]
    begun, may = queue.SimpleQueue[bytes](), threading.Event()

    def run(audio: bytes, *given: Any) -> None:
        begun.put(audio)
        assert may.wait(LIMIT)

    speech._run = run  # type: ignore[method-assign, assignment]

    async def test() -> None:
        first = speech.start("a", b"a0")
        assert await asyncio.to_thread(begun.get, True, LIMIT) == b"a0"
        started = [speech.start("a", b"a%d" % number) for number in range(1, 9)]
        with pytest.raises(ApiError) as refused:
            speech.start("a", b"a9")
        assert (refused.value.status, refused.value.code) == (429, "queue_full")
        other = speech.start("b", b"b0")
        may.set()
        await first.transcript()
        await other.transcript()
        assert begun.get(timeout=LIMIT) == b"b0"
        for one in started:
            one.close()
        await asyncio.to_thread(speech.close)

    asyncio.run(test())
