"""Copies of model directories with other values, and a check that their images are not read."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import trinity

CONFIG, PROCESSOR = "config.json", "preprocessor_config.json"


def changed_copy(
    source: Path, to: Path, values: dict[str, object], file: str = CONFIG, part: str = ""
) -> Path:
    """Copy a directory, with other values in the object ``part`` of one of its files."""
    shutil.copytree(source, to)
    content: dict[str, Any] = json.loads((to / file).read_text("utf-8"))
    (content[part] if part else content).update(values)
    (to / file).write_text(json.dumps(content), "utf-8")
    return to


def check_reads_only_text(path: Path, message: str) -> None:
    """The model loads without images, and a line that matches ``message`` says why."""
    lines: list[str] = []
    with trinity.load(path, progress=lines.append) as model:
        assert not model.reads_images
    assert any("images are not read" in line and re.search(message, line) for line in lines), lines
