"""The application of `trinity serve` over a remote model, also as a Serve deployment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette

from trinity.formats.defaults import ChatTemplate
from trinity.ray.remote import RemoteModel
from trinity.server.app import make_app
from trinity.server.model_refs import settled
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.settings import ServerOptions


@dataclass(frozen=True, slots=True)
class Offer:
    """A model and how it is offered."""

    name: str
    ref: str
    context_length: int
    most_running: int  # responses that all replicas generate at the same time
    options: ServerOptions = field(default_factory=ServerOptions)
    defaults: Mapping[str, Any] = field(default_factory=dict)  # GenerationOptions
    template: ChatTemplate | None = None
    adapters: tuple[tuple[str, float], ...] = ()  # their paths and scales
    vision: bool = True  # whether images are read
    mmproj: str | os.PathLike[str] | None = None  # the file of the vision tower


def models_of(offer: Offer, handle: Any, host: str) -> Models:
    """The offered model. The replicas of ``handle`` compute its steps, and connect to ``host``."""

    def loaded() -> RemoteModel:
        model = RemoteModel(
            offer.ref, handle, offer.context_length, offer.most_running, host, offer.adapters,
            vision=offer.vision, mmproj=offer.mmproj,
        )  # fmt: skip
        if offer.template is not None:
            model.use_chat_template(offer.template)
        return model

    options = offer.options
    served = Served(
        offer.name, offer.ref, lambda: settled(loaded), aliases=options.aliases,
        tags=options.all_tags,
    )  # fmt: skip
    return Models([served], any_name=options.any_model_name)


class Ingress:
    """A Serve deployment: the application over the replicas of ``handle``."""

    def __init__(self, offer: Offer, handle: Any) -> None:
        self._offer, self._handle = offer, handle

    def __serve_build_asgi_app__(self) -> Starlette:
        from ray.util import get_node_ip_address

        models = models_of(self._offer, self._handle, get_node_ip_address())
        return make_app(models, self._offer.options, defaults=self._offer.defaults)
