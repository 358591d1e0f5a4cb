"""Draw each docs/measurements/NAME.json as docs/pictures/NAME.svg: speed relative to llama.cpp.

    python scripts/documents/draw_charts.py
    python scripts/documents/draw_charts.py build/report.json build/report.svg

The JSON is a report of bench_peers.py --json. A bar shows the ratio of the medians, the thin line
the range of the ratios of all pairs of rounds; the numbers are tokens per second. Colours and
background follow the reader's light or dark setting, so the picture is readable on any page.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree import ElementTree

DOCS = Path(__file__).resolve().parents[2] / "docs"
NAMES = {
    "A": "BitNet 2B-4T, I2_S",
    "B": "Llama 1B, Q4_0",
    "C": "Llama 1B, Q8_0",
    "D": "Llama 100M, Q4_0",
    "Q4_K_M": "Llama 1B, Q4_K_M",
    "qwen3-0.6b": "Qwen3 0.6B, Q4_0",
    "gemma3-1b": "Gemma 3 1B, Q4_0",
    "qwen35-0.8b": "Qwen 3.5 0.8B, Q4_0",
    "phi4-mini-16l": "Phi-4-mini (16 layers), Q4_0",
    "qwen3-30b-a3b-8l": "Qwen3-30B-A3B (8 layers), Q4_0",
    "gpt-oss-20b-4l": "gpt-oss-20b (4 layers), MXFP4",
}
KINDS = {"tg": "Generating", "pp": "Reading a prompt"}
STYLE = """
.card { fill: #ffffff; stroke: #d0d7de } .ink { fill: #1f2328 } .faint { fill: #59636e }
.track { fill: #eff2f5 } .faster { fill: #1a7f37 } .slower { fill: #bc4c00 }
.one { stroke: #1f2328; stroke-dasharray: 3 3 } .range { stroke: #1f2328 }
@media (prefers-color-scheme: dark) {
.card { fill: #0d1117; stroke: #3d444d } .ink { fill: #f0f6fc } .faint { fill: #9198a1 }
.track { fill: #212830 } .faster { fill: #3fb950 } .slower { fill: #db6d28 }
.one, .range { stroke: #f0f6fc }
}
text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }
.title { font-size: 16px; font-weight: 600 } .head { font-weight: 600 }
.small { font-size: 12px }
"""
WIDTH, MARGIN, LABELS, GAP = 900, 20, 215, 24
TOP, ROW, BAR = 96, 30, 14
NUMBERS = 118  # right of a panel's bars: tokens per second of both


@dataclass(frozen=True)
class Row:
    """One model in one test: medians in tokens per second, and the range of ratios."""

    trinity: float
    llama_cpp: float
    least: float
    most: float

    @property
    def ratio(self) -> float:
        return self.trinity / self.llama_cpp


def rows(report: dict[str, Any]) -> dict[str, dict[str, Row]]:
    """Return the models measured with llama.cpp for "tg" and "pp", with one sequence at depth 0."""
    found: dict[str, dict[str, Row]] = {kind: {} for kind in KINDS}
    for shape in report["shapes"]:
        for result in shape["results"]:
            kind, plain = result["test"][:2], " " not in result["test"]
            if not plain or not result["llama_cpp"]:
                continue
            ours, modes = result["trinity_rounds"], result["llama_cpp_rounds"].values()
            # The mode whose median bench_peers.py took: where there are two, the better one.
            theirs = max(modes, key=median)
            found[kind][NAMES.get(shape["shape"], f"Llama 1B, {shape['shape']}")] = Row(
                result["trinity"],
                result["llama_cpp"],
                min(ours) / max(theirs),
                max(ours) / min(theirs),
            )
    return {kind: models for kind, models in found.items() if models}


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


class Drawing:
    """An SVG that is drawn from top to bottom."""

    def __init__(self, height: float, label: str) -> None:
        self.root = ElementTree.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "viewBox": f"0 0 {WIDTH} {height:g}",
                "width": str(WIDTH),
                "height": f"{height:g}",
                "role": "img",
                "aria-label": label,
            },
        )
        ElementTree.SubElement(self.root, "style").text = STYLE
        self.rect("card", 0.5, 0.5, WIDTH - 1, height - 1, radius=8)

    def rect(self, kind: str, x: float, y: float, w: float, h: float, radius: float = 2) -> None:
        box = {"x": x, "y": y, "width": w, "height": h, "rx": radius}
        values = {name: f"{value:.4g}" for name, value in box.items()}
        ElementTree.SubElement(self.root, "rect", {"class": kind, **values})

    def line(self, kind: str, x1: float, y1: float, x2: float, y2: float) -> None:
        ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
        values = {name: f"{value:.4g}" for name, value in ends.items()}
        ElementTree.SubElement(self.root, "line", {"class": kind, **values})

    def text(self, kind: str, x: float, y: float, text: str, anchor: str = "start") -> None:
        place = {"x": f"{x:.4g}", "y": f"{y:.4g}", "text-anchor": anchor}
        ElementTree.SubElement(self.root, "text", {"class": kind, **place}).text = text

    def __str__(self) -> str:
        ElementTree.indent(self.root)
        return ElementTree.tostring(self.root, encoding="unicode") + "\n"


def draw(report: dict[str, Any]) -> str:
    """Return the SVG of a report of bench_peers.py."""
    panels = rows(report)
    if not panels:
        raise SystemExit("the report has no test that llama.cpp ran too")
    models = list(dict.fromkeys(name for found in panels.values() for name in found))
    levels = {result["isa"] for shape in report["shapes"] for result in shape["results"]}
    drawing = Drawing(
        TOP + ROW * len(models) + 44, "Speed of trinity as a multiple of llama.cpp's, by model"
    )
    drawing.text("title ink", MARGIN, 32, "Speed beside llama.cpp (the dashed line, 1.0)")
    about = [report["machine"]["cpu"], f"{report['threads']} threads", "/".join(sorted(levels))]
    versions = {shape["peer"]["package"] for shape in report["shapes"] if shape["peer"]}
    about += [f"llama-cpp-python {version}" for version in sorted(versions)]
    drawing.text("small faint", MARGIN, 52, ", ".join(about))
    width = (WIDTH - 2 * MARGIN - LABELS - GAP * (len(panels) - 1)) / len(panels)
    scale = (width - NUMBERS) / max(row.most for found in panels.values() for row in found.values())
    for place, name in enumerate(models):
        drawing.text("ink", MARGIN, TOP + ROW * place + 19, name)
    for panel, (kind, found) in enumerate(panels.items()):
        left = MARGIN + LABELS + panel * (width + GAP)
        drawing.text("head ink", left, TOP - 14, KINDS[kind])
        drawing.text("small faint", left + width, TOP - 14, "tokens/s (llama.cpp)", "end")
        for place, name in enumerate(models):
            if name not in found:
                continue
            row, y = found[name], TOP + ROW * place + 7
            middle = y + BAR / 2
            drawing.rect("track", left, y, width - NUMBERS, BAR)
            kind_of_bar = "faster" if row.ratio >= 1 else "slower"
            drawing.rect(kind_of_bar, left, y, row.ratio * scale, BAR)
            drawing.line("range", left + row.least * scale, middle, left + row.most * scale, middle)
            numbers = f"{number(row.trinity)} ({number(row.llama_cpp)})"
            drawing.text("small ink", left + width, y + 12, numbers, "end")
        bottom = TOP + ROW * len(models) + 4
        drawing.line("one", left + scale, TOP, left + scale, bottom)
        drawing.text("small faint", left + scale, bottom + 16, "1.0", "middle")
    drawing.text("small faint", MARGIN, TOP + ROW * len(models) + 26, "bar: median; line: rounds")
    return str(drawing)


def main(arguments: list[str]) -> int:
    pairs = [(Path(arguments[0]), Path(arguments[1]))] if len(arguments) == 2 else []
    if arguments and not pairs:
        raise SystemExit("usage: draw_charts.py [REPORT.json PICTURE.svg]")
    for source in sorted((DOCS / "measurements").glob("*.json")) if not pairs else []:
        pairs.append((source, DOCS / "pictures" / f"{source.stem}.svg"))
    for source, picture in pairs:
        picture.write_text(draw(json.loads(source.read_text("utf-8"))), encoding="utf-8")
        print(picture, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
