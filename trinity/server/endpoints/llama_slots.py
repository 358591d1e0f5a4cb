"""Slots in files, in llama.cpp's form: POST /slots/{id}?action=save, restore or erase."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from trinity.errors import TrinityError
from trinity.runtime.pages.page import Domain
from trinity.runtime.pages.slots import Slots
from trinity.server.caller import folder_of, salt_of
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.sampling import check_slot
from trinity.server.errors import LLAMA, ApiError, api_error
from trinity.server.schemas import Body, ModelQuery

# No path, no hidden file, nothing that a file system takes for something else.
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._ -]{0,199}(?<![. ])")
MOST_FILES = 1024


class What(ModelQuery, kw_only=True):
    """The operation on a slot."""

    action: Literal["save", "restore", "erase"]


class SlotFile(Body):
    """The name of a file in the folder of saved slots."""

    filename: str | None = None
    model: str | None = None  # the same as in the query


class SaveTimings(msgspec.Struct):
    """The duration of the operation."""

    save_ms: float | UnsetType = UNSET
    restore_ms: float | UnsetType = UNSET


class SlotAnswer(msgspec.Struct):
    """The numbers of tokens, and of bytes of the file."""

    id_slot: int
    filename: str | UnsetType = UNSET
    n_saved: int | UnsetType = UNSET
    n_written: int | UnsetType = UNSET
    n_restored: int | UnsetType = UNSET
    n_read: int | UnsetType = UNSET
    n_erased: int | UnsetType = UNSET
    timings: SaveTimings | UnsetType = UNSET


async def change(call: Call[SlotFile]) -> ASGI:
    """Save, restore or erase a slot of a model, by default the first, once its responses end."""
    folder = call.service.settings.slot_save_path
    if folder is None:
        raise ApiError(400, "slots cannot be saved here: start the server with --slot-save-path")
    slot, action, name = number_of(call), call.query.action, call.body.filename or ""
    own = folder_of(Path(folder), call.caller.owner)
    path = "" if action == "erase" else path_of(own, name, new=action == "save")
    name_of_model = call.body.model or call.query.model
    with await call.lease(name_of_model) as model, call.service.slot_files.entering():
        check_slot(model, slot, "id")
        domain, began = Domain(slot, salt_of(call.caller.owner)), time.perf_counter()
        slots = Slots(model.engine_thread, images=model.reads_images)
        if action == "erase":
            return Json(SlotAnswer(slot, n_erased=await slots.erase(domain)))
        change = slots.save if action == "save" else slots.restore
        try:
            tokens, size = await change(domain, path, call.service.slot_files.run)
        except TrinityError as error:
            # Clients know a file by its name; where the folder is does not concern them.
            message = str(error).replace(f"{own}{os.sep}", "")
            raise ApiError(api_error(error).status, message, "filename") from error
    took = 1000 * (time.perf_counter() - began)
    if action == "save":
        timings = SaveTimings(save_ms=took)
        return Json(SlotAnswer(slot, name, n_saved=tokens, n_written=size, timings=timings))
    timings = SaveTimings(restore_ms=took)
    return Json(SlotAnswer(slot, name, n_restored=tokens, n_read=size, timings=timings))


def number_of(call: Call[Any]) -> int:
    """The slot of the path. Raises: ApiError."""
    text = call.request.path_params["id"]
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ApiError(400, f"the slot is {text!r:.40}; it must be a number", "id")
    return int(text)


def path_of(folder: Path, name: str, *, new: bool) -> str:
    """The path of a file name. Raises: ApiError for a name with a path."""
    if not NAME.fullmatch(name):
        raise ApiError(
            400,
            f"filename is {name!r:.80}; it must be a name without a path, of letters, digits, "
            "'.', '_', '-' and spaces, at most 200",
            "filename",
        )
    path = os.fspath(folder / name)
    if new:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ApiError(507, f"the slot cannot be saved: {error.strerror}") from error
    if os.path.lexists(path):
        if os.path.islink(path) or not os.path.isfile(path):
            raise ApiError(400, f"{name!r} is not a file of a saved slot", "filename")
    elif not new:
        raise ApiError(400, f"no slot is saved as {name!r}", "filename")
    elif len(os.listdir(folder)) >= MOST_FILES:
        raise ApiError(400, f"there are {MOST_FILES} files already; remove some", "filename")
    return path


ENDPOINTS = (
    Endpoint(
        "POST", "/slots/{id}", change, "Save, restore or erase what a slot holds.",
        body=SlotFile, bodiless=True, query=What, answer=SlotAnswer, family=LLAMA,
    ),
)  # fmt: skip
