"""The documents' pictures show what was measured and printed."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from statistics import median
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[1]
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
MEASUREMENTS = sorted((ROOT / "docs" / "measurements").glob("*.json"))


@pytest.mark.parametrize("picture", PICTURES, ids=lambda p: p.name)
def test_picture_is_plain_svg(picture: Path) -> None:
    """It is well-formed, without scripts and external content, which pages would not show."""
    text = picture.read_text("utf-8")
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not re.search(r"<script|href=|url\(|@import", text)
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert any(picture.name in page.read_text("utf-8") for page in documents)


@pytest.mark.parametrize("report", MEASUREMENTS, ids=lambda p: p.name)
def test_chart_is_that_of_its_report(report: Path) -> None:
    """The committed chart is the one that the script draws, and shows the medians of the rounds."""
    script = runpy.run_path(str(ROOT / "scripts" / "documents" / "draw_charts.py"))
    content = json.loads(report.read_text("utf-8"))
    chart = (ROOT / "docs" / "pictures" / f"{report.stem}.svg").read_text("utf-8")
    assert chart == script["draw"](content), "python scripts/documents/draw_charts.py draws it anew"
    texts = [element.text for element in ElementTree.fromstring(chart).iter() if element.text]
    for shape in content["shapes"]:
        for result in shape["results"]:
            if " " not in result["test"] and result["llama_cpp"]:
                ours = script["number"](median(result["trinity_rounds"]))
                rounds = result["llama_cpp_rounds"].values()
                theirs = script["number"](max(median(values) for values in rounds))
                assert f"{ours} ({theirs})" in texts
