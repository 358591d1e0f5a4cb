"""Advice for options of llama.cpp, and for commands of other programs, that trinity lacks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from textwrap import TextWrapper
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from trinity.cli.parameters import BadParameter

_GPU = "trinity only runs on the CPU; remove the option"
_OURS = "trinity decides this itself; remove the option"
_ROWS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("-ngl", "--gpu-layers", "--n-gpu-layers", "-dev", "--device", "-sm", "--split-mode", "-ts",
      "--tensor-split", "-mg", "--main-gpu", "-nkvo", "--no-kv-offload", "-ot",
      "--override-tensor", "-cmoe", "--cpu-moe", "-ncmoe", "--n-cpu-moe"), _GPU),
    (("-fa", "--flash-attn", "-b", "--batch-size", "-ub", "--ubatch-size", "--mlock", "--mmap",
      "--no-mmap", "-mmp", "--numa", "-cb", "--cont-batching", "-nocb", "--no-cont-batching",
      "--swa-full", "--no-warmup", "-C", "--cpu-mask", "--prio", "--poll"), _OURS),
    (("-tb", "--threads-batch"), "--threads (-t) applies to prompts and to generation"),
    (("-np", "--parallel"),
     "this command runs one prompt at a time; `trinity serve` has --parallel (-np)"),
    (("-hf", "-hfr", "--hf-repo"), "write --model hf:USER/REPO[:QUANT]"),
    (("-hff", "--hf-file"), "write --model hf:USER/REPO:FILE"),
    (("-mu", "--model-url"), "use --model hf:USER/REPO, or download the file"),
    (("-a", "--alias"), "write --model NAME=MODEL"),
    (("-cnv", "--conversation", "-i", "--interactive", "-if", "--interactive-first"),
     "use `trinity chat` for conversations"),
    (("-no-cnv", "--no-conversation", "-st", "--single-turn"),
     "use `trinity generate` for a single response; --chat applies the model's chat template"),
    (("-sys", "--system-prompt"), "write --system TEXT"),
    (("--chat-template-file", "--chat-template"),
     "`trinity chat`, `trinity generate` and `trinity serve` have it"),
    (("--jinja", "--no-jinja"), "templates are always rendered as Jinja2; remove the option"),
    (("--no-display-prompt", "--display-prompt"),
     "the prompt is only printed with --echo"),
    (("-e", "--escape", "--no-escape"),
     "use the shell's escapes, as in $'one\\ntwo', or a file with -f"),
    (("-co", "--color", "--simple-io", "--log-disable", "-v", "--verbose", "--perf", "--no-perf",
      "-lv", "--verbosity"),
     "text is written to standard output and the rest to standard error; remove the option"),
    (("-r", "--reverse-prompt"), "write --stop TEXT"),
    (("--predict",), "write --max-tokens N (-n)"),
    (("--grammar-file",), "write --grammar FILE"),
    (("-j",), "write --json-schema SCHEMA"),
    (("-jf", "--json-schema-file"), "write --json-schema FILE"),
    (("--lora-scaled",), "write --lora FILE:SCALE"),
    (("-ctk", "--cache-type-k", "-ctv", "--cache-type-v"),
     "use --kv-type f16, q8_0 or f32, which applies to keys and values"),
    (("--keep", "--context-shift", "--no-context-shift"),
     "commands that generate have --context-shift, and --keep except for `trinity chat`"),
    (("--prompt-cache", "--slot-save-path"),
     "requests of one process share cached prompts automatically; remove the option"),
    (("-md", "--model-draft"), "write --draft-model MODEL"),
    (("--draft", "--draft-max", "--draft-min", "--draft-p-min"),
     "trinity decides by measuring how many tokens to draft; remove the option"),
    (("-mm",), "use --mmproj"),
    (("-o", "--output"), "use --json for one JSON object"),
    (("--outfile",), "give the file to write as the second argument"),
)  # fmt: skip
ADVICE: dict[str, str] = {flag: advice for flags, advice in _ROWS for flag in flags}


# Commands of Ollama, llama.cpp and others.
COMMANDS_OF_OTHERS: dict[str, str] = {
    "run": "use `trinity chat --model MODEL`, or `trinity generate --model MODEL PROMPT`",
    "ps": "a model is loaded only while a command runs; the server lists its own at /api/ps",
    "show": "use `trinity inspect MODEL`",
    "ls": "use `trinity list`",
    "create": "use `trinity convert` for a directory, `trinity quantize` for a GGUF file",
    "stop": "press Ctrl-C in the terminal where the command runs",
    "download": "use `trinity pull`",
    "remove": "use `trinity rm`",
    "delete": "use `trinity rm`",
    "server": "use `trinity serve`",
    "complete": "use `trinity generate`",
    "embedding": "use `trinity embed`",
    "rerank": "use `trinity rank`",
    "version": "use `trinity --version`",
}
_NARROW = 64  # columns; from here on, help has a column of terms and one of their meanings
_SHORT = 12  # columns of a term
# Options at the beginning of a command line that is meant for llama-cli.
_BEGINNINGS = ("-m", "--model", "-hf", "--hf-repo", "-p", "--prompt", "-f", "--file")


class _FittingHelp:
    """Help that fits a narrow terminal: what an option means is below it."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; typer's own needs at least 52 columns."""
        columns = shutil.get_terminal_size().columns
        if columns < _NARROW:
            formatter.width = max(columns - 2, 20)
            formatter.write_dl = partial(_write_terms, formatter.write_dl, formatter.width - 2)
        super().format_help(ctx, formatter)  # type: ignore[misc]


