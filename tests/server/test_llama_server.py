"""llama.cpp's endpoints other than completions."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

import trinity
from tests.server.asgi import strict
from tests.server.conftest import LIMIT, MakeApp
from trinity.errors import InputError
from trinity.model import Model
from trinity.runtime.generation import Timings
from trinity.runtime.scheduling.scheduler_stats import SchedulerStats
from trinity.server.app import make_app
from trinity.server.metrics import LlamaMetrics
from trinity.server.models import Models
from trinity.server.process import listening
from trinity.server.served import Served
from trinity.server.settings import ServerOptions

PREFIX = "llamacpp:"


def figures(client: TestClient) -> dict[str, float]:
    lines = client.get("/metrics").text.splitlines()
    pairs = (line.removeprefix(PREFIX).split(" ") for line in lines if line.startswith(PREFIX))
    return {name: float(value) for name, value in pairs}


def test_figures_are_sums_of_what_answers_tell(make: MakeApp) -> None:
    with TestClient(make(), base_url="http://localhost") as client:
        assert figures(client)["prompt_tokens_total"] == 0
        body = {"prompt": "Natasha and Pierre " * 4, "n_predict": 6, "ignore_eos": True}
        timings = [client.post("/completion", json=body).json()["timings"] for _ in range(2)]
        found = figures(client)
        for name, ours in (
            ("prompt_tokens_total", "prompt_n"),
            ("prompt_tokens_cached_total", "cache_n"),
            ("tokens_predicted_total", "predicted_n"),
        ):
            assert found[name] == sum(one[ours] for one in timings)
        assert found["prompt_tokens_cached_total"] > 0
        assert found["tokens_predicted_seconds_total"] == pytest.approx(
            sum(one["predicted_ms"] for one in timings) / 1000
        )
        assert found["n_decode_total"] >= 11
        assert found["n_tokens_max"] == timings[0]["prompt_n"] + 6 + timings[0]["cache_n"]
        assert found["requests_processing"] == found["requests_deferred"] == 0
        text = client.post("/v1/embeddings", json={"input": ["Natasha", "Pierre"]}).json()
        after = figures(client)
        assert (
            after["prompt_tokens_total"]
            == found["prompt_tokens_total"] + text["usage"]["prompt_tokens"]
        )
        assert after["tokens_predicted_total"] == found["tokens_predicted_total"]


def test_figures_have_types_and_the_time_of_the_start(client: TestClient) -> None:
    response = client.get("/metrics")
    families = [*text_string_to_metric_families(response.text)]  # it can be read
    assert sum(family.name.startswith(PREFIX) for family in families) == 15
    assert int(response.headers["Process-Start-Time-Unix"]) > 0
    lines = response.text.splitlines()
    names = [line.split(" ")[0] for line in lines if line.startswith(PREFIX)]
    assert len(names) == len(set(names)) == 15
    for name in names:
        assert any(line.startswith(f"# HELP {name} ") for line in lines)
        kind = "counter" if name.endswith(("_total", "_max")) else "gauge"
        assert f"# TYPE {name} {kind}" in lines


def test_steps_of_an_unloaded_model_stay_counted() -> None:
    def steps(**works: SchedulerStats) -> str:
        (line,) = (
            one
            for one in figures.text(works).splitlines()
            if one.startswith("llamacpp:n_decode_total ")
        )
        return line.split(" ")[1]

    figures = LlamaMetrics()
    assert steps(a=SchedulerStats(steps=5), b=SchedulerStats()) == "5"
    assert steps(a=SchedulerStats(), b=SchedulerStats(steps=2)) == "7"
    assert steps(a=SchedulerStats(steps=1), b=SchedulerStats(steps=4)) == "10"
    figures.ended(Timings(10, 4, 2.0, 5, 4, 1.0))
    assert "llamacpp:prompt_tokens_seconds 3.0\n" in figures.text({})
    assert "llamacpp:predicted_tokens_seconds 4.0\n" in figures.text({})


def test_a_path_can_be_turned_off(make: MakeApp) -> None:
    app = make(disable=["/metrics", "/completion"])
    with TestClient(app, base_url="http://localhost") as client:
        for response in (client.get("/metrics"), client.post("/completion", json={"prompt": "x"})):
            assert response.status_code == 501
            assert strict(response.text)["error"]["type"] == "not_supported_error"
        assert client.get("/slots").status_code == 200
    with pytest.raises(InputError, match="/metric"):
        make(disable=["/metric"])


def test_several_addresses_are_listened_on_and_known(make: MakeApp) -> None:
    options = ServerOptions(host="127.0.0.1, models.internal")
    assert options.hosts == ("127.0.0.1", "models.internal")
    with TestClient(make(host="127.0.0.1,models.internal")) as client:
        for host, status in (("models.internal:80", 200), ("127.0.0.1", 200), ("other", 403)):
            assert client.get("/health", headers={"Host": host}).status_code == status
    for host in ("127.0.0.1,", ",", "127.0.0.1, ,::1"):
        with pytest.raises(InputError, match="host is"):
            ServerOptions(host=host)


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.full
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_both_loopback_addresses_share_a_port() -> None:
    from tests.server.test_process import process, until_ready

    with listening("127.0.0.1", 0) as taken:
        free = taken.getsockname()[1]
    with process("--host", "127.0.0.1,::1", "--port", str(free)) as (_, url):
        until_ready(url)
        assert httpx.get(f"http://[::1]:{free}/health", timeout=LIMIT).status_code == 200


def test_the_header_of_figures_is_written_with_capitals(url: str) -> None:
    raw = httpx.get(f"{url}/metrics", timeout=LIMIT).headers.raw
    assert b"Process-Start-Time-Unix" in [name for name, _ in raw]


def test_ignore_eos_forbids_ends(client: TestClient, model: Model) -> None:
    """Null is minus infinity, as in llama.cpp's server."""
    ends = [{"token": token, "bias": None} for token in sorted(model.tokenizer.eog_ids)]
    for given, expected in ((True, ends), (False, [])):
        body = {"prompt": "Natasha", "n_predict": 4, "ignore_eos": given}
        found = client.post("/completion", json=body).json()["generation_settings"]
        assert sorted(found["logit_bias"], key=lambda one: one["token"]) == expected


