"""Which of some regular expressions matches a module first; for a confined process alone.

Whoever wrote an adapter's configuration wrote these, and one can take hours: `trinity.confined`
runs this where any is more than a module's name.
"""

from __future__ import annotations

import re
from typing import Any


def answer(request: dict[str, Any]) -> list[int | None]:
    """For each of ``modules`` the place of the first of ``patterns`` that matches, or None.

    Source: PEFT's get_pattern_key: a pattern matches at the end, behind a dot.
    """
    patterns = [re.compile(rf"^(.*\.)?({pattern})$") for pattern in request["patterns"]]
    return [
        next((i for i, pattern in enumerate(patterns) if pattern.match(module)), None)
        for module in request["modules"]
    ]
