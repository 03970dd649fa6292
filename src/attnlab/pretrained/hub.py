"""From a hub id to a folder on disk: from the local cache, or fetched from the hub.

`HF_HUB_OFFLINE=1` and `TRANSFORMERS_OFFLINE=1` are honoured; `HF_ENDPOINT` names another hub. Only
the files that a model needs are fetched, weights only as safetensors, and the config is checked
before the weights are fetched. A hub that does not answer within a second is an error.
"""

import os
import re
import socket
import threading
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from attnlab.errors import CouldNotRun
from attnlab.files import check_room
from attnlab.pretrained.description import clean_description
from attnlab.pretrained.folder import CONFIG, INDEX, MOST_INDEX, WEIGHTS
from attnlab.pretrained.json_files import read_object

__all__ = ["hub_folder", "is_hub_id", "is_offline"]

PATIENCE = 1.0  # seconds in which a connection to the hub must succeed
_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
_SMALL = ("*.json", "*.txt", "*.model", "*.jinja")
_TRUE = {"1", "ON", "YES", "TRUE"}


def is_hub_id(text: str) -> bool:
    """Can a text be a hub id, such as "gpt2" or "google-bert/bert-base-uncased"?"""
    return bool(_ID.fullmatch(text)) and ".." not in text and "--" not in text


def is_offline() -> bool:
    """Does the environment forbid the network?"""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return any(os.environ.get(name, "").upper() in _TRUE for name in names)


def hub_folder(name: str, revision: str | None, *, remote_code: bool = False) -> Path:
    """Return the folder of a hub's model, from the cache or fetched into it.

    Raises:
        CouldNotRun: it is not in the cache, and the network is forbidden or the hub does not answer
            within a second; or there is no such model, it has no safetensors, or the disk is full.
    """
    hub = _library()
    cached = _cached(hub, name, revision)
    if cached is not None:
        return cached
    which = f"{name!r}" + (f" (revision {revision})" if revision else "")
    advice = (
        "Give a folder that holds the model, or fetch it where there is a network (hf download "
        f"{name}) and carry over the cache that HF_HOME names."
    )
    if is_offline():
        raise CouldNotRun(
            f"{which} is no folder here and not in the hub's cache, and the network is switched "
            f"off (HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE). {advice}"
        )
    host, port = _address(hub.constants.ENDPOINT)
    if not _answers(host, port):
        raise CouldNotRun(
            f"{which} is no folder here and not in the hub's cache, and {host} cannot be "
            f"reached. {advice}"
        )
    return _fetched(hub, name, revision, remote_code)


def _library() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.constants
    except ImportError as error:
        raise CouldNotRun(
            f"models of the hub need huggingface_hub, which cannot be imported ({error}): pip "
            "install 'attnlab[hf]'."
        ) from None
    return huggingface_hub


def _cached(hub: Any, name: str, revision: str | None) -> Path | None:
    """Return a complete snapshot in the cache, or None."""
    if not (Path(hub.constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}").is_dir():
        return None  # without the client, whose import takes longer than all the rest
    try:
        folder = Path(hub.snapshot_download(name, revision=revision, local_files_only=True))
    except (OSError, ValueError):  # not in the cache; LocalEntryNotFoundError is one of these
        return None
    return folder if _has_weights(folder) and (folder / CONFIG).exists() else None


def _has_weights(folder: Path) -> bool:
    """Does a snapshot hold weights, and all shards of them? Damaged ones are reported later."""
    if not (folder / WEIGHTS).exists() and (folder / INDEX).exists():
        try:
            placed = read_object(folder / INDEX, MOST_INDEX)["weight_map"]
            return all((folder / str(name)).exists() for name in set(placed.values()))
        except (CouldNotRun, KeyError, AttributeError, TypeError, ValueError, OSError):
            return True
    return any(any(folder.glob(f"*{ending}")) for ending in (".safetensors", ".bin", ".gguf"))


def _address(endpoint: str) -> tuple[str, int]:
    """Return host and port of the hub, or of the proxy before it."""
    goal = endpoint
    try:
        scheme = urllib.parse.urlsplit(endpoint).scheme or "https"
        host = urllib.parse.urlsplit(endpoint).hostname or ""
        if not urllib.request.proxy_bypass(host):
            goal = urllib.request.getproxies().get(scheme) or endpoint
        found = urllib.parse.urlsplit(goal)
        port = found.port or (80 if found.scheme == "http" else 443)
    except ValueError as error:
        raise CouldNotRun(
            f"{goal!r}, the address of the hub or its proxy, is no address: {error}."
        ) from None
    if not (found.hostname or host):
        raise CouldNotRun(
            f"{goal!r}, the address of the hub or its proxy, is no address, https://HOST."
        )
    return found.hostname or host, port


def _answers(host: str, port: int) -> bool:
    """Does a host answer in time? A slow name server counts as a slow host."""
    reached = threading.Event()

    def attempt() -> None:
        try:
            with socket.create_connection((host, port), timeout=PATIENCE):
                reached.set()
        except OSError:
            pass

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return reached.is_set()


def _fetched(hub: Any, name: str, revision: str | None, remote_code: bool) -> Path:
    """Fetch what a model needs, the small files first."""
    try:
        said = hub.HfApi().model_info(name, revision=revision, files_metadata=True, timeout=10)
        files = {each.rfilename: int(each.size or 0) for each in said.siblings}
        names = [file for file in files if file.endswith(".safetensors") and "/" not in file]
        weights = {file: files[file] for file in names}
        if CONFIG not in files or not weights:
            raise CouldNotRun(
                f"{name} on the hub has no config.json with safetensors beside it, and nothing "
                f"else is fetched; it holds {', '.join(sorted(files)[:10]) or 'nothing'}."
            )
        if WEIGHTS in weights:  # the other weights are copies in other forms
            weights = {WEIGHTS: weights[WEIGHTS]}
        cache = Path(hub.constants.HF_HUB_CACHE)
        check_room(cache, sum(weights.values()), name)
        small = [*_SMALL, *(["*.py"] if remote_code else [])]
        fetched = hub.snapshot_download(
            name, revision=said.sha, allow_patterns=small, ignore_patterns=["*/*"]
        )
        folder = Path(fetched)
        clean_description(read_object(folder / CONFIG), folder / CONFIG, remote_code=remote_code)
        hub.snapshot_download(name, revision=said.sha, allow_patterns=sorted(weights))
        if revision != said.sha:  # so that the name is found in the cache next time
            hub.snapshot_download(name, revision=revision, allow_patterns=[CONFIG])
    except CouldNotRun:
        raise
    except Exception as error:  # the client and the web can fail in any way
        if getattr(getattr(error, "response", None), "status_code", None) in (401, 403, 404):
            raise CouldNotRun(
                f"the hub has no {name} for you; a gated model needs `hf auth login`."
            ) from None
        words = " ".join(str(error).split())[:300].rstrip(".")
        raise CouldNotRun(
            f"could not fetch {name} from the hub: {type(error).__name__}: {words}."
        ) from None
    return folder
