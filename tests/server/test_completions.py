"""Text completions of OpenAI and llama.cpp; tokens, templates, models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from starlette.testclient import TestClient

import trinity
from tests.server.asgi import events, strict
from trinity.errors import InputError
from trinity.model import Model
from trinity.runtime.sampling.distribution import log_normalizer
from trinity.server.app import make_app
from trinity.server.model_refs import served_models
from trinity.server.models import Models
from trinity.server.setting_values import read_names, read_template
from trinity.server.settings import ServerOptions

PROMPT = "Prince Andrew was"
GREEDY = {"temperature": 0, "max_tokens": 6, "ignore_eos": True}


def post(client: TestClient, path: str = "/v1/completions", **body: Any) -> Any:
    response = client.post(path, json={"prompt": PROMPT, **GREEDY, **body})
    assert response.status_code == 200, response.text
    return strict(response.text)


def streamed(client: TestClient, path: str = "/v1/completions", **body: Any) -> list[Any]:
    response = client.post(path, json={"prompt": PROMPT, **GREEDY, "stream": True, **body})
    assert response.status_code == 200, response.text
    return events(response.content)


@pytest.fixture(scope="module")
def alone(model: Model) -> str:
    return model.generate(PROMPT, temperature=0, max_tokens=6, ignore_eos=True).text


def test_text_and_stream_are_the_models(client: TestClient, alone: str) -> None:
    answer = post(client)
    (choice,) = answer["choices"]
    assert len(choice.pop("token_hash")) == 32
    assert choice == {"index": 0, "text": alone, "logprobs": None, "finish_reason": "length"}
    found = streamed(client)
    assert "".join(one["choices"][0]["text"] for one in found[:-1]) == alone
    assert found[-1] == "[DONE]"
    assert found[-2]["choices"][0]["finish_reason"] == "length"


def test_max_tokens_is_16_where_none_is_given(client: TestClient) -> None:
    assert post(client, max_tokens=None)["usage"]["completion_tokens"] == 16


def test_several_prompts_of_texts_or_tokens(client: TestClient, model: Model, alone: str) -> None:
    ids = model.tokenize(PROMPT)
    for prompt in ([PROMPT, PROMPT], [ids, ids]):
        choices = post(client, prompt=prompt)["choices"]
        assert [one["text"] for one in choices] == [alone, alone]
    assert post(client, prompt=ids)["choices"][0]["text"] == alone
    answer = post(client, prompt=[PROMPT, "The Emperor"], n=2)
    assert [one["index"] for one in answer["choices"]] == [0, 1, 2, 3]
    assert [one["text"] for one in answer["choices"][:2]] == [alone, alone]
    assert answer["usage"]["prompt_tokens"] == len(ids) + len(model.tokenize("The Emperor"))


def test_echo_with_logprobs_is_the_models_own(client: TestClient, model: Model) -> None:
    (choice,) = post(client, echo=True, logprobs=2)["choices"]
    (stream, *_) = streamed(client, echo=True, logprobs=2)
    found = choice["logprobs"]
    ids = model.tokenize(PROMPT)
    logits = model.logits(ids)
    expected = [
        float(logits[place][token]) - log_normalizer(logits[place])
        for place, token in enumerate(ids[1:])
    ]
    assert choice["text"].startswith(PROMPT)
    assert found["token_logprobs"][0] is None
    assert found["token_logprobs"][1 : len(ids)] == pytest.approx(expected, abs=0.02)
    assert len(found["tokens"]) == len(found["text_offset"]) == len(ids) + 6
    for token, offset in list(zip(found["tokens"], found["text_offset"], strict=True))[1:]:
        assert choice["text"][offset:].startswith(token)
    assert all(len(one) in (2, 3) for one in found["top_logprobs"][1:])
    assert stream["choices"][0]["text"] == PROMPT
    assert stream["choices"][0]["logprobs"]["tokens"] == found["tokens"][: len(ids)]


def test_log_probabilities_of_the_prompt_in_vllms_form(client: TestClient, model: Model) -> None:
    echoed = post(client, echo=True, logprobs=2)["choices"][0]["logprobs"]
    both = [PROMPT, "The Emperor"]
    choices = post(client, prompt=both, n=2, prompt_logprobs=2, temperature=1)["choices"]
    found = choices[0]["prompt_logprobs"]
    ids = model.tokenize(PROMPT)
    assert found[0] is None
    assert len(found) == len(ids)
    for place, (token, entry) in enumerate(zip(ids[1:], found[1:], strict=True), 1):
        own = entry[str(token)]
        assert own["logprob"] == pytest.approx(echoed["token_logprobs"][place], abs=0.02)
        assert own["decoded_token"] == echoed["tokens"][place]
        ranks = [other["rank"] for other in entry.values()]
        assert ranks[:2] == [1, 2]
        assert ranks[2:] in ([], [None])
    assert choices[1]["prompt_logprobs"] == found
    assert len(choices[2]["prompt_logprobs"]) == len(model.tokenize("The Emperor"))
    body = {"prompt": PROMPT, "prompt_logprobs": 1, "stream": True}
    refused = client.post("/v1/completions", json=body)
    assert refused.json()["error"]["param"] == "prompt_logprobs"


def test_a_prompt_need_not_begin_with_bos(client: TestClient, model: Model) -> None:
    plain = post(client, prompt=model.tokenize(PROMPT, add_bos=False), echo=True, logprobs=1)
    for prompt in (PROMPT, [PROMPT]):
        found = post(client, prompt=prompt, add_special_tokens=False, echo=True, logprobs=1)
        assert found["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]
        assert found["choices"][0]["logprobs"] == plain["choices"][0]["logprobs"]


def test_echo_without_an_answer(client: TestClient) -> None:
    answer = post(client, echo=True, max_tokens=0, logprobs=0)
    assert answer["choices"][0]["text"] == PROMPT
    assert answer["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, "x"]}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": [99999]}, "prompt"),
        ({"prompt": [[1], [-7]]}, "prompt"),
        ({"suffix": "end"}, "suffix"),
        ({"logprobs": 21}, "logprobs"),
        ({"n": 128}, "n"),
    ],
)
def test_refusal_names_the_parameter(client: TestClient, body: Any, param: str | None) -> None:
    response = client.post("/v1/completions", json={"prompt": PROMPT, **body})
    assert response.status_code == 400
    assert strict(response.text)["error"]["param"] == param


def test_probabilities_of_all_answers_together_are_bounded(client: TestClient) -> None:
    body = {"prompt": "hi", "n_predict": 1, "n_probs": 1024}
    assert client.post("/completion", json={**body, "n_cmpl": 2}).status_code == 200
    found = client.post("/completion", json={**body, "n_cmpl": 3})
    assert found.status_code == 400
    assert strict(found.text)["error"]["param"] == "n_probs"


def test_llama_cpp_completion(client: TestClient, model: Model, alone: str) -> None:
    answer = post(client, "/completion", n_probs=2, return_tokens=True)
    assert (answer["content"], answer["stop_type"], answer["stop"]) == (alone, "limit", True)
    assert len(answer["tokens"]) == len(answer["completion_probabilities"]) == 6
    assert answer["tokens_evaluated"] == len(model.tokenize(PROMPT))
    assert answer["generation_settings"]["temperature"] == 0
    found = streamed(client, "/completion")
    assert "".join(one["content"] for one in found) == alone
    assert [one["stop"] for one in found] == [False] * (len(found) - 1) + [True]
    assert found[-1]["timings"]["predicted_n"] == 6
    word = alone[4:7]
    stopped = post(client, "/completion", stop=[word])
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", word)
    fields = post(client, "/completion", response_fields=["content", "timings/predicted_n"])
    assert fields == {"content": alone, "timings/predicted_n": 6}


@pytest.mark.parametrize("prompt", [[[]], [[], "a"]])
def test_an_empty_prompt_in_a_list(client: TestClient, prompt: list[Any]) -> None:
    several = post(client, "/completion", prompt=prompt)
    alone = post(client, "/completion", prompt="")
    assert (several if isinstance(several, dict) else several[0])["content"] == alone["content"]


def test_llama_cpp_prompts_mix_tokens_and_texts(client: TestClient, model: Model) -> None:
    ids = model.tokenize(PROMPT)
    several = post(client, "/completion", prompt=[ids, PROMPT])
    assert several[0]["content"] == several[1]["content"]
    mixed = post(client, "/completion", prompt=[*ids, " the old prince"])
    whole = ids + model.tokenize(" the old prince", add_bos=False)
    assert mixed["content"] == post(client, "/completion", prompt=whole)["content"]


def test_llama_cpp_bias_forbids_by_false(client: TestClient, model: Model, alone: str) -> None:
    (token,) = model.tokenize(" the", add_bos=False)
    assert post(client, "/completion", logit_bias=[[token, 100]])["content"] == " the" * 6
    first = post(client, "/completion", return_tokens=True)["tokens"][0]
    other = post(client, "/completion", return_tokens=True, logit_bias=[[first, False]])
    assert first not in other["tokens"]


def test_tokens_and_back(client: TestClient, model: Model) -> None:
    text = "Prince Andrew 媽"
    tokens = client.post("/tokenize", json={"content": text}).json()["tokens"]
    assert tokens == model.tokenize(text, add_bos=False)
    found = client.post("/detokenize", json={"tokens": tokens}).json()
    assert found == {"content": text, "prompt": text}
    begun = client.post("/tokenize", json={"content": text, "add_special": True}).json()
    assert begun["tokens"] == model.tokenize(text)
    pieces = client.post("/tokenize", json={"content": text, "with_pieces": True}).json()["tokens"]
    data = [one["piece"] for one in pieces]
    assert b"".join(d.encode() if isinstance(d, str) else bytes(d) for d in data) == text.encode()


def test_tokens_in_the_form_of_vllm(client: TestClient, model: Model) -> None:
    """Requests and responses follow vLLM's vllm/entrypoints/serve/tokenize/protocol.py."""
    text, ids = "Prince Andrew", model.tokenize("Prince Andrew")
    answer = client.post("/tokenize", json={"prompt": text, "return_token_strs": True}).json()
    assert answer.pop("token_strs")[-1] == model.tokenizer.token_text(ids[-1])
    assert answer == {"tokens": ids, "count": len(ids), "max_model_len": model.context_length}
    bare = client.post("/tokenize", json={"prompt": text, "add_special_tokens": False}).json()
    assert bare["tokens"] == model.tokenize(text, add_bos=False)
    refused = client.post("/tokenize", json={})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "content")