@pytest.fixture(scope="module")
def several() -> Iterator[TestClient]:
    """A server with two models, of which the second has a shorter context."""
    path = trinity.demo_model()
    with trinity.load(path, threads=1) as a, trinity.load(path, threads=1, context_length=64) as b:
        served = [Served(name, f"{name}.gguf", lambda: a, model=model)
                  for name, model in (("first", a), ("second", b))]  # fmt: skip
        app = make_app(Models(served), ServerOptions(slot_save_path="unused"))
        with TestClient(app, base_url="http://localhost") as client:
            yield client


def test_a_query_names_the_model(several: TestClient) -> None:
    """As to llama.cpp's router: ``GET /props?model=NAME``."""
    for query, name, context in (("", "first", 512), ("?model=second", "second", 64)):
        found = several.get(f"/props{query}").json()
        assert (found["model_alias"], found["model_path"]) == (name, f"{name}.gguf")
        assert found["default_generation_settings"]["n_ctx"] == context
        assert several.get(f"/slots{query}").json()[0]["n_ctx"] == context
        assert several.get(f"/tokenizer_info{query}").json()["model_max_length"] == context
        assert several.get(f"/lora-adapters{query}").json() == []
    for path in ("/props", "/slots", "/lora-adapters", "/tokenizer_info"):
        assert several.get(f"{path}?model=third").status_code == 404
    for path, body in (("/slots/0?action=erase&model=third", {}),
                       ("/slots/0?action=erase", {"model": "third"}),
                       ("/lora-adapters?model=third", [])):  # fmt: skip
        assert several.post(path, json=body).status_code == 404
    assert several.post("/slots/0?action=erase&model=second", json={}).json()["n_erased"] == 0


def test_properties_of_a_model(make: MakeApp, model: Model) -> None:
    """The names of llama.cpp's server; the texts are those of the model's vocabulary."""
    with TestClient(make(), base_url="http://localhost") as client:
        found = client.get("/props").json()
    tokens = model.tokenizer.token_text
    assert found["bos_token"] == tokens(model.tokenizer.bos_id or 0)
    assert found["eos_token"] == tokens(model.tokenizer.eos_id or 0)
    assert found["modalities"] == {"vision": False, "audio": False, "video": False}
    ends = {name: on for name, on in found.items() if name.startswith("endpoint_")}
    assert ends == {"endpoint_slots": True, "endpoint_props": False, "endpoint_metrics": True}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/completion", {}, 400),
        ("/completion", {"prompt": "a", "grammar": "root ::= ("}, 400),
        ("/completion", {"prompt": "war " * 2000}, 400),
        ("/tokenize", {"content": 1}, 400),
        ("/detokenize", {}, 400),
        ("/apply-template", {}, 400),
        ("/infill", {"input_prefix": 1}, 400),
        ("/embedding", {}, 400),
        ("/models/load", {"model": "nope"}, 404),
        ("/slots/x?action=erase", {}, 400),
        ("/lora-adapters", {}, 400),
    ],
)
def test_an_error_has_its_status_as_code(
    make: MakeApp, path: str, body: object, status: int
) -> None:
    """llama.cpp's server: ``{"error": {"code": 400, "message": ..., "type": ...}}``."""
    with TestClient(make(), base_url="http://localhost") as client:
        response = client.post(path, json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (status, status)


@pytest.mark.parametrize(("count", "cached"), [(0, 13), (1, 13), (16, 28)])
def test_the_last_token_of_a_response_is_not_cached(
    make: MakeApp, model: Model, count: int, cached: int
) -> None:
    """llama.cpp's server cached 28 tokens of a prompt of 13 and a response of 16."""
    ids = model.tokenize("Prince Andrew and Pierre and Natasha")
    body = {"prompt": (ids * 13)[:13], "n_predict": count, "ignore_eos": True}
    with TestClient(make(), base_url="http://localhost") as client:
        assert client.post("/completion", json=body).json()["tokens_cached"] == cached
