from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run, press_ctrl_c
from tests.toy_model import BOS, EOS, ToyEngine, ToyTokenizer, ids_of
from trinity.errors import InputError
from trinity.model import Model

MODEL = ("generate", "-m", "toy.gguf")


def test_text_on_stdout_and_figures_on_stderr(run: Run, engine: ToyEngine) -> None:
    result = run(*MODEL, "-p", "ab")
    assert (result.exit_code, result.stdout) == (0, "hello\n")
    assert "compiling kernels 3/14\n" in result.stderr
    assert "prompt 3 tokens" in result.stderr
    assert "output 5 tokens" in result.stderr
    assert engine.closed


@pytest.mark.parametrize(
    ("options", "noted"),
    [((), True), (("--raw",), False), (("--chat",), False), (("--quiet",), False)],
)
def test_a_chat_template_is_noted(
    run: Run, engine: ToyEngine, tokenizer: ToyTokenizer, options: tuple[str, ...], noted: bool
) -> None:
    tokenizer.chat_template = "{{ messages[0].content }}"
    lines = run(*MODEL, "-p", "ab", *options).stderr
    assert ("note: the model has a chat template" in lines) is noted


def test_quiet_has_no_figures(run: Run, engine: ToyEngine) -> None:
    assert "tokens/s" not in run(*MODEL, "-p", "ab", "--quiet").stderr