def test_tokenizer_info_names_special_tokens_and_the_template(
    client: TestClient, model: Model
) -> None:
    info = client.get("/tokenizer_info").json()
    for name, token in (("bos", model.tokenizer.bos_id), ("eos", model.tokenizer.eos_id)):
        asked = {"prompt": info[f"{name}_token"], "add_special_tokens": False}
        assert client.post("/tokenize", json=asked).json()["tokens"] == [token]
    assert info["model_max_length"] == model.context_length
    assert info["chat_template"] == (model.chat_templates[0].text if model.chat_templates else None)


def test_template_is_applied(client: TestClient) -> None:
    body = {"messages": [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}]}
    prompt = "<|im_start|>system\na<|im_end|>\n<|im_start|>user\nb<|im_end|>\n"
    assert client.post("/apply-template", json=body).json() == {
        "prompt": prompt + "<|im_start|>assistant\n"
    }


def test_template_is_counted_and_may_end_before_the_answer(client: TestClient) -> None:
    body: dict[str, object] = {"messages": [{"role": "user", "content": "b"}]}
    whole = client.post("/apply-template", json=body).json()["prompt"]
    counted = client.post("/chat/completions/input_tokens", json=body).json()
    ids = client.post("/tokenize", json={"content": whole, "add_special": True}).json()["tokens"]
    assert counted == {"object": "response.input_tokens", "input_tokens": len(ids)}
    body["add_generation_prompt"] = False
    cut = client.post("/apply-template", json=body).json()["prompt"]
    assert whole == cut + "<|im_start|>assistant\n"


