"""`trinity.ray.generate` and `embed` add columns to a Ray Dataset."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.ray.conftest import Cluster
from trinity import load
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
