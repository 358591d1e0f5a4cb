"""llama.cpp's presets of models: an INI file with a section of options for each model."""

from __future__ import annotations

import configparser
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trinity.cli import options
from trinity.cli.llama_cpp import ADVICE
from trinity.cli.parameters import BadParameter
from trinity.errors import InputError
from trinity.options.option import Declared
from trinity.server.model_refs import GLOBAL, NAME, Preset, name_and_ref
from trinity.server.setting_values import listed, read_template

_TOP = "/"  # the name of the keys before the first section, such as llama.cpp's "version"
_MODEL = ("model", "m")
_HUB = ("hf-repo", "hf", "hfr")
_HUB_FILE = ("hf-file", "hff")
_DRAFT = ("model-draft", "md", "spec-draft-model")
_TEMPLATE = ("chat-template-file", "chat-template")
_PARALLEL = ("parallel", "np")
_STARTUP = "load-on-startup"
_ENVIRONMENT = "LLAMA_ARG_"
_MOST_BYTES = 1 << 20
# Keys of llama.cpp's router and server that mean nothing for a model here.
_DROPPED = frozenset(
    ("stop-timeout", "dedup-cache-models", "host", "port", "api-key", "api-key-file", "cache-ram",
     "embeddings", "embedding", "reranking", "fit", "load-mode", "metrics", "slots", "ui",
     "timeout", "cache-prompt", "cache-reuse", "no-mmproj-offload", "kv-unified", "models-max",
     "models-autoload")
)  # fmt: skip
_TRUE, _FALSE = ("true", "on", "yes", "1", "enabled"), ("false", "off", "no", "0", "disabled")

Notice = Callable[[str], None]


def read_presets(path: str, generation: options.Options, notice: Notice) -> dict[str, Preset]:
    """Return the presets of a file by model name, ``GLOBAL`` among them.

    The preset of a model includes the global options. ``generation`` are the options of
    requests that a preset may set. ``notice`` is called with lines for the user.
    Raises: InputError.
    """
    sections = _sections(path)
    overall = _Reader(path, GLOBAL, generation, notice).preset(sections.pop(GLOBAL, {}))
    if overall.ref is not None or overall.aliases:
        raise InputError(f"{path}: [{GLOBAL}]: a model and its names belong into its own section")
    presets = {GLOBAL: overall}
    for name, keys in sections.items():
        if re.fullmatch(NAME, name) is None:
            raise InputError(
                f"{path}: [{name:.80}]: the name of a model has letters, digits and . _ : / - only"
            )
        reader = _Reader(path, name, generation, notice)
        presets[name] = _over(reader.preset(keys), overall)
    return presets


