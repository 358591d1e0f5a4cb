"""Compare the routers of a server on Ray; change its number of replicas and its version under load.

    python tests/soak/routing.py --routers prefix random ray --conversations 40
    python tests/soak/routing.py --scaling
    python tests/soak/routing.py --updates 5

Routing: conversations of three turns, four at the same time in random order, on two replicas. The
figure is the number of prompt tokens that were cached, as a share of those that one process has.
"random" draws the replica, "ray" is Ray's PrefixCacheAffinityRouter.

Scaling: six clients, then one, then six stream while Serve's autoscaling changes the number of
replicas between 1 and 2. Exit status 1 if a text differs from one process's, or is an error.

Updates: six clients stream while the application is deployed again with another option, so that
Serve replaces the replicas and the ingress. The exit status is as for scaling.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [str(ROOT), str(ROOT / "kernels")]
sys.path[:0] = [folder for folder in FOLDERS if folder not in sys.path]

from trinity import Model, load  # noqa: E402
from trinity.loading import chat_model  # noqa: E402

ROUTERS = {
    "prefix": "trinity.ray.router.PrefixRouter",
    "random": "tests.soak.random_router.RandomRouter",
    # Its public module needs vLLM.
    "ray": "ray.llm._internal.serve.routing_policies.prefix_aware.prefix_aware_router."
    "PrefixCacheAffinityRouter",
}
QUESTIONS = ("Who is Pierre?", "Who is Natasha?", "What did Prince Andrew say?")
OPTIONS: dict[str, Any] = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
LONG: dict[str, Any] = {"temperature": 0, "max_tokens": 250, "ignore_eos": True}
PORT = 18477
SECONDS = 120.0
Ask = Callable[[list[dict[str, str]], dict[str, Any]], tuple[str, int]]


@contextmanager
def cluster() -> Iterator[Any]:
    """A cluster whose processes find this checkout; yields ray.serve."""
    os.environ["PYTHONPATH"] = os.pathsep.join([*FOLDERS, os.environ.get("PYTHONPATH", "")])
    import ray
    from ray import serve

    ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False,
        logging_level="ERROR",
    )  # fmt: skip
    serve.start(http_options={"port": PORT}, logging_config={"log_level": "ERROR"})
    try:
        yield serve
    finally:
        serve.shutdown()
        ray.shutdown()


def application_of(**more: Any) -> Any:
    from trinity.ray.serving import application

    given = {"model": f"demo={chat_model()}", "cores": 1, "loading": {"context_length": 1024}}
    return application({**given, **more})


def asked(messages: list[dict[str, str]], options: dict[str, Any]) -> tuple[str, int]:
    """The text of a response, and how many tokens of its prompt were cached."""
    body = {"messages": messages, **options}
    url = f"http://127.0.0.1:{PORT}/v1/chat/completions"
    found = httpx.post(url, json=body, timeout=SECONDS).json()
    cached = found["usage"]["prompt_tokens_details"]["cached_tokens"]
    return found["choices"][0]["message"]["content"], cached


def conversations(count: int, ask: Ask) -> int:
    """Hold conversations, four at the same time; return the number of cached prompt tokens."""
    talks: list[list[dict[str, str]]] = [[] for _ in range(count)]

    def turn(number: int, question: str) -> int:
        text = f"{question} This is question {number}, and it is not a short one."
        talks[number].append({"role": "user", "content": text})
        answer, cached = ask(talks[number], OPTIONS)
        talks[number].append({"role": "assistant", "content": answer})
        return cached

    draw, cached = random.Random(1), 0
    for question in QUESTIONS:
        order = draw.sample(range(count), count)
        with ThreadPoolExecutor(4) as pool:
            cached += sum(pool.map(turn, order, [question] * count))
    return cached


def compare_routers(names: Sequence[str], count: int, model: Model, serve: Any) -> None:
    def alone(messages: list[dict[str, str]], options: dict[str, Any]) -> tuple[str, int]:
        completion = model.chat(messages, **options)
        return completion.text, completion.timings.cached_tokens

    most = conversations(count, alone)
    print(f"{count} conversations: one process has {most} prompt tokens cached", flush=True)
    for name in names:
        serve.run(application_of(replicas=2, router=ROUTERS[name]), name="trinity")
        found = conversations(count, asked)
        print(f"{name}: {found}, {found / most:.2f} of that", flush=True)
        serve.delete("trinity")


def replicas(serve: Any) -> int:
    deployed = serve.status().applications["trinity"].deployments["replica"]
    return int(deployed.replica_states.get("RUNNING", 0))


def scale(model: Model, serve: Any) -> int:
    """Return the number of texts that are not those of one process."""
    questions = [f"{question} {number}" for number in range(2) for question in QUESTIONS]
    wanted = {q: model.chat([{"role": "user", "content": q}], **LONG).text for q in questions}
    delays = {"upscale_delay_s": 1, "downscale_delay_s": 2, "metrics_interval_s": 0.5}
    limits = {"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 2}
    serve.run(
        application_of(autoscaling={**limits, **delays, "look_back_period_s": 1}), name="trinity"
    )
    same = wrong = 0

    def one(question: str) -> bool:
        try:
            text, _ = asked([{"role": "user", "content": question}], LONG)
        except (httpx.HTTPError, KeyError, ValueError) as error:
            print(f"{question}: {error!r}", flush=True)
            return False
        return text == wanted[question]

    with ThreadPoolExecutor(len(questions)) as pool:
        for clients, goal in ((1, 1), (6, 2), (1, 1), (6, 2), (1, 1)):
            began = time.monotonic()
            while replicas(serve) != goal or time.monotonic() < began + 3:
                if time.monotonic() > began + SECONDS:
                    raise SystemExit(f"{replicas(serve)} replicas for {clients} clients")
                right = sum(pool.map(one, questions[:clients]))
                same, wrong = same + right, wrong + clients - right
            seconds = time.monotonic() - began
            print(
                f"{clients} clients: {goal} replicas after {seconds:.0f} s; {same} texts are "
                f"equal, {wrong} are not", flush=True,
            )  # fmt: skip
    serve.delete("trinity")
    return wrong


def streamed(messages: list[dict[str, str]], options: dict[str, Any]) -> str:
    """The text of a streamed response."""
    text = ""
    body = {"messages": messages, **options, "stream": True}
    url = f"http://127.0.0.1:{PORT}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, timeout=SECONDS) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                text += "".join(one["delta"].get("content") or "" for one in event["choices"])
    return text


def update(model: Model, serve: Any, times: int) -> int:
    """Return the number of streams whose texts are not those of one process."""
    questions = [f"{question} {number}" for number in range(2) for question in QUESTIONS]
    wanted = {q: model.chat([{"role": "user", "content": q}], **LONG).text for q in questions}
    stopped, same, wrong = threading.Event(), Counter[int](), Counter[int]()
    version = 0

    def client(question: str) -> None:
        while not stopped.is_set():
            before = version
            try:
                text = streamed([{"role": "user", "content": question}], LONG)
            except (httpx.HTTPError, KeyError, ValueError) as error:
                text = repr(error)
            (same if text == wanted[question] else wrong)[version - before] += 1
            if text != wanted[question]:
                print(f"{question}: {text}", flush=True)

    serve.run(application_of(replicas=2, serving={"batch_size": 256}), name="trinity")
    with ThreadPoolExecutor(len(questions)) as pool:
        for question in questions:
            pool.submit(client, question)
        try:
            for number in range(1, times + 1):
                time.sleep(2)
                began = time.monotonic()
                serve.run(
                    application_of(replicas=2, serving={"batch_size": 256 + number}), name="trinity"
                )
                version = number
                print(
                    f"update {number} after {time.monotonic() - began:.0f} s; "
                    f"{same.total()} texts are equal, {wrong.total()} are not", flush=True,
                )  # fmt: skip
        finally:
            stopped.set()
    print(
        f"{same.total()} texts are equal, {wrong.total()} are not; during an update "
        f"{same.total() - same[0]} and {wrong.total() - wrong[0]}", flush=True,
    )  # fmt: skip
    serve.delete("trinity")
    return wrong.total()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--routers", nargs="*", choices=ROUTERS, default=[])
    parser.add_argument("--conversations", type=int, default=40)
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--updates", type=int, default=0)
    options = parser.parse_args()
    with load(chat_model(), context_length=1024, threads=1) as model, cluster() as serve:
        if options.routers:
            compare_routers(options.routers, options.conversations, model, serve)
        wrong = scale(model, serve) if options.scaling else 0
        wrong += update(model, serve, options.updates) if options.updates else 0
        return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
