"""`trinity launch` prints, or starts a program with, the settings for a running server."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from trinity.tools.launch import PROGRAMS

KEY = "a key of the test"


class Models(BaseHTTPRequestHandler):
    """Answers as GET /v1/models does."""

    def do_GET(self) -> None:
        known = self.headers["authorization"] in (f"Bearer {KEY}", "Bearer none")
        models = [
            {"id": "small", "context_length": 4096, "aliases": ["tiny"]},
            {"id": "large model", "context_length": 65536, "aliases": []},
            {"id": "unloaded", "context_length": None, "aliases": []},
        ]
        body = json.dumps({"data": models}).encode()
        self.send_response(200 if known and self.path == "/v1/models" else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Models) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def read(output: str) -> tuple[dict[str, str], list[str]]:
    """The variables and the words of the command that a shell would get."""
    *exports, command = output.splitlines()
    variables = dict(shlex.split(line)[1].split("=", 1) for line in exports)
    return variables, shlex.split(command)


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_prints_what_a_shell_runs(run: Run, url: str, program: str) -> None:
    result = run("launch", program, "--url", url, "-m", "large model", "--", "-p", "it's")
    assert (result.exit_code, result.stderr) == (0, "")
    variables, words = read(result.stdout)
    assert words[0] == PROGRAMS[program].command
    assert words[-2:] == ["-p", "it's"]
    assert any(url in text for text in (*variables.values(), *words))
    assert any("large model" in text for text in (*variables.values(), *words))


def test_claude_gets_one_model_for_everything(run: Run, url: str) -> None:
    variables, words = read(run("launch", "claude", "--url", f"{url}/v1/", "-m", "tiny").stdout)
    assert words == ["claude"]
    assert variables["ANTHROPIC_BASE_URL"] == url
    assert {value for name, value in variables.items() if "MODEL" in name} == {"small"}
    assert variables["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] == "4096"
    assert variables["ANTHROPIC_AUTH_TOKEN"] == "none"


def test_codex_gets_toml(run: Run, url: str) -> None:
    import tomllib

    _, words = read(run("launch", "codex", "--url", url, "-m", "large model").stdout)
    config = tomllib.loads("\n".join(words[2::2]))
    assert config["model"] == "large model"
    assert config["model_context_window"] == 65536
    assert config["model_providers"]["trinity"]["base_url"] == f"{url}/v1"


def test_opencode_gets_json(run: Run, url: str) -> None:
    variables, _ = read(run("launch", "opencode", "--url", url, "-m", "unloaded").stdout)
    config = json.loads(variables["OPENCODE_CONFIG_CONTENT"])
    assert config["model"] == "trinity/unloaded"
    assert config["provider"]["trinity"]["models"] == {"unloaded": {"name": "unloaded"}}


def test_a_small_context_is_named(run: Run, url: str) -> None:
    result = run("launch", "claude", "--url", url)
    assert "warning: small has a context of 4096 tokens, and claude needs" in result.stderr


def test_the_key(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variables, _ = read(run("launch", "aider", "--url", url, "--api-key", KEY).stdout)
    assert variables["OPENAI_API_KEY"] == KEY
    monkeypatch.setenv("TRINITY_API_KEY", "another")
    result = run("launch", "aider", "--url", url)
    assert "answers with status 401; give its API key as --api-key" in result.stderr


def test_wrong_usage(run: Run, url: str) -> None:
    told = run("launch", "vim").stderr
    assert "it must be one of claude, codex, opencode" in " ".join(told.replace("│", " ").split())
    assert (
        "no server answers at http://127.0.0.1:9"
        in run("launch", "codex", "--url", "http://127.0.0.1:9").stderr
    )
    there = "the server has no model 'no'; there is small, large model, unloaded"
    assert there in run("launch", "codex", "--url", url, "-m", "no").stderr
    assert "it must begin with http" in run("launch", "codex", "--url", "localhost:80").stderr


@pytest.mark.full
def test_run_becomes_the_program(url: str, tmp_path: Path) -> None:
    program = tmp_path / "qwen"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys\nprint(os.environ['OPENAI_MODEL'], sys.argv[1:])\n"
        "sys.exit(3)\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    command = [sys.executable, "-m", "trinity", "launch", "qwen-code", "--run", "--url", url]
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(
        [*command, "--", "--yolo"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (3, "warning: small has a context of 4096 tokens, and "
        "qwen-code needs about 32768; start the server with --ctx 32768\n")  # fmt: skip
    assert done.stdout == "small ['--auth-type', 'openai', '--yolo']\n"
    program.unlink()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "qwen is not installed; install it: npm install -g @qwen-code" in done.stderr
