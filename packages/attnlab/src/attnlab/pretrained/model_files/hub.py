"""Open a pretrained model with its tokenizer from a folder, a GGUF file or a hub id.

Nothing is unpickled, and no code that came with the model is run. The folder is inspected
before transformers is imported, so a refusal is quick (`folder.py`).

A hub id stands for a folder in the local cache, or one fetched from the hub. `HF_HUB_OFFLINE=1` and
`TRANSFORMERS_OFFLINE=1` are honoured; `HF_ENDPOINT` names another hub. Only the files that a model
needs are fetched, weights only as safetensors, and the config is checked before the weights are
fetched. A hub that does not answer within a second is an error.
"""

import os
import re
import socket
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attnlab.core.store import check_room
from attnlab.errors import CouldNotRun, WrongUsage, one_line
from attnlab.pretrained.model_files.build import HEADS, Placement, build
from attnlab.pretrained.model_files.folder import (
    CONFIG,
    INDEX,
    MAX_INDEX,
    WEIGHTS,
    clean_description,
    gguf_file,
    inspect_folder,
)
from attnlab.pretrained.model_files.header import read_object, require
from attnlab.pretrained.model_files.libraries import needed


@dataclass(frozen=True)
class LoadedModel:
    """A live model in evaluation mode.

    name: short, for titles · source: where it came from, in words · notes: for the user, such as
    weights in the file that the model does not use · tokenizer: None where the model brings none
    that transformers can build.
    """

    model: nn.Module
    tokenizer: Any | None
    name: str
    source: str
    notes: tuple[str, ...] = ()


def load_pretrained(
    x: str | os.PathLike[str],
    *,
    revision: str | None = None,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    head: str | None = None,
    device_map: str | Mapping[str, object] | None = None,
    quantization: Any = None,
) -> LoadedModel:
    """Load a pretrained model in evaluation mode.

    Args:
        x: a folder with `config.json` and safetensors (one file or shards), a `.gguf` file or a
            folder with exactly one, or a hub id such as "google-bert/bert-base-uncased". The disk
            goes before the hub, and the hub's cache before the network.
        revision: a branch, tag or commit of a hub id.
        dtype: of the weights; None for that of the files.
        device: where to put the model; None for the CPU.
        head: the model's head, one of `HEADS` ("none", "causal-lm", …); None for that of
            `config.json`.
        device_map: instead of a device, where to put each module, as transformers takes it:
            "auto", or devices by the paths of modules.
        quantization: a config of transformers by which the weights are quantized as they are read,
            such as `BitsAndBytesConfig(load_in_8bit=True)`.

    Raises:
        CouldNotRun: there is no such model, or it cannot be opened safely; the sentence says what
            to do.
        WrongUsage: an unknown head, dtype or device.
    """
    number_type, place = _dtype(dtype), _device(device)
    if device_map is not None and place is not None:
        raise WrongUsage("device= puts a model in one place and device_map= in several; give one.")
    if isinstance(device_map, Mapping) and "disk" in device_map.values():
        raise WrongUsage(
            "device_map= puts weights on devices, not on the disk; open the model by transformers "
            "with offload_folder=, and give it itself: attnlab.load(model)."
        )
    placement = Placement(device_map if place is None else {"": str(place)}, quantization)
    if head is not None and not isinstance(head, str):
        raise WrongUsage(f"head is one of {', '.join(HEADS)}; got {head!r}.")
    path, source = _locate(x, revision)
    name = str(x) if source.startswith("the hub") else folder_name(path.resolve())
    gguf = gguf_file(path)
    if gguf is not None:
        from attnlab.pretrained.model_files.gguf import convert_gguf

        name, source = folder_name(gguf.resolve()), f"the GGUF file {gguf}"
        path = convert_gguf(gguf)
    folder = inspect_folder(path)
    model, tokenizer, notes = build(folder, head, number_type, placement)
    return LoadedModel(model, tokenizer, name, source, tuple(notes))


