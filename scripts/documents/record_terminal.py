"""Run commands in a terminal and record it as animated SVGs, docs/pictures/NAME.svg.

    pip install -e '.[docs]'
    python scripts/documents/record_terminal.py             every scene
    python scripts/documents/record_terminal.py generate    one

The commands run in a shell in a pseudo-terminal (pexpect). A terminal emulator (pyte) interprets
the output, and each version of a line becomes a text that CSS shows for as long as it was on the
screen. Pauses are cut to MAX_PAUSE; run `python -m trinity warmup` before, so that no compiling is
recorded. A viewer without animation shows the last screen.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import pexpect
import pyte

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
PROMPT = "$ "
PROMPTS = ("$", ">")  # of the shell, and of a chat
COLUMNS = 90
FRAME, MAX_PAUSE, HOLD = 0.08, 1.5, 6.0  # seconds
TYPED_AT_ONCE, TYPING = 3, 0.06
CELL_WIDTH, LINE_HEIGHT, FONT_SIZE, MARGIN, BAR = 8.4, 19, 14, 16, 30
COLOURS = {
    "default": "#e6edf3", "black": "#6e7681", "red": "#ff7b72", "green": "#3fb950",
    "brown": "#d29922", "blue": "#58a6ff", "magenta": "#bc8cff", "cyan": "#39c5cf",
    "white": "#b1bac4",
}  # fmt: skip


@dataclass(frozen=True)
class Scene:
    """Lines of the screen, and the lines that are typed, each when a prompt appears."""

    lines: int
    typed: tuple[str, ...]


SCENES = {
    "generate": Scene(
        14,
        (
            'trinity generate "Prince Andrew" -n 60 --seed 8 --echo',
            'trinity generate "It was on" -q --regex "(Mon|Tues|Fri)day"',
        ),
    ),
    "chat": Scene(
        20,
        (
            "trinity chat",
            "Who is Natasha?",
            "And who does she love?",
            "/set temperature 0.1",
            "Who won the battle of Borodino?",
            "/stats",
            "/exit",
        ),
    ),
    "recommend": Scene(26, ("trinity recommend --params 7B --ram 16GB --bandwidth 40",)),
}

Run = tuple[int, str, str, bool]  # column, text, colour, bold
Line = tuple[Run, ...]


@dataclass
class Recording:
    """The versions of each line of the screen, with the times at which they were shown."""

    spans: list[tuple[int, float, float, Line]] = field(default_factory=list)
    shown: dict[int, tuple[float, Line]] = field(default_factory=dict)
    seconds: float = 0.0

    def frame(self, screen: pyte.Screen, seconds: float) -> None:
        """Add the screen as it is ``seconds`` after the last frame."""
        self.seconds += seconds
        for row in range(screen.lines):
            line = tuple(runs(screen, row))
            since, before = self.shown.get(row, (0.0, ()))
            if line != before:
                if before:
                    self.spans.append((row, since, self.seconds, before))
                self.shown[row] = self.seconds, line

    def end(self) -> None:
        """Show the last screen for a while."""
        self.seconds += HOLD
        for row, (since, line) in self.shown.items():
            if line:
                self.spans.append((row, since, self.seconds, line))


def runs(screen: pyte.Screen, row: int) -> Iterator[Run]:
    """Split a line into texts of one colour, without trailing blanks."""
    cells = screen.buffer[row]
    width = max((x + 1 for x in range(screen.columns) if cells[x].data.strip()), default=0)
    start = 0
    for column in range(1, width + 1):
        here = cells[column] if column < width else None
        first = cells[start]
        if here is None or (here.fg, here.bold) != (first.fg, first.bold):
            text = "".join(cells[x].data for x in range(start, column))
            if text.strip():
                colour = COLOURS.get(first.fg.removeprefix("bright"), COLOURS["default"])
                yield start, text, colour, first.bold
            start = column


@contextmanager
def shell(lines: int) -> Iterator[pexpect.spawn]:
    """Start a shell whose `trinity` runs this checkout, in a path that does not name it."""
    folder = Path(tempfile.gettempdir()) / "trinity"
    folder.mkdir()
    try:
        (folder / "trinity").symlink_to(ROOT / "trinity")
        (folder / "trinity_kernels").symlink_to(ROOT / "kernels" / "trinity_kernels")
        start = folder / "start"
        start.write_text(
            f"PS1='{PROMPT}'; PS2='> '; bind 'set enable-bracketed-paste off'\n"
            f"trinity() {{ '{sys.executable}' -m trinity \"$@\"; }}\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(folder), "TERM": "xterm-256color"}
        environment["XDG_STATE_HOME"] = str(folder / "state")
        environment.pop("COLUMNS", None)
        child = pexpect.spawn(
            "bash", ["--noprofile", "--rcfile", str(start), "-i"], dimensions=(lines, COLUMNS),
            env=environment, cwd=str(folder), timeout=None,
        )  # fmt: skip
        try:
            yield child
        finally:
            child.close(force=True)
    finally:
        shutil.rmtree(folder)


def record(scene: Scene, limit: float = 120.0) -> Recording:
    """Play a scene and record the terminal."""
    screen = pyte.Screen(COLUMNS, scene.lines)
    stream = pyte.ByteStream(screen)
    recording = Recording()

    with shell(scene.lines) as child:
        screen.write_process_input = child.send  # where the cursor is, when the program asks

        def watch(seconds: float) -> None:
            """Record one frame: the output of the next ``seconds``."""
            begin = time.monotonic()
            while (left := begin + seconds - time.monotonic()) > 0:
                try:
                    stream.feed(child.read_nonblocking(65536, timeout=left))
                except pexpect.TIMEOUT:
                    break
            recording.frame(screen, seconds)

        def wait() -> None:
            """Wait for the next prompt; longer pauses are cut."""
            begin = time.monotonic()
            quiet, before = 0.0, screen.display
            while screen.display[screen.cursor.y].rstrip() not in PROMPTS or quiet == 0.0:
                if time.monotonic() - begin > limit:
                    raise SystemExit("\n".join(["the scene hangs:", *screen.display]))
                watched = recording.seconds
                watch(FRAME)
                quiet = quiet + FRAME if screen.display == before else 0.0
                before = screen.display
                if quiet > MAX_PAUSE:
                    recording.seconds = watched

        for text in scene.typed:
            wait()
            for start in range(0, len(text), TYPED_AT_ONCE):
                child.send(text[start : start + TYPED_AT_ONCE])
                watch(TYPING)
            watch(5 * FRAME)
            child.send("\r")
            watch(FRAME)
        wait()
    recording.end()
    return recording


def svg(recording: Recording, scene: Scene, title: str) -> str:
    """Return the recording as an SVG without scripts or embedded fonts."""
    width = COLUMNS * CELL_WIDTH + 2 * MARGIN
    height = scene.lines * LINE_HEIGHT + MARGIN + BAR
    times = sorted({(since, until) for _, since, until, _ in recording.spans})
    names = {span: f"t{number}" for number, span in enumerate(times)}
    total = recording.seconds
    css = [
        f"text {{ font: {FONT_SIZE}px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', "
        "monospace; white-space: pre }",
        f"g {{ animation: {total:.2f}s step-end infinite }}",
        "g.past { visibility: hidden }",
        "@media (prefers-reduced-motion: reduce) { g { animation: none !important } }",
    ]
    for (since, until), name in names.items():
        steps = [] if since == 0 else ["0% { visibility: hidden }"]
        steps.append(f"{since / total:.3%} {{ visibility: visible }}")
        if until < total:
            steps.append(f"{until / total:.3%} {{ visibility: hidden }}")
        css.append(
            f"@keyframes {name} {{ {' '.join(steps)} }} .{name} {{ animation-name: {name} }}"
        )
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" '
        f'viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" aria-label={quoteattr(title)}>',
        "<style>",
        *css,
        "</style>",
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#0d1117" stroke="#3d444d"/>',
    ]
    for place, colour in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        parts.append(f'<circle cx="{20 + 18 * place}" cy="16" r="5.5" fill="{colour}"/>')
    for row, since, until, line in sorted(recording.spans):
        past = "" if until == total else " past"
        y = BAR + LINE_HEIGHT * row + FONT_SIZE
        parts.append(f'<g class="{names[since, until]}{past}">')
        for column, text, colour, bold in line:
            weight = ' font-weight="bold"' if bold else ""
            parts.append(
                f'<text x="{MARGIN + column * CELL_WIDTH:g}" y="{y:g}" fill="{colour}"{weight} '
                f'textLength="{len(text) * CELL_WIDTH:g}">{escape(text)}</text>'
            )
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def main(names: list[str]) -> int:
    unknown = set(names) - SCENES.keys()
    if unknown:
        raise SystemExit(f"no such scene: {', '.join(unknown)}; there are {', '.join(SCENES)}")
    for name in names or SCENES:
        scene = SCENES[name]
        recording = record(scene)
        title = f"A terminal in which this is typed: {'; '.join(scene.typed)}"
        (PICTURES / f"{name}.svg").write_text(svg(recording, scene, title), encoding="utf-8")
        print(f"{name}: {recording.seconds:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
