"""The environment variables and arguments with which client programs use a server."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trinity.errors import InputError

NO_KEY = "none"  # programs want a key even if the server has none
SECONDS = 10.0  # for the server's answer


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of a server; ``context`` in tokens, None until it is loaded."""

    name: str
    context: int | None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A server's address without a path, an API key for it, and the model to use."""

    url: str
    key: str
    model: ServedModel


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """The arguments and environment variables with which a program is started."""

    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Program:
    """A client program: its command, how to install it, and the context that its prompts need."""

    command: str
    install: str
    context: int
    settings: Callable[[ModelServer], ProgramSettings]


def _claude(server: ModelServer) -> ProgramSettings:
    """Set up Claude Code: all its model names, also that of subagents, mean this model."""
    name = server.model.name
    kinds = ("OPUS", "SONNET", "HAIKU")
    variables = {
        "ANTHROPIC_BASE_URL": server.url,
        # Claude Code asks the user before it uses ANTHROPIC_API_KEY; it uses a token at once.
        "ANTHROPIC_AUTH_TOKEN": server.key,
        "ANTHROPIC_API_KEY": "",
        "ANTHROPIC_MODEL": name,
        **{f"ANTHROPIC_DEFAULT_{kind}_MODEL": name for kind in kinds},
        "CLAUDE_CODE_SUBAGENT_MODEL": name,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    if server.model.context is not None:
        variables["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = str(server.model.context)
    return ProgramSettings((), variables)


def _codex(server: ModelServer) -> ProgramSettings:
    """Set up Codex by arguments, whose values are TOML."""
    provider = "model_providers.trinity"
    values: dict[str, str | int] = {
        "model": server.model.name,
        "model_provider": "trinity",
        f"{provider}.name": "trinity",
        f"{provider}.base_url": f"{server.url}/v1",
        f"{provider}.wire_api": "responses",
        f"{provider}.env_key": "TRINITY_API_KEY",
    }
    if server.model.context is not None:
        values["model_context_window"] = server.model.context
    arguments = [part for k, v in values.items() for part in ("-c", f"{k}={json.dumps(v)}")]
    return ProgramSettings(tuple(arguments), {"TRINITY_API_KEY": server.key})


def _opencode(server: ModelServer) -> ProgramSettings:
    """Set up opencode by its whole configuration in one variable."""
    name = server.model.name
    model: dict[str, object] = {"name": name}
    if server.model.context is not None:
        model["limit"] = {"context": server.model.context, "output": server.model.context // 4}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "trinity",
        "options": {"baseURL": f"{server.url}/v1", "apiKey": server.key},
        "models": {name: model},
    }
    config = {
        "$schema": "https://opencode.ai/config.json",
        "provider": {"trinity": provider},
        "model": f"trinity/{name}",
        "small_model": f"trinity/{name}",
    }
    return ProgramSettings((), {"OPENCODE_CONFIG_CONTENT": json.dumps(config)})


def _qwen_code(server: ModelServer) -> ProgramSettings:
    """Set up Qwen Code's OpenAI-compatible provider."""
    variables = {
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_API_KEY": server.key,
        "OPENAI_MODEL": server.model.name,
    }
    return ProgramSettings(("--auth-type", "openai"), variables)


def _aider(server: ModelServer) -> ProgramSettings:
    """Set up aider's OpenAI provider, without aider's warning that it does not know the model."""
    variables = {"OPENAI_API_BASE": f"{server.url}/v1", "OPENAI_API_KEY": server.key}
    arguments = ("--model", f"openai/{server.model.name}", "--no-show-model-warnings")
    return ProgramSettings(arguments, variables)


PROGRAMS = {
    "claude": Program("claude", "npm install -g @anthropic-ai/claude-code", 32_768, _claude),
    "codex": Program("codex", "npm install -g @openai/codex", 32_768, _codex),
    "opencode": Program("opencode", "npm install -g opencode-ai", 32_768, _opencode),
    "qwen-code": Program("qwen", "npm install -g @qwen-code/qwen-code", 32_768, _qwen_code),
    "aider": Program("aider", "pip install aider-chat", 8_192, _aider),
}


def served_models(url: str, key: str) -> list[ServedModel]:
    """Ask a server for its models. Raises: InputError if it does not answer as one."""
    request = urllib.request.Request(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            listed = json.load(answer)["data"]
            return [
                ServedModel(one["id"], one.get("context_length"), tuple(one.get("aliases", ())))
                for one in listed
            ]
    except urllib.error.HTTPError as error:
        error.close()
        raise InputError(
            f"{url} answers with status {error.code}; "
            + ("give its API key as --api-key" if error.code == 401 else "give trinity's address")
        ) from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise InputError(
            f"no server answers at {url} ({reason}); start one with: "
            "trinity serve --model MODEL --ctx 32768"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{url} does not answer as a server of models; check --url") from error


def chosen_model(models: list[ServedModel], name: str | None) -> ServedModel:
    """Return the model with a name; without a name the first. Raises: InputError."""
    if not models:
        raise InputError("the server has no models")
    for model in models:
        if name in (None, model.name, *model.aliases):
            return model
    there = ", ".join(model.name for model in models)
    raise InputError(f"the server has no model {name!r:.100}; there is {there:.1000}")
