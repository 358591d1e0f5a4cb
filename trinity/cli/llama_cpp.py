"""llama.cpp's options that trinity lacks: what does the same here, said where one is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_GPU = "trinity computes on the CPU alone; leave it out"
_OURS = "trinity decides that itself; leave it out"
_SAMPLER = (
    "trinity has no such sampler; it has --temp, --top-k, --top-p, --min-p and penalties "
    "(docs/options.md)"
)
_ROPE = "trinity takes it from the model's file; leave it out"
_ROWS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("-ngl", "--gpu-layers", "--n-gpu-layers", "-dev", "--device", "-sm", "--split-mode", "-ts",
      "--tensor-split", "-mg", "--main-gpu", "-nkvo", "--no-kv-offload", "-ot",
      "--override-tensor", "-cmoe", "--cpu-moe", "-ncmoe", "--n-cpu-moe"), _GPU),
    (("-fa", "--flash-attn", "-b", "--batch-size", "-ub", "--ubatch-size", "--mlock", "--mmap",
      "--no-mmap", "-mmp", "--numa", "-cb", "--cont-batching", "-nocb", "--no-cont-batching",
      "--swa-full", "--no-warmup", "-C", "--cpu-mask", "--prio", "--poll"), _OURS),
    (("-tb", "--threads-batch"), "--threads (-t) is for prompts and for answers"),
    (("-np", "--parallel"),
     "one prompt runs at a time here; `trinity serve` has --parallel (-np)"),
    (("-hf", "-hfr", "--hf-repo"), "write --model hf:USER/REPO[:QUANT]"),
    (("-hff", "--hf-file"), "write --model hf:USER/REPO:FILE"),
    (("-mu", "--model-url"), "write --model hf:USER/REPO, or download the file"),
    (("-a", "--alias"), "write --model NAME=MODEL"),
    (("-cnv", "--conversation", "-i", "--interactive", "-if", "--interactive-first"),
     "`trinity chat` is for conversations"),
    (("-no-cnv", "--no-conversation", "-st", "--single-turn"),
     "`trinity generate` gives one answer; --chat puts the prompt into the model's chat format"),
    (("-sys", "--system-prompt"), "write --system TEXT"),
    (("--chat-template-file", "--chat-template"),
     "write --template FILE, with `trinity serve` --chat-template FILE"),
    (("--jinja", "--no-jinja"), "templates are always rendered as Jinja2; leave it out"),
    (("--no-display-prompt", "--display-prompt"),
     "the prompt is shown with --echo, and not without"),
    (("-e", "--escape", "--no-escape"),
     "escapes are the shell's, as in $'one\\ntwo'; or give a file with -f"),
    (("-co", "--color", "--simple-io", "--log-disable", "-v", "--verbose", "--perf", "--no-perf",
      "-lv", "--verbosity"),
     "text goes to standard output and all else to standard error; leave it out"),
    (("-r", "--reverse-prompt"), "write --stop TEXT"),
    (("--predict",), "write --max-tokens N (-n)"),
    (("--grammar-file",), "write --grammar FILE"),
    (("-j",), "write --json-schema SCHEMA"),
    (("-jf", "--json-schema-file"), "write --json-schema FILE"),
    (("--lora-scaled",), "write --lora FILE:SCALE"),
    (("-ctk", "--cache-type-k", "-ctv", "--cache-type-v"),
     "write --kv-type f16 or f32, which is for keys and values"),
    (("--mirostat", "--mirostat-lr", "--mirostat-ent", "--typical", "--typical-p",
      "--dynatemp-range", "--dynatemp-exp", "--dry-multiplier", "--dry-base",
      "--dry-allowed-length", "--dry-penalty-last-n", "--xtc-probability", "--xtc-threshold",
      "--top-nsigma", "--samplers", "--sampling-seq"), _SAMPLER),
    (("--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale",
      "--yarn-orig-ctx", "--yarn-ext-factor"), _ROPE),
    (("--keep", "--context-shift", "--no-context-shift"),
     "`trinity chat` has --ctx-shift; elsewhere a context that is full ends the answer"),
    (("--prompt-cache", "--slot-save-path"),
     "what was evaluated is shared between requests of one process; leave it out"),
    (("-md", "--model-draft", "--draft", "--draft-max"),
     "trinity has no draft models; it guesses tokens from the text itself"),
    (("-mm", "--mmproj"), "trinity runs the part of a model that writes; leave it out"),
    (("-o", "--output"), "write --json for one JSON object"),
    (("--outfile",), "give the file to write as the second argument"),
)  # fmt: skip
ADVICE: dict[str, str] = {flag: advice for flags, advice in _ROWS for flag in flags}


# What a line of llama-cli begins with.
_BEGINNINGS = ("-m", "--model", "-hf", "--hf-repo", "-p", "--prompt", "-f", "--file")


class Group(TyperGroup):
    """The command line as a whole, which has no option of a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As it is, after a look for a command's options without a command."""
        if args and args[0].partition("=")[0] in _BEGINNINGS and not ctx.resilient_parsing:
            raise typer.BadParameter(
                f"{args[0]} needs a command before it, such as `trinity chat -m MODEL` or "
                "`trinity generate -m MODEL PROMPT`",
                ctx,
            )
        return super().parse_args(ctx, args)


class LlamaCommand(TyperCommand):
    """A subcommand that knows llama.cpp's options, and whose line in the list is never cut off."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As it is, after a look for options of llama.cpp's that this command has not."""
        own = self._values()
        words = [] if ctx.resilient_parsing else args  # of a shell that asks for completions
        for flag in given_flags(words, own):
            if flag not in own and flag in ADVICE:
                raise typer.BadParameter(f"{flag} is an option of llama.cpp: {ADVICE[flag]}", ctx)
        return super().parse_args(ctx, args)

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first sentence of the help, whole: the list of commands wraps it."""
        return super().get_short_help_str(10_000)

    def _values(self) -> dict[str, bool]:
        """Each flag of the command, and whether a value follows it."""
        found = {"-h": False, "--help": False}
        for parameter in self.params:
            alone = bool(getattr(parameter, "is_flag", False))
            for flag in (*parameter.opts, *parameter.secondary_opts):
                if flag.startswith("-"):
                    found[flag] = not alone
        return found


def given_flags(args: list[str], own: dict[str, bool]) -> Iterator[str]:
    """What of a command line stands where an option may stand; ``own`` says what takes a value."""
    rest = iter(args)
    for word in rest:
        if word == "--":
            return
        if word.startswith("-") and word != "-":
            yield word.partition("=")[0]
            if own.get(word, False):
                next(rest, None)