def test_llama_prompt_objects_and_biases_by_name(client: TestClient, model: Model) -> None:
    plain = post(client, "/completion")
    assert (
        post(client, "/completion", prompt={"prompt_string": PROMPT})["content"]
        == (plain["content"])
    )
    several = post(
        client, "/completion", prompt=[model.tokenize(PROMPT), {"prompt_string": PROMPT}]
    )
    assert [one["content"] for one in several] == [plain["content"]] * 2
    body = {"prompt": {"prompt_string": PROMPT, "multimodal_data": ["x"]}}
    refused = client.post("/completion", json=body)
    assert refused.status_code == 400
    assert "multimodal_data: the model reads only text" in refused.json()["error"]["message"]
    (token,) = model.tokenize(" the", add_bos=False)
    for name in (str(token), " the"):
        assert post(client, "/completion", logit_bias={name: 100})["content"] == " the" * 6


def test_slots_are_the_answers_that_run(client: TestClient, model: Model) -> None:
    assert client.get("/slots").json() == [
        {"id": 0, "n_ctx": model.context_length, "is_processing": False, "id_task": -1,
         "speculative": True}
    ]  # fmt: skip


def test_a_server_has_a_chat_template_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "short.jinja"
    path.write_text("{% if thinking_on %}T {% endif %}{{ messages[0].content }}!")
    options = ServerOptions(chat_template=path, chat_template_kwargs={"thinking_on": True})
    (served,) = served_models([trinity.demo_model()], {"threads": 1}, print, read_template(path))
    with served.load() as model:
        app = make_app(Models([served]), options)
        served.model = model
        with TestClient(app, base_url="http://localhost") as client:
            body: dict[str, object] = {"messages": [{"role": "user", "content": "b"}]}
            assert client.post("/apply-template", json=body).json() == {"prompt": "T b!"}
            body["chat_template_kwargs"] = {"thinking_on": False}
            assert client.post("/apply-template", json=body).json() == {"prompt": "b!"}
            path.write_text("{% if %}")
            model.use_chat_template(read_template(path))
            refused = client.post("/apply-template", json=body).json()["error"]["message"]
            assert refused.startswith("short.jinja: the chat template is broken at line 1")


