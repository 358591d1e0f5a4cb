"""Rows of `trinity batch` that rank, and rows of speech; a folder gets the responses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.cli.conftest import Run
from tests.cli.test_batch import answers, row, write


def request(custom_id: str, url: str, **body: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "url": url, "body": body}


def test_rows_rank(run: Run, shared_data: Path, tmp_path: Path) -> None:
    reranker = str(shared_data / "encoders" / "xlm_roberta_rerank" / "model.gguf")
    texts = ["a license grants rights", "rain"]
    rows = [request("a", "/v1/rerank", query="what is a license", documents=texts)]
    out = tmp_path / "out"
    out.mkdir()
    result = run("batch", str(write(tmp_path / "rows.jsonl", rows)), str(out), "-m", reranker)
    assert result.exit_code == 0, result.stderr
    results = answers(out / "rows.jsonl")["a"]["body"]["results"]
    with trinity.load(reranker, threads=1) as model:
        wanted = model.rank("what is a license", texts)
    scores = {one["index"]: one["relevance_score"] for one in results}
    np.testing.assert_allclose([scores[0], scores[1]], wanted, rtol=1e-5)


@pytest.mark.full
def test_rows_of_speech(run: Run, short_whisper: Path, tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    model, audio = str(short_whisper / "hf"), str(short_whisper / "audio.wav")
    url = "/v1/audio/transcriptions"
    rows = [
        request("words", url, file=audio, language="en", response_format="verbose_json",
                timestamp_granularities=["word", "segment"]),
        request("srt", url, file=audio, response_format="srt"),
        request("gone", url, file=str(tmp_path / "gone.wav")),
        request("none", url, language="en"),
        row(1),
    ]  # fmt: skip
    out = tmp_path / "out.jsonl"
    source = str(write(tmp_path / "rows.jsonl", rows))
    result = run("batch", source, str(out), "--speech-model", model, "--threads", "1")
    assert result.exit_code == 1, result.stderr
    found = answers(out)
    with trinity.SpeechModel(model, threads=1) as speech:
        wanted = speech.transcribe(audio, language="en")
    assert found["words"]["body"]["text"].strip() == wanted.text.strip()
    assert "words" in found["words"]["body"]
    assert "-->" in found["srt"]["body"]
    assert found["gone"]["status_code"] == 400
    assert "gone.wav" in found["gone"]["body"]["error"]["message"]
    assert found["none"]["body"]["error"]["param"] == "file"
    assert found["r1"]["status_code"] == 200