def folder_name(path: Path) -> str:
    """Return the name of a model's folder or GGUF file; of the folder around it where it is called
    `model` or the like, and of the hub's cache the id.

    >>> folder_name(Path("/models/minilm/model")), folder_name(Path("/models/gpt2"))
    ('minilm', 'gpt2')
    >>> folder_name(Path("/hub/models--openai-community--gpt2/snapshots/607a30d"))
    'openai-community/gpt2'
    """
    if path.parent.name == "snapshots" and path.parents[1].name.startswith("models--"):
        return path.parents[1].name.removeprefix("models--").replace("--", "/")
    for place in (path, *path.parents):
        name = place.stem if place.suffix.lower() == ".gguf" else place.name
        if name and name.lower() not in _PLAIN_NAMES:
            return name
    return path.stem


def _locate(x: str | os.PathLike[str], revision: str | None) -> tuple[Path, str]:
    """Return the folder or file of a model, and where it came from in words."""
    if not isinstance(x, str | os.PathLike):
        raise WrongUsage(f"expected a folder, a GGUF file or a hub id; got {type(x).__name__}.")
    text = os.fspath(x)
    if text and "\0" not in text and os.path.lexists(text):
        if revision is not None:
            raise WrongUsage(f"a revision belongs to a model of the hub; {text} is on disk.")
        return Path(text), f"the folder {text}"
    is_file = text.endswith((".gguf", ".safetensors", ".bin", ".json"))
    is_id = isinstance(x, str) and is_hub_id(text) and not is_file
    words = f"{ascii(text)[:200]}, and a hub id looks like org/name."
    require(is_id, "there is no folder or file", words)
    folder = hub_folder(text, revision)
    return folder, f"the hub's {text}, revision {folder.name}"


def _dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    chosen: torch.dtype | None = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    known = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    if dtype is not None and chosen not in known:
        raise WrongUsage(f"dtype is float64, float32, bfloat16 or float16; got {dtype!r}.")
    return chosen


def _device(device: torch.device | str | None) -> torch.device | None:
    chosen = None
    try:
        if device is not None:
            chosen = torch.device(device)
    except (RuntimeError, TypeError):
        raise WrongUsage(f"device is cpu, cuda, cuda:1 or the like; got {device!r}.") from None
    if chosen is not None and chosen.type == "meta":
        raise WrongUsage("tensors on the device meta have no values, so nothing can be computed.")
    try:
        torch.empty(0, device=chosen)
    except Exception as error:  # each kind of device has errors of its own
        words = str(error).split(". ")[0].split("\n")[0].rstrip(".")
        raise CouldNotRun(f"there is no device {chosen} here: {words}.") from None
    return chosen


_PLAIN_NAMES = ("model", "models", "checkpoint", "checkpoints", "weights", "snapshots", "onnx")
"""Folders so named say nothing of the model in them."""
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


def hub_folder(name: str, revision: str | None) -> Path:
    """Return the folder of a hub's model, from the cache or fetched into it.

    Raises:
        CouldNotRun: it is not in the cache, and the network is forbidden or the hub does not answer
            within a second; or there is no such model, it has no safetensors, or the disk is full.
    """
    with needed("huggingface_hub", "a model of the hub"):
        import huggingface_hub as hub
        import huggingface_hub.constants
    endpoint = huggingface_hub.constants.ENDPOINT
    cached = _cached_snapshot(hub, name, revision)
    if cached is not None:
        return cached
    which = repr(name)
    if revision:
        which += f" (revision {revision})"
    advice = (
        "Give a folder that holds the model, or download it on a machine with a network (hf "
        f"download {name}) and copy the cache that HF_HOME names."
    )
    nowhere = "is no folder here and not in the hub's cache, and"
    why = "the network is switched off (HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE)"
    require(not is_offline(), which, f"{nowhere} {why}. {advice}")
    host, port = _address(endpoint)
    require(_answers(host, port), which, f"{nowhere} {host} cannot be reached. {advice}")
    return _download(hub, name, revision)


