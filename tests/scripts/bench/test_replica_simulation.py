"""The arithmetic of the simulation of replicas, against cases that can be computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scripts.bench.replica_simulation import (
    Cluster,
    Conversation,
    Costs,
    Load,
    Scaling,
    Simulation,
    Turn,
    percentile,
    replicas_needed,
    simulated,
)
from trinity.runtime.scheduling.step_costs import StepTimes

# 10 ms a step, 1 ms for each sequence, 1 ms for each prompt token.
TIMES = StepTimes(step=0.010, running=0.001, row=0.001)
COSTS = Costs(TIMES, request=0.005)
ONE = Cluster(1)


def conversation(*turns: tuple[int, int], start: float = 0.0, **more: int) -> Conversation:
    return Conversation(start, tuple(Turn(*turn) for turn in turns), **more)


def test_one_request() -> None:
    """5 ms until the first step; 10 + 100 ms for the prompt; 11 ms for each of 9 more tokens."""
    found = simulated([conversation((100, 10))], COSTS, ONE)
    assert found.first == [pytest.approx(0.115)]
    assert found.seconds == pytest.approx(0.115 + 9 * 0.011)
    assert found.tokens == 10
    assert found.rate == pytest.approx(10 / 0.214)
    assert found.busy_seconds == pytest.approx(found.seconds - 0.005)
    assert found.replica_seconds == pytest.approx(found.seconds)


def test_the_next_turn_has_the_prompt_before_in_its_cache() -> None:
    found = simulated([conversation((100, 2), (150, 2))], COSTS, ONE)
    assert found.first == [pytest.approx(0.115), pytest.approx(0.005 + 0.010 + 0.050)]
    assert (found.prompt_tokens, found.cached_tokens) == (250, 100)


def test_conversations_of_a_group_share_their_beginning() -> None:
    first = conversation((100, 2), group=1, shared=64)
    others = [replace(first, start=1.0), replace(first, start=2.0, group=2)]
    found = simulated([first, *others], COSTS, ONE)
    assert found.cached_tokens == 64
    assert found.first[1] == pytest.approx(0.005 + 0.010 + 0.036)


def test_a_request_that_arrives_uses_the_core_of_those_that_run() -> None:
    """The second one comes while the first one generates: 5 ms of its core are used for it."""
    pair = [conversation((100, 12)), conversation((1, 1), start=0.1155)]
    alone = simulated(pair[:1], COSTS, ONE).seconds
    both = simulated(pair, COSTS, ONE)
    # One step has a prompt token more; the rest is the time that the core was used.
    assert both.seconds == pytest.approx(alone + 0.005 + 0.001)
    elsewhere = simulated(pair, replace(COSTS, shares_cores=False), ONE)
    assert elsewhere.seconds == pytest.approx(alone + 0.001)


def test_two_replicas_divide_the_load() -> None:
    pair = [conversation((100, 50)), conversation((100, 50))]
    costs = replace(COSTS, shares_cores=False)
    one, two = (simulated(pair, costs, Cluster(number)) for number in (1, 2))
    assert two.seconds == pytest.approx(0.115 + 49 * 0.011)
    # A step for each prompt, 48 for both responses, and one for the last token.
    assert one.seconds == pytest.approx(0.115 + 0.111 + 48 * 0.012 + 0.011)
    assert two.replica_seconds == pytest.approx(2 * two.seconds)


def test_requests_over_parallel_wait() -> None:
    pair = [conversation((100, 10)), conversation((100, 10))]
    found = simulated(pair, replace(COSTS, shares_cores=False), Cluster(1, parallel=1))
    assert found.first[1] == pytest.approx(0.115 + 9 * 0.011 + 0.110)


def test_a_lost_replica_loses_no_request() -> None:
    """The other one computes 100 prompt tokens and the 5 tokens of the response again."""
    moment = 0.115 + 4.5 * 0.011
    cluster = Cluster(2, losses=(moment,), start_seconds=1.0)
    found = simulated([conversation((100, 10))], COSTS, cluster)
    assert len(found.first) == 1
    assert found.tokens == 10
    assert found.seconds == pytest.approx(moment + 0.005 + 0.010 + 0.105 + 4 * 0.011)
    alone = simulated([conversation((100, 10))], COSTS, replace(cluster, replicas=1))
    assert alone.seconds == pytest.approx(found.seconds + 1.0)


def test_routers() -> None:
    """Random routing finds about half of the prompt tokens in a cache, prefixes all of them."""
    given = Load(60, rate=1.0, turns=2, shared=0, prompt=(100, 100), output=(4, 4)).drawn(3)
    shares = {
        router: simulated(given, COSTS, Cluster(2, router=router)).cached_tokens / (60 * 100)
        for router in ("prefix", "random")
    }
    assert shares["prefix"] == 1.0
    assert 0.3 < shares["random"] < 0.7


def test_a_busy_replica_passes_requests_on() -> None:
    """Of requests with one prefix that come together, one replica gets 5 more than the other."""
    given = [conversation((64, 200), shared=64, start=number / 100) for number in range(6)]
    for router, wanted in (("prefix", [1, 5]), ("least", [3, 3])):
        simulation = Simulation(given, COSTS, Cluster(2, router=router))
        simulation.run()
        assert sorted(len(one.conversations) for one in simulation._replicas) == wanted


def test_scaling_follows_the_load() -> None:
    scaling = Scaling(1, 3, target=2.0, interval=0.1, upscale_delay=0.5, downscale_delay=0.5)
    cluster = Cluster(1, scaling=scaling, start_seconds=0.5)
    turns = [(20 * number, 40) for number in range(1, 9)]
    many = [conversation(*turns) for _ in range(8)]
    late = [conversation((20, 400), start=20.0)]
    found = simulated([*many, *late], COSTS, cluster)
    assert found.most_replicas == 3
    assert found.replica_seconds < 3 * found.seconds
    slow = simulated(many, COSTS, Cluster(1)).seconds
    assert simulated(many, COSTS, cluster).seconds < slow


def test_how_many_replicas_a_load_needs_and_where_the_ingress_ends() -> None:
    costs = replace(COSTS, shares_cores=False)
    given = Load(60, rate=20.0, turns=1, shared=0, prompt=(100, 100), output=(20, 20)).drawn(1)
    needed = replicas_needed(given, costs, ONE, 0.3)
    assert needed is not None
    assert needed > 1
    found = [simulated(given, costs, Cluster(n)).percentile(0.95) for n in (needed - 1, needed)]
    assert found[1] <= 0.3 < found[0]
    # 20 requests of 20 tokens in a second need more than a second of the ingress.
    slow = replace(costs, ingress_token=0.003)
    assert replicas_needed(given, slow, ONE, 0.3, most_replicas=64) is None


def test_percentiles() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.95) == 3.0
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile(list(map(float, range(1, 101))), 0.95) == 95.0


def test_loads_repeat() -> None:
    load = Load(50, rate=5.0, turns=3, groups=2)
    given = load.drawn(1)
    assert given == load.drawn(1) != load.drawn(2)
    assert all(len(one.turns) == 3 for one in given)
    assert given[-1].start == pytest.approx(10, rel=0.5)
    for one in given:
        lengths = [turn.prompt for turn in one.turns]
        assert lengths == sorted(lengths)
        assert lengths[0] >= one.shared + load.prompt[0]
        assert one.turns[0].pause == 0
