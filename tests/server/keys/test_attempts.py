"""Data of one API key do not exist for another key.

Each attempt is made on a server where key A has data and on one where it has none: key B gets the
same response. Key A gets different ones for the same request, so the attempt could succeed.

Each attempt is made on a server where key A has something and on one where it has nothing: key B
gets the same answer. The same request of key A gets another one, so the attempt could succeed.
"""

from __future__ import annotations

import pytest

from tests.server.keys.attempts import ATTEMPTS, Attempt
from tests.server.keys.conftest import Serve


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda one: one.name)
def test_an_attempt_to_reach_what_another_key_has(serve: Serve, attempt: Attempt) -> None:
    with serve() as empty:
        empty.names |= attempt.unknown
        nothing = attempt.ask(empty, "B")
    with serve(attempt.make) as attacked:
        assert attempt.ask(attacked, "B") == nothing
        after = attempt.view(attacked, "A")
    with serve(attempt.make) as untouched:
        view = attempt.view(untouched, "A")
        assert after == view
    with serve(attempt.make) as owned:  # the attempt has an effect where the key is right
        assert attempt.ask(owned, "A") != nothing or attempt.view(owned, "A") != view


def test_there_are_at_least_30_attempts() -> None:
    names = [one.name for one in ATTEMPTS]
    assert len(set(names)) == len(names) >= 30