def test_speculation_can_be_turned_off(
    run: Run, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count()  # every step costs the same: proposals are worth it
    monkeypatch.setattr(
        "trinity.runtime.scheduling.engine_loop.perf_counter", lambda: float(next(clock))
    )
    engine.says("round and " * 9, after=3)
    answers, steps = [], []
    for option in ("--speculate", "--no-speculate"):
        engine.evaluated.clear()
        answers.append(run(*MODEL, "-p", "ab", option).stdout)
        steps.append(len(engine.evaluated))
    assert answers == ["round and " * 9 + "\n"] * 2
    assert steps[0] < steps[1] == 1 + 90


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_prompt_from_stdin_and_file(
    run: Run, engine: ToyEngine, tmp_path: Path, ending: str
) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes(f"ab{ending}".encode())
    text = f"ab{ending}".encode()
    for arguments, given in (
        ([], text),
        (["-p", "-"], text),
        (["-f", "-"], text),
        (["-f", str(path)], None),
    ):
        engine.evaluated.clear()
        result = run(*MODEL, "-n", "1", *arguments, input=given)
        assert result.exit_code == 0, result.stderr
        assert engine.evaluated == [[BOS, *ids_of("ab")]]


def test_a_single_token_has_no_speed(run: Run, engine: ToyEngine) -> None:
    """The first token is computed in the prompt's step."""
    assert "| output 1 token | length" in run(*MODEL, "-p", "ab", "-n", "1").stderr
    assert "| output 3 tokens, " in run(*MODEL, "-p", "ab", "-n", "3").stderr


def test_json_is_one_object(run: Run, engine: ToyEngine) -> None:
    result = run(*MODEL, "-p", "ab", "--json", "--logprobs", "2")
    found = json.loads(result.stdout)
    assert found["text"] == "hello"
    assert found["token_ids"] == ids_of("hello")
    assert found["finish_reason"] == "stop"
    assert found["prompt_tokens"] == 3
    assert found["timings"]["completion_tokens"] == 5
    assert found["timings"]["tokens_per_second"] > 0
    assert [entry["token_id"] for entry in found["logprobs"]] == found["token_ids"]
    assert len(found["logprobs"][0]["top"]) == 2
    assert found["model"] == "toy.gguf"


def test_options_reach_the_model(run: Run, engine: ToyEngine) -> None:
    bias = f"{ids_of('e')[0]}=-inf"
    result = run(*MODEL, "-p", "ab", "--temp", "0", "--logit-bias", bias, "-n", "2", "-t", "2")
    assert result.stdout[0] == "h"
    assert result.stdout[1] != "e"
    assert engine.loads == [("toy.gguf", {"threads": 2})]


def test_load_options_reach_the_loader(run: Run, engine: ToyEngine) -> None:
    run(*MODEL, "-p", "ab", "-t", "3", "--ctx", "99", "--kv-type", "f32", "--isa", "avx2",
        "--i2s-layout", "arm", "--kv-memory", "2G", "--batch-invariant")  # fmt: skip
    expected = {"threads": 3, "context_length": 99, "kv_type": "f32", "isa": "avx2",
                "i2s_layout": "arm", "kv_memory": 2 << 30,
                "batch_invariant": True}  # fmt: skip
    assert engine.loads == [("toy.gguf", expected)]


def test_stop_and_max_tokens(run: Run, engine: ToyEngine) -> None:
    assert run(*MODEL, "-p", "ab", "--stop", "zz", "--stop", "lo").stdout == "hel\n"


def test_chat_format(run: Run, engine: ToyEngine) -> None:
    run(*MODEL, "-p", "hi", "--chat", "--system", "be", "-n", "1")
    seen = [token for step in engine.evaluated for token in step]
    expected = [BOS, *ids_of("[system]be"), EOS, *ids_of("[user]hi"), EOS, *ids_of("[assistant]")]
    assert seen == expected


def test_special_tokens_are_text_unless_asked_for(run: Run, engine: ToyEngine) -> None:
    run(*MODEL, "-p", "</s>", "--parse-special", "-n", "0")
    assert engine.evaluated == [[BOS, EOS]]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["warmup", "--threads", "2"], "--model"),
        ([*MODEL, "-p", "x", "-f", "y"], "twice"),
        ([*MODEL, "-p", "x", "--system", "y"], "--chat"),
        ([*MODEL, "-p", "x", "--logit-bias", "5"], "ID=VALUE"),
        ([*MODEL, "-p", "x", "--kv-memory", "much"], "--kv-memory"),
        ([*MODEL, "-p", "x", "--top-k", "many"], "--top-k"),
        ([*MODEL, "-p", "x", "--nonsense"], "--nonsense"),
        (["nonsense"], "nonsense"),
    ],
)
def test_wrong_usage_is_2_and_names_the_option(
    run: Run, engine: ToyEngine, arguments: list[str], named: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert named in result.stderr


def test_prompt_too_long_is_1(run: Run, engine: ToyEngine) -> None:
    result = run(*MODEL, "-p", "a" * 300)
    assert result.exit_code == 1
    assert "301 tokens" in result.stderr
    assert "256" in result.stderr


def test_missing_prompt_file_is_1(run: Run, engine: ToyEngine) -> None:
    result = run(*MODEL, "-f", "no-such-prompt.txt")
    assert result.exit_code == 1
    assert "no-such-prompt.txt" in result.stderr


def test_prompt_that_is_not_utf8_is_1(run: Run, engine: ToyEngine) -> None:
    result = run(*MODEL, input=b"ab\xff")
    assert result.exit_code == 1
    assert "byte 2 is 0xff" in result.stderr


def test_load_error_is_1(run: Run, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str, **options: object) -> None:
        raise InputError(f"{path}: there is no such file")

    monkeypatch.setattr("trinity.loading.load", fail)
    result = run(*MODEL, "-p", "ab")
    assert (result.exit_code, result.stderr) == (1, "error: toy.gguf: there is no such file\n")


def press_at_e(tokens: list[int]) -> None:
    if tokens == ids_of("e"):
        press_ctrl_c()


def test_ctrl_c_prints_what_there_is(run: Run, engine: ToyEngine) -> None:
    engine.before_forward = press_at_e
    result = run(*MODEL, "-p", "ab")
    assert (result.exit_code, result.stdout) == (130, "hel\n")


def test_ctrl_c_with_json(run: Run, engine: ToyEngine) -> None:
    engine.before_forward = press_at_e
    result = run(*MODEL, "-p", "ab", "--json")
    assert result.exit_code == 130
    assert json.loads(result.stdout)["finish_reason"] == "cancelled"


def test_ctrl_c_while_loading(run: Run, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(path: str, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("trinity.loading.load", interrupt)
    assert run(*MODEL, "-p", "ab").exit_code == 130


def test_adapters_and_their_scales(run: Run, engine: ToyEngine, tmp_path: Path) -> None:
    """The file name may contain a colon and a number."""
    named = tmp_path / "adapter:2"
    named.write_bytes(b"")
    texts = ["a.gguf", "b:0.5", "c:d:-1e-1", "e:", str(named), f"{named}:3", "C:\\f"]
    flags = [part for text in texts for part in ("--lora", text)]
    assert run(*MODEL, "-p", "ab", *flags).exit_code == 0
    assert engine.loads[0][1]["lora"] == (
        ("a.gguf", 1.0), ("b", 0.5), ("c:d", -0.1), ("e:", 1.0), (str(named), 1.0),
        (str(named), 3.0), ("C:\\f", 1.0),
    )  # fmt: skip
    result = run(*MODEL, "-p", "ab", "--lora", "a:1e9")
    assert result.exit_code == 2
    assert "the scale of --lora is 1e+09" in result.stderr


def test_prompt_as_an_argument(run: Run, engine: ToyEngine) -> None:
    assert run(*MODEL, "ab").stdout == "hello\n"
    assert run("generate", "ab", "-m", "toy.gguf").stdout == "hello\n"
    assert run(*MODEL, "-", input="ab\n").stdout == "hello\n"
    for also in (("-p", "ab"), ("-f", "prompt.txt")):
        result = run(*MODEL, "ab", *also)
        assert result.exit_code == 2
        assert "the prompt is given twice" in result.stderr


def test_echo(run: Run, engine: ToyEngine) -> None:
    assert run(*MODEL, "ab", "--echo").stdout == "abhello\n"
    assert json.loads(run(*MODEL, "ab", "--echo", "--json").stdout)["prompt"] == "ab"
    assert "prompt" not in json.loads(run(*MODEL, "ab", "--json").stdout)
    answer = run(*MODEL, "ab", "--echo", "--chat", "-n", "0")
    assert answer.stdout == "[user]ab[assistant]\n"  # special tokens of the toy have no text


def test_template(run: Run, engine: ToyEngine, tmp_path: Path) -> None:
    path = tmp_path / "template.jinja"
    path.write_text("{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}")
    for text, also in (("hi", ()), ("yo", ("--chat",))):
        engine.evaluated.clear()
        run(*MODEL, text, "--template", str(path), "--system", "be", "-n", "0", *also)
        seen = [token for step in engine.evaluated for token in step]
        expected = ids_of(f"{text};")  # of the beginning the pages are there
        assert seen[-len(expected) :] == expected
    result = run(*MODEL, "hi", "--template", str(path), "--raw")
    assert result.exit_code == 2
    assert "--chat-template" in result.stderr
    path.write_text("{% if %}")
    result = run(*MODEL, "hi", "--template", str(path))
    assert result.exit_code == 1
    assert f"{path}: the chat template is broken at line 1" in result.stderr
    result = run(*MODEL, "hi", "--template", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert "none: cannot be read" in result.stderr


def test_minus_one_is_no_limit_and_no_seed(
    run: Run, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, object]] = []
    real = Model.stream

    def stream(self: Model, prompt: object, **options: object) -> object:
        asked.append(options)
        return real(self, prompt, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Model, "stream", stream)
    assert run(*MODEL, "ab", "-n", "-1", "-s", "-1").stdout == "hello\n"
    assert {key: asked[0][key] for key in ("max_tokens", "seed")} == {
        "max_tokens": None,
        "seed": None,
    }
    engine.says("x" * 1000, after=3)
    result = run(*MODEL, "ab", "-n", "-1", "--ignore-eos", "--no-speculate")
    assert len(result.stdout) == 256 - 3 + 1  # a full context, and a newline
    for wrong in (("-n", "-2"), ("-s", "-2")):
        assert run(*MODEL, "ab", *wrong).exit_code == 2


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--top-p", "3"), ("--top-k", "-1"), ("--temp", "-0.1"), ("--min-p", "2"),
        ("--repeat-penalty", "0"), ("-n", "-3"), ("-t", "0"), ("-c", "0"), ("--kv-type", "q4_0"),
        ("--isa", "mmx"), ("--quantize", "Q4_K_X"), ("--stop", ""), ("--logprobs", "-1"),
        ("--i2s-layout", "z80"), ("--weight-scale", "add"), ("--kv-memory", "0"),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_wrong_usage(
    run: Run, engine: ToyEngine, flag: str, value: str
) -> None:
    result = run(*MODEL, "ab", flag, value)
    assert result.exit_code == 2, result.stderr
    names = {"-n": "--max-tokens", "-t": "--threads", "-c": "--ctx"}
    flags = {"--temp": "--temperature", "--repeat-penalty": "--repetition-penalty"}
    assert "stop string" in result.stderr or (names | flags).get(flag, flag) in result.stderr
    assert engine.loads == []
