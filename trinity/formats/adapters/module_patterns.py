"""Match modules against regular expressions, in a confined process.

The expressions come from an adapter's configuration, and one can take hours. This module is used if
any of them is more than a plain module name.
"""

from __future__ import annotations

import re
from typing import Any


def answer(request: dict[str, Any]) -> list[int | None]:
    """For each of ``modules``, return the index of the first of ``patterns`` that matches, or None.

    Source: PEFT's get_pattern_key: a pattern matches at the end of a name, after a dot.
    """
    patterns = [re.compile(rf"^(.*\.)?({pattern})$") for pattern in request["patterns"]]
    return [
        next((i for i, pattern in enumerate(patterns) if pattern.match(module)), None)
        for module in request["modules"]
    ]