def _sections(path: str) -> dict[str, dict[str, str]]:
    """The keys of each section. Raises: InputError."""
    parser = configparser.RawConfigParser(
        delimiters=("=",), comment_prefixes=(";", "#"), default_section=_TOP
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise InputError(f"{path}: this file of presets has more than {_MOST_BYTES} characters")
        parser.read_string(f"[{_TOP}]\n{text}", path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(
            f"{path}: the presets cannot be read ({reason}); give an INI file"
        ) from error
    except configparser.Error as error:
        raise InputError(f"{path}: {_fault(error):.300}") from error
    top = parser.defaults()
    return {
        name: {key: value for key, value in parser.items(name) if key not in top}
        for name in parser.sections()
    }


def _fault(error: configparser.Error) -> str:
    """Say what is wrong with a file in INI form."""
    if isinstance(error, configparser.ParsingError) and error.errors:
        number, line = error.errors[0]
        return f"line {number - 1} is {line:.80}; expected [NAME OF A MODEL] or OPTION = VALUE"
    if isinstance(error, configparser.DuplicateSectionError):
        return f"there are two sections [{error.section:.80}]; join them"
    if isinstance(error, configparser.DuplicateOptionError):
        return f"[{error.section:.80}] has the option {error.option:.80} twice; remove one"
    return " ".join(str(error).split())


def _over(own: Preset, overall: Preset) -> Preset:
    return Preset(
        own.ref,
        {**overall.loading, **own.loading},
        {**overall.generation, **own.generation},
        own.template or overall.template,
        own.aliases,
        own.at_start or overall.at_start,
    )


class _Reader:
    """Reads one section."""

    def __init__(self, path: str, name: str, generation: options.Options, notice: Notice) -> None:
        self._where = f"{path}: [{name:.80}]"
        self._notice = notice
        self._groups = {"loading": options.LOADING, "generation": generation}

    def preset(self, keys: Mapping[str, str]) -> Preset:
        """The preset of these keys. Raises: InputError."""
        values: dict[str, dict[str, Any]] = {"loading": {}, "generation": {}}
        plain: dict[str, str] = {}
        for key, text in keys.items():
            name = key
            if key.startswith(_ENVIRONMENT):
                name = key.removeprefix(_ENVIRONMENT).lower().replace("_", "-")
            name = name.lstrip("-")
            if name in _DRAFT:
                name = "draft-model"
            found = self._declared(name)
            if name in (*_MODEL, *_HUB, *_HUB_FILE, *_TEMPLATE, *_PARALLEL, _STARTUP, "alias", "a"):
                plain[name] = text
            elif found is not None:
                group, opt, is_on = found
                values[group][opt.name] = self._value(key, opt, text, is_on)
            else:
                self._refuse(key, name)
        for name in _PARALLEL:
            if name in plain:
                count = self._number(name, plain[name], int)
                if count < 1:
                    raise InputError(f"{self._where}: {name} is {count}; it must be at least 1")
                values["loading"]["max_sequences"] = count
        template = next((plain[name] for name in _TEMPLATE if name in plain), None)
        return Preset(
            self._ref(plain),
            values["loading"],
            values["generation"],
            None if template is None else read_template(template),
            listed("alias", plain.get("alias", plain.get("a"))),
            self._switch(_STARTUP, plain.get(_STARTUP, "false")),
        )

    def _ref(self, plain: Mapping[str, str]) -> str | None:
        """The model that a section names."""
        model = next((plain[name] for name in _MODEL if name in plain), None)
        hub = next((plain[name] for name in _HUB if name in plain), None)
        file = next((plain[name] for name in _HUB_FILE if name in plain), None)
        if model is not None:
            return model
        if hub is None:
            return None
        return f"hf:{hub}" if file is None else f"hf:{hub.partition(':')[0]}:{file}"

    def _declared(self, name: str) -> tuple[str, Declared, bool] | None:
        """The option of a key, its group, and False for a key that switches it off."""
        for group, opts in self._groups.items():
            for opt in opts:
                for flags in opt.option.flags:
                    on, _, off = (flag.lstrip("-") for flag in flags.partition("/"))
                    negated = opt.kind is bool and name == f"no-{on}"
                    if name in (on, off) or negated:
                        return group, opt, name == on
        return None

    def _value(self, key: str, opt: Declared, text: str, is_on: bool) -> Any:
        kind, option = opt.kind, opt.option
        value: Any = text
        if option.repeated:
            value = [text]
        elif option.read is None and kind is bool:
            value = self._switch(key, text) == is_on
        elif option.read is None and kind in (int, float):
            value = self._number(key, text, kind)
        try:
            return options.value_of(opt, value)
        except BadParameter as error:
            raise InputError(f"{self._where}: {error}") from error

    def _switch(self, key: str, text: str) -> bool:
        if text.lower() not in (*_TRUE, *_FALSE):
            raise InputError(f"{self._where}: {key} is {text!r:.40}; it must be true or false")
        return text.lower() in _TRUE

    def _number(self, key: str, text: str, kind: Callable[[str], Any]) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise InputError(f"{self._where}: {key} is {text!r:.40}; it must be a number") from None

    def _refuse(self, key: str, name: str) -> None:
        """Tell of a key that has no effect. Raises: InputError for one that would have one."""
        advice = next((ADVICE[flag] for flag in (f"--{name}", f"-{name}") if flag in ADVICE), None)
        if name in _DROPPED or (advice is not None and advice.endswith("remove the option")):
            self._notice(f"note: {self._where}: {key} has no effect")
        elif advice is not None:
            raise InputError(f"{self._where}: {key} is an option of llama.cpp: {advice}")
        else:
            raise InputError(f"{self._where}: {key!r:.80} is not an option of a model")


def with_presets(
    refs: Sequence[str], found: Sequence[str], presets: Mapping[str, Preset], notice: Notice
) -> list[str]:
    """Return ``refs``, NAME=MODEL of each preset that names a model, and what else was ``found``.

    ``notice`` is called for a preset of no model.
    """
    made = [
        f"{name}={preset.ref}" for name, preset in presets.items() if preset.ref and name != GLOBAL
    ]
    by_name: dict[str, str] = {}
    for ref in (*made, *found):
        by_name.setdefault(name_and_ref(ref)[0], ref)
    given = {name_and_ref(ref)[0] for ref in refs}
    for name in presets:
        if name != GLOBAL and name not in given and name not in by_name:
            notice(f"note: there is no model {name!r:.80}, of which there is a preset")
    return [*refs, *(ref for name, ref in by_name.items() if name not in given)]