def _write_terms(
    write: Callable[..., None], width: int, rows: Sequence[tuple[str, str]]
) -> None:  # fmt: skip
    """Write a list of terms: short ones to the left of their meanings, long ones above them."""
    longest = max(len(term) for term, _ in rows)
    if longest <= _SHORT:
        write(rows, col_max=longest)
    else:
        folded = TextWrapper(width, subsequent_indent="    ", break_on_hyphens=False)
        write([("\n".join(folded.wrap(term)), meaning) for term, meaning in rows], col_max=2)


class Group(_FittingHelp, TyperGroup):
    """The whole command line, which has no options of its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; options before a command give an error with advice."""
        if args and args[0].partition("=")[0] in _BEGINNINGS and not ctx.resilient_parsing:
            raise typer.BadParameter(
                f"{args[0]} needs a command before it, such as `trinity chat -m MODEL` or "
                "`trinity generate -m MODEL PROMPT`",
                ctx,
            )
        if args[:1] == ["help"]:
            args = [*args[1:2], "--help"]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; one of another program gives an error with advice."""
        if args[0] in COMMANDS_OF_OTHERS and not ctx.resilient_parsing:
            raise typer.BadParameter(
                f"trinity has no command {args[0]!r}: {COMMANDS_OF_OTHERS[args[0]]}", ctx
            )
        is_model = args[0].startswith(("hf:", "ollama:")) or os.path.exists(args[0])
        if is_model and args[0] not in self.commands and not ctx.resilient_parsing:
            raise typer.BadParameter(
                f"trinity has no command {args[0]!r:.80}: use `trinity chat --model {args[0]}`", ctx
            )
        return super().resolve_command(ctx, args)


class LlamaCommand(_FittingHelp, TyperCommand):
    """A subcommand that recognizes llama.cpp's options; its help is not truncated in the list."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; an option that only llama.cpp has gives an error with advice.

        If the context has an error as its object, raise it instead.
        """
        if isinstance(ctx.obj, BadParameter):
            raise typer.BadParameter(str(ctx.obj), ctx, param_hint=ctx.obj.param_hint)
        own = self._values()
        words = [] if ctx.resilient_parsing else args  # the shell is asking for completions
        given = set(given_flags(words, own))
        for flag in given:
            if flag not in own and flag in ADVICE:
                raise typer.BadParameter(f"{flag} is an option of llama.cpp: {ADVICE[flag]}", ctx)
        if not ctx.resilient_parsing and not {"-h", "--help"} & given:
            self._check_required(ctx, given)
        ctx.allow_extra_args = True  # they get an error here, which says what to do
        left: list[str] = super().parse_args(ctx, args)
        if left and not ctx.resilient_parsing:
            raise typer.BadParameter(self._too_many(ctx, left), ctx)
        return left

    def _check_required(self, ctx: Any, given: set[str]) -> None:
        """Raise an error with the help of a required option that is missing."""
        for option in self.params:
            is_option = option.param_type_name == "option"
            if option.required and is_option and not given & set(option.opts):
                text = getattr(option, "help", "")
                raise typer.BadParameter(f"{option.opts[0]} is missing: {text}", ctx)

    def _too_many(self, ctx: Any, left: list[str]) -> str:
        """The error for words that no argument takes."""
        taken = [p for p in self.params if p.param_type_name == "argument"]
        names = " ".join(str(p.metavar or p.name).upper() for p in taken)
        if taken:
            advice = "put a text or a name with spaces into quotation marks"
        elif "--model" in self._values():
            advice = f"write a model as --model {left[0]}"
        else:
            advice = "remove it"
        return (
            f"{left[0]!r:.80} is a word too many: `{ctx.info_name}` takes "
            f"{names or 'only options'}; {advice}"
        )

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the first sentence of the help; the list of commands wraps it."""
        return super().get_short_help_str(10_000)

    def _values(self) -> dict[str, bool]:
        """Map each flag of the command to whether it takes a value."""
        takes_value = {"-h": False, "--help": False}
        for parameter in self.params:
            alone = bool(getattr(parameter, "is_flag", False))
            for flag in (*parameter.opts, *parameter.secondary_opts):
                if flag.startswith("-"):
                    takes_value[flag] = not alone
        return takes_value


def given_flags(args: list[str], own: dict[str, bool]) -> Iterator[str]:
    """Yield the words of a command line that may be options; ``own`` maps flags as ``_values``."""
    rest = iter(args)
    for word in rest:
        if word == "--":
            return
        if word.startswith("-") and word != "-":
            yield word.partition("=")[0]
            if own.get(word, False):
                next(rest, None)
