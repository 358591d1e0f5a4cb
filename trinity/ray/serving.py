"""Serve applications: an ingress and replicas of a model, from options or a config file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from trinity.errors import InputError
from trinity.options.adapter_files import adapter_files, check_adapters
from trinity.ray.cluster import Replicas, connected, library, wake_less
from trinity.ray.ingress import Ingress, Offer, models_of
from trinity.ray.replica import Replica
from trinity.server.logs import log_to
from trinity.server.model_refs import context_limit, name_and_ref, usual_context
from trinity.server.service import NO_DEFAULTS
from trinity.server.serving import run
from trinity.server.setting_values import read_template
from trinity.server.settings import ServerOptions

RUNNING = 16  # responses that a replica generates at the same time
INGRESS_REQUESTS = 10_000  # the ingress has limits of its own, --max-queue
UNSUPPORTED = (
    "allow_create", "allow_pull", "memory_limit", "slot_save_path", "speech_model", "state",
)  # fmt: skip
ROUTER = "trinity.ray.router.PrefixRouter"
NAME = "trinity"  # of the application


def deployed(
    ref: str, replicas: Replicas, options: ServerOptions, loading: Mapping[str, Any],
    defaults: Mapping[str, Any] = NO_DEFAULTS, *, autoscaling: Mapping[str, Any] | None = None,
    router: str = ROUTER,
) -> tuple[Offer, Any]:  # fmt: skip
    """Return what is offered, and the deployment of its replicas.

    ``autoscaling`` is Serve's autoscaling_config, in place of the number of replicas. Raises:
    InputError for options that are not supported on Ray; errors of the model's files.
    """
    with library():
        from ray import serve
        from ray.serve.config import RequestRouterConfig
    wrong = [name for name in UNSUPPORTED if getattr(options, name)]
    if wrong:
        raise InputError(f"{wrong[0]} is not supported by a server on Ray", wrong[0])
    name, path = name_and_ref(ref)
    # Ingress and replicas must have the same context, whatever memory they find.
    length = loading.get("context_length") or usual_context(path) or context_limit(path)
    running = options.parallel or RUNNING
    files = adapter_files(check_adapters("lora", loading.get("lora") or ()))
    adapters = tuple((os.fspath(path), scale) for path, scale in files)
    given = {**loading, "lora": adapters, "context_length": length, "max_sequences": running}
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
    offer = Offer(
        name, path, length, running * most, options, dict(defaults), template, adapters,
        loading.get("vision", True), loading.get("mmproj"),
    )  # fmt: skip
    return offer, replica.bind(path, replicas.cores, given)


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
    offer, replica = deployed(
        given["model"], Replicas(given.get("replicas", 1), given.get("cores", 1)),
        ServerOptions(**given.get("serving", {})), given.get("loading", {}),
        given.get("generation", {}), autoscaling=given.get("autoscaling"),
        router=given.get("router", ROUTER),
    )  # fmt: skip
    from ray import serve

    ingress = serve.deployment(
        serve.ingress()(Ingress), name="ingress", max_ongoing_requests=INGRESS_REQUESTS,
        ray_actor_options={"num_cpus": 0}, graceful_shutdown_timeout_s=offer.options.drain,
    )  # fmt: skip
    return ingress.bind(offer, replica)


def serve_on_ray(
    ref: str, replicas: Replicas, options: ServerOptions, loading: Mapping[str, Any],
    say: Callable[[str], None], defaults: Mapping[str, Any] = NO_DEFAULTS,
) -> int | None:  # fmt: skip
    """Serve a model by replicas until a signal arrives; return its number.

    This process is the ingress, because Serve's proxy and a deployment between a client and a
    replica cost processor time for each event of a stream. Raises: InputError; errors of the
    model's files.
    """
    options.all_keys()
    wake_less(replicas)
    with library():
        from ray import serve
        from ray.util import get_node_ip_address
    offer, replica = deployed(ref, replicas, options, loading, defaults)
    say = log_to(say, requests=options.log_requests, json=options.log_format == "json")
    with connected(replicas):
        logging.getLogger("ray.serve").addFilter(lambda record: record.levelno >= logging.ERROR)
        serve.start(
            proxy_location="Disabled",
            logging_config={"log_level": "ERROR", "enable_access_log": False},
        )  # fmt: skip
        try:
            handle = serve.run(replica, name=NAME, route_prefix=None)
            say(f"{replicas.count} replicas of {replicas.cores} cores")
            host = "127.0.0.1" if replicas.is_local else get_node_ip_address()
            return run(models_of(offer, handle, host), options, say, defaults)
        finally:
            serve.delete(NAME)