@pytest.mark.parametrize("text", ["{", "[]", "1"])
def test_kwargs_of_templates_must_be_an_object(text: str) -> None:
    with pytest.raises(InputError, match="--chat-template-kwargs"):
        read_names("--chat-template-kwargs", text)


def test_models_are_listed(client: TestClient) -> None:
    listed = client.get("/v1/models").json()
    assert [one["id"] for one in listed["data"]] == ["demo"]
    assert client.get("/v1/models/demo").json() == listed["data"][0]
    assert client.get("/v1/models/a/b").status_code == 404


def test_metrics_count(client: TestClient) -> None:
    def figures() -> dict[str, float]:
        text = client.get("/metrics").text
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if line[:1] not in ("#", ""))
        return {name: float(value) for name, value in pairs}

    name = 'trinity_generated_tokens_total{model="demo"}'
    before = figures().get(name, 0)
    post(client)
    assert figures()[name] == before + 6
    assert figures()['trinity_running_answers{model="demo"}'] == 0


def test_document_has_every_path(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert {"/v1/chat/completions", "/v1/models/{model}", "/health"} <= document["paths"].keys()
    schema = document["components"]["schemas"]["ChatRequest"]
    assert schema["required"] == ["messages"]
    assert "additionalProperties" not in schema  # they are ignored
    text = client.get("/openapi.json").text
    for name in document["components"]["schemas"]:
        assert f'"$ref":"#/components/schemas/{name}"' in text


@pytest.mark.full
def test_document_says_in_which_other_forms_values_may_come(client: TestClient) -> None:
    components = client.get("/openapi.json").json()["components"]["schemas"]
    fields = components["ChatRequest"]["properties"]

    def fits(name: str, value: object, kind: str = "ChatRequest") -> bool:
        schema = {**components[kind]["properties"][name], "components": {"schemas": components}}
        return bool(jsonschema_rs.Draft202012Validator(schema).is_valid(value))

    for name, value, right in [
        ("verbose", 0, True), ("verbose", "TRUE", True), ("verbose", 2, False),
        ("verbose", "no", False), ("top_k", "-1", True), ("top_k", "1e2", True),
        ("top_k", "many", False), ("top_k", 1.5, False), ("stream_options", [], True),
        ("stream_options", [1], False), ("messages", "null", False), ("seed", "null", True),
        ("service_tier", {"a": 1}, True), ("stop", [1], False),
    ]:  # fmt: skip
        assert fits(name, value) == right, (name, value)
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, name: value}
        status = client.post("/v1/chat/completions", json=body).status_code
        assert (status == 200) == right, (name, value)
    assert fits("type", None, "ToolCall")
    assert not fits("messages", None)
    assert "ignorable" not in str(fields)


def test_texts_of_special_tokens_are_these_tokens(client: TestClient, model: Model) -> None:
    """Special tokens in the text are parsed, as in llama.cpp and vLLM."""
    end = model.tokenizer.token_text(model.tokenizer.bos_id or 0)
    prompt = f"war{end} and peace"
    ids = model.tokenize(prompt, parse_special=True)
    assert len(ids) < len(model.tokenize(prompt))
    body = {"prompt": prompt, "max_tokens": 1, "echo": True, "logprobs": 0}
    answer = client.post("/v1/completions", json=body).json()
    assert answer["usage"]["prompt_tokens"] == len(ids)
    assert len(answer["choices"][0]["logprobs"]["tokens"]) == len(ids) + 1
    assert answer["choices"][0]["text"].startswith(prompt)


def test_tokenize_and_detokenize_are_llama_cpps(client: TestClient, model: Model) -> None:
    """/tokenize adds special tokens on request; /detokenize shows all tokens."""
    plain = client.post("/tokenize", json={"content": "war and peace"}).json()["tokens"]
    body = {"content": "war and peace", "add_special": True}
    whole = client.post("/tokenize", json=body).json()["tokens"]
    assert whole == [model.tokenizer.bos_id, *plain]
    shown = client.post("/detokenize", json={"tokens": whole}).json()["content"]
    assert shown == model.tokenizer.token_text(whole[0]) + "war and peace"
    assert model.detokenize(whole) == "war and peace"
