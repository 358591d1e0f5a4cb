"""`trinity.ray.generate`, `embed`, `rank` and `transcribe` add columns to a Ray Dataset."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ray.conftest import Cluster
from trinity import SpeechModel, load
from trinity.loading import chat_model

PROGRAM = """
import json, sys
import ray
import trinity.ray

ray.init(address=sys.argv[2], log_to_driver=False)
talk = [{"role": "user", "content": "Who is Pierre?"}]
model = sys.argv[1]
rows = [{"id": i, "prompt": text} for i, text in enumerate(["Pierre", "Natasha", "x " * 5000])]
made = trinity.ray.generate(
    ray.data.from_items(rows), model, at_once=2, loading={"context_length": 512}, max_tokens=8,
    temperature=0,
)
chats = ray.data.from_items([{"talk": talk}])
chats = trinity.ray.generate(chats, model, column="talk", max_tokens=8, temperature=0)
vectors = trinity.ray.embed(ray.data.from_items([{"text": "Pierre"}]), model)
found = [made.take_all(), chats.take_all(), vectors.take_all()]
print(json.dumps(found, default=lambda array: array.tolist()))
"""


@pytest.mark.full
def test_columns_of_texts_and_vectors(cluster: Cluster) -> None:
    command = [sys.executable, "-c", PROGRAM, chat_model(), cluster.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    made, chats, vectors = json.loads(done.stdout.splitlines()[-1])
    with load(chat_model(), threads=1) as model:
        for number, row in enumerate(sorted(made, key=lambda row: row["id"])[:2]):
            completion = model.generate(["Pierre", "Natasha"][number], max_tokens=8, temperature=0)
            assert row["text"] == completion.text
            assert row["completion_tokens"] == len(completion.token_ids)
            assert row["error"] is None
        talk = [{"role": "user", "content": "Who is Pierre?"}]
        assert chats[0]["text"] == model.chat(talk, max_tokens=8, temperature=0).text
        assert vectors[0]["embedding"] == pytest.approx(model.embed(["Pierre"])[0].tolist())
    wrong = next(row for row in made if row["id"] == 2)
    assert wrong["text"] is None
    assert "512" in wrong["error"]


OTHERS = """
import json, sys
from pathlib import Path
import ray
import trinity.ray

ray.init(address=sys.argv[1], log_to_driver=False)
reranker, speech, audio = sys.argv[2:]
rows = [{"query": "what is a license", "documents": ["a license grants rights", "rain"]}]
ranked = trinity.ray.rank(ray.data.from_items([*rows, {"query": "", "documents": ["a"]}]), reranker)
paths = [{"audio": audio}, {"audio": "/nowhere.wav"}]
heard = trinity.ray.transcribe(ray.data.from_items(paths), speech, language="en")
bytes_of = ray.data.from_items([{"audio": Path(audio).read_bytes()}])
same = trinity.ray.transcribe(bytes_of, speech, language="en")
found = [ranked.take_all(), heard.take_all(), same.select_columns(["text", "error"]).take_all()]
print(json.dumps(found, default=lambda array: array.tolist()))
"""


@pytest.mark.full
def test_columns_of_scores_and_transcripts(
    cluster: Cluster, shared_data: Path, short_whisper: Path
) -> None:
    reranker = str(shared_data / "encoders" / "xlm_roberta_rerank" / "model.gguf")
    speech, audio = str(short_whisper / "hf"), str(short_whisper / "audio.wav")
    command = [sys.executable, "-c", OTHERS, cluster.address, reranker, speech, audio]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    ranked, heard, same = json.loads(done.stdout.splitlines()[-1])
    with load(reranker, threads=1) as model:
        wanted = model.rank("what is a license", ["a license grants rights", "rain"])
    right, wrong = sorted(ranked, key=lambda row: row["error"] is not None)
    assert right["scores"] == pytest.approx(wanted.tolist())
    assert wrong["scores"] is None
    with SpeechModel(speech, threads=1) as listener:
        text = listener.transcribe(audio, language="en").text
    right, wrong = sorted(heard, key=lambda row: row["error"] is not None)
    assert right["text"] == same[0]["text"] == text
    assert "nowhere.wav" in wrong["error"]
