"""Serve applications: an ingress and replicas of a model, from options or a config file."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any

from trinity.errors import InputError
from trinity.ray.cluster import Replicas, connected, library
from trinity.ray.ingress import Ingress, Offer
from trinity.ray.replica import Replica
from trinity.server.model_refs import context_limit, name_and_ref, usual_context
from trinity.server.service import NO_DEFAULTS
from trinity.server.setting_values import read_template
from trinity.server.settings import ServerOptions

RUNNING = 16  # responses that a replica generates at the same time
INGRESS_REQUESTS = 10_000  # the ingress has limits of its own, --max-queue
UNSUPPORTED = (
    "allow_create", "allow_pull", "memory_limit", "slot_save_path", "speech_model", "state",
)  # fmt: skip
ROUTER = "trinity.ray.router.PrefixRouter"
NAME = "trinity"  # of the application
POLL_SECONDS = 0.2  # between two checks for a signal


def deployed(
    ref: str, replicas: Replicas, options: ServerOptions, loading: Mapping[str, Any],
    defaults: Mapping[str, Any] = NO_DEFAULTS, *, autoscaling: Mapping[str, Any] | None = None,
    router: str = ROUTER,
) -> Any:  # fmt: skip
    """Return a Serve application of one model.

    ``autoscaling`` is Serve's autoscaling_config, in place of the number of replicas. Raises:
    InputError for options that are not supported on Ray; errors of the model's files.
    """
    with library():
        from ray import serve
        from ray.serve.config import RequestRouterConfig
    wrong = [name for name in UNSUPPORTED if getattr(options, name)]
    wrong += [name for name in ("lora", "mmproj") if loading.get(name)]
    if wrong:
        raise InputError(f"{wrong[0]} is not supported by a server on Ray", wrong[0])
    name, path = name_and_ref(ref)
    # Ingress and replicas must have the same context, whatever memory they find.
    length = loading.get("context_length") or usual_context(path) or context_limit(path)
    running = options.parallel or RUNNING
    given = {**loading, "context_length": length, "max_sequences": running}
    if options.batch_size is not None:
        given["batch_size"] = options.batch_size
    most = replicas.count if autoscaling is None else int(autoscaling.get("max_replicas", 1))
    template = None if options.chat_template is None else read_template(options.chat_template)
    number: dict[str, Any] = {"num_replicas": replicas.count}
    if autoscaling is not None:
        number = {"autoscaling_config": {"target_ongoing_requests": running // 2, **autoscaling}}
    replica = serve.deployment(
        Replica, name="replica", max_ongoing_requests=running,
        ray_actor_options={"num_cpus": replicas.cores},
        request_router_config=RequestRouterConfig(request_router_class=router),
        health_check_period_s=2, health_check_timeout_s=30,
        graceful_shutdown_timeout_s=options.drain, **number,
    )  # fmt: skip
    ingress = serve.deployment(
        serve.ingress()(Ingress), name="ingress", max_ongoing_requests=INGRESS_REQUESTS,
        ray_actor_options={"num_cpus": 0}, graceful_shutdown_timeout_s=options.drain,
    )  # fmt: skip
    offer = Offer(name, path, length, running * most, options, dict(defaults), template)
    return ingress.bind(offer, replica.bind(path, replicas.cores, given))


def application(given: Mapping[str, Any]) -> Any:
    """The application of a Serve config file: ``import_path: trinity.ray.serving:application``.

    ``given`` are its ``args``: ``model``, ``replicas``, ``cores``, ``autoscaling``, ``router``
    (the import path of a request router), ``serving`` (options of `trinity serve` by their names in
    Python), ``loading`` and ``generation``.
    Raises: InputError for other names; as ``deployed``.
    """
    names = {
        "model", "replicas", "cores", "autoscaling", "router", "serving", "loading", "generation"
    }  # fmt: skip
    unknown = given.keys() - names
    if unknown or "model" not in given:
        wrong = f"{min(unknown)!r:.80} is not one of" if unknown else "model is missing in"
        raise InputError(f"the application's args: {wrong} {', '.join(sorted(names))}")
    return deployed(
        given["model"], Replicas(given.get("replicas", 1), given.get("cores", 1)),
        ServerOptions(**given.get("serving", {})), given.get("loading", {}),
        given.get("generation", {}), autoscaling=given.get("autoscaling"),
        router=given.get("router", ROUTER),
    )  # fmt: skip


def serve_on_ray(
    ref: str, replicas: Replicas, options: ServerOptions, loading: Mapping[str, Any],
    say: Callable[[str], None], defaults: Mapping[str, Any] = NO_DEFAULTS,
) -> int:  # fmt: skip
    """Serve a model by replicas until SIGINT or SIGTERM. Returns the number of the signal.

    Raises: InputError; errors of the model's files.
    """
    with library():
        from ray import serve
    ended, numbers = threading.Event(), list[int]()

    def end(number: int, frame: object) -> None:
        numbers.append(number)
        ended.set()

    (host, *others) = options.hosts
    if others:
        raise InputError("a server on Ray listens on one address", "host")
    app = deployed(ref, replicas, options, loading, defaults)
    with connected(replicas):
        logging.getLogger("ray.serve").addFilter(lambda record: record.levelno >= logging.ERROR)
        serve.start(
            proxy_location="HeadOnly", http_options={"host": host, "port": options.port},
            logging_config={"log_level": "ERROR", "enable_access_log": False},
        )  # fmt: skip
        try:
            serve.run(app, name=NAME, route_prefix="/")
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, end)
            say(f"listening on http://{host}:{options.port}, {replicas.count} replicas")
            while not ended.wait(POLL_SECONDS):
                pass
        finally:
            serve.delete(NAME)
    return numbers[0]