def _cached_snapshot(hub: Any, name: str, revision: str | None) -> Path | None:
    """Return a complete snapshot in the cache, or None."""
    if not (Path(hub.constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}").is_dir():
        return None  # without the client, whose import takes longer than all the rest
    try:
        folder = Path(hub.snapshot_download(name, revision=revision, local_files_only=True))
    except (OSError, ValueError):  # not in the cache; LocalEntryNotFoundError is one of these
        return None
    if not _has_weights(folder) or not (folder / CONFIG).exists():
        return None
    return folder


def _has_weights(folder: Path) -> bool:
    """Does a snapshot hold weights, and all shards of them? Damaged ones are reported later."""
    if not (folder / WEIGHTS).exists() and (folder / INDEX).exists():
        try:
            placed = read_object(folder / INDEX, MAX_INDEX)["weight_map"]
            return all((folder / str(name)).exists() for name in set(placed.values()))
        except (CouldNotRun, KeyError, AttributeError, TypeError, ValueError, OSError):
            return True
    return any(any(folder.glob(f"*{ending}")) for ending in (".safetensors", ".bin", ".gguf"))


def _address(endpoint: str) -> tuple[str, int]:
    """Return host and port of the hub, or of the proxy before it."""
    goal = endpoint
    try:
        hub = urllib.parse.urlsplit(endpoint)
        if not urllib.request.proxy_bypass(hub.hostname or ""):
            goal = urllib.request.getproxies().get(hub.scheme or "https") or endpoint
        parts = urllib.parse.urlsplit(goal)
        host, port = parts.hostname or hub.hostname, parts.port
    except ValueError:
        host, port = None, None
    words = "the address of the hub or its proxy, is no address, https://HOST."
    require(host, f"{goal!r},", words)
    usual = 80 if parts.scheme == "http" else 443
    return str(host), port or usual


def _answers(host: str, port: int) -> bool:
    """Does a host answer in time? A slow name server counts as a slow host."""
    reached = threading.Event()

    def attempt() -> None:
        with suppress(OSError), socket.create_connection((host, port), timeout=PATIENCE):
            reached.set()

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return reached.is_set()


def _download(hub: Any, name: str, revision: str | None) -> Path:
    """Fetch what a model needs, the small files first."""
    with _download_errors_explained(name):
        said = hub.HfApi().model_info(name, revision=revision, files_metadata=True, timeout=10)
        weights = _weights_on_hub(name, said.siblings)
        check_room(Path(hub.constants.HF_HUB_CACHE), sum(weights.values()), name)
        fetched = hub.snapshot_download(
            name, revision=said.sha, allow_patterns=list(_SMALL), ignore_patterns=["*/*"]
        )
        folder = Path(fetched)
        clean_description(read_object(folder / CONFIG), folder / CONFIG)
        hub.snapshot_download(name, revision=said.sha, allow_patterns=sorted(weights))
        if revision != said.sha:  # so that the name is found in the cache next time
            hub.snapshot_download(name, revision=revision, allow_patterns=[CONFIG])
    return folder


def _weights_on_hub(name: str, siblings: Sequence[Any]) -> dict[str, int]:
    """Return the weight files of a model on the hub, with their sizes."""
    files = {sibling.rfilename: int(sibling.size or 0) for sibling in siblings}
    weights = {}
    for file, size in files.items():
        if file.endswith(".safetensors") and "/" not in file:
            weights[file] = size
    held = ", ".join(sorted(files)[:10]) or "nothing"
    words = "has no config.json with safetensors beside it, and nothing else is fetched; "
    require(CONFIG in files and weights, f"{name} on the hub", f"{words}it holds {held}.")
    if WEIGHTS in weights:  # the other weights are copies in other forms
        return {WEIGHTS: weights[WEIGHTS]}
    return weights


@contextmanager
def _download_errors_explained(name: str) -> Iterator[None]:
    """Turn any error of the hub's client into one sentence."""
    try:
        yield
    except CouldNotRun:
        raise
    except Exception as error:  # the client and the web can fail in any way
        if getattr(getattr(error, "response", None), "status_code", None) in (401, 403, 404):
            advice = "a gated model needs `hf auth login`."
            raise CouldNotRun(f"the hub has no {name} that you may download; {advice}") from None
        words = f"{type(error).__name__}: " + one_line(error, 300).rstrip(".")
        raise CouldNotRun(f"could not fetch {name} from the hub: {words}.") from None
