"""Open a pretrained model with its tokenizer from a folder, a GGUF file or a hub id.

Nothing is unpickled, and no code that came with the model is run without `remote_code=True`. The
folder is inspected before transformers is imported, so a refusal is quick (`folder.py`).
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.pretrained.build import HEADS, build
from attnlab.pretrained.folder import gguf_file, inspect_folder
from attnlab.pretrained.hub import hub_folder, is_hub_id
from attnlab.pretrained.tokenizer import tokenizer_of

__all__ = ["HEADS", "Opened", "open_pretrained"]


class Opened(NamedTuple):
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


def open_pretrained(
    x: str | os.PathLike[str],
    *,
    revision: str | None = None,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    head: str | None = None,
    remote_code: bool = False,
) -> Opened:
    """Open a pretrained model in evaluation mode.

    Args:
        x: a folder with `config.json` and safetensors (one file or shards), a `.gguf` file or a
            folder with exactly one, or a hub id such as "google-bert/bert-base-uncased". The disk
            goes before the hub, and the hub's cache before the network.
        revision: a branch, tag or commit of a hub id.
        dtype: of the weights; None for that of the files.
        device: where to put the model; None for the CPU.
        head: the model's head, one of `HEADS` ("none", "causal-lm", …); None for that of
            `config.json`.
        remote_code: True runs Python code that came with the model, with all your rights.

    Raises:
        CouldNotRun: there is no such model, or it cannot be opened safely; the sentence says what
            to do.
        WrongUsage: an unknown head, dtype or device.
    """
    number_type, place = _dtype(dtype), _device(device)
    if not isinstance(remote_code, bool):  # the text "no" would count as True
        raise WrongUsage(f"remote_code is True or False; got {remote_code!r}.")
    if head is not None and not isinstance(head, str):
        raise WrongUsage(f"head is one of {', '.join(HEADS)}; got {head!r}.")
    path, source = _found(x, revision, remote_code)
    name = str(x) if source.startswith("the hub") else path.resolve().name
    gguf = gguf_file(path)
    if gguf is not None:
        from attnlab.pretrained.gguf import convert_gguf

        name, source = gguf.stem, f"the GGUF file {gguf}"
        path = convert_gguf(gguf)
    folder = inspect_folder(path, remote_code=remote_code)
    if folder.code:
        from attnlab.pretrained.remote import build_with_remote_code

        model, tokenizer, notes = build_with_remote_code(
            folder, head=head, dtype=number_type, device=place
        )
    else:
        model, config, notes = build(folder, head=head, dtype=number_type, device=place)
        tokenizer, more = tokenizer_of(folder, config)
        notes += more
    return Opened(model, tokenizer, name, source, tuple(notes))


def _found(x: str | os.PathLike[str], revision: str | None, remote_code: bool) -> tuple[Path, str]:
    """Return the folder or file of a model, and where it came from in words."""
    if not isinstance(x, str | os.PathLike):
        raise WrongUsage(f"expected a folder, a GGUF file or a hub id; got {type(x).__name__}.")
    text = os.fspath(x)
    try:
        if text and "\0" not in text and os.path.lexists(text):
            if revision is not None:
                raise WrongUsage(f"a revision belongs to a model of the hub; {text} is on disk.")
            return Path(text), f"the folder {text}"
    except OSError:
        pass
    is_file = text.endswith((".gguf", ".safetensors", ".bin", ".json"))
    if isinstance(x, str) and is_hub_id(text) and not is_file:
        folder = hub_folder(text, revision, remote_code=remote_code)
        return folder, f"the hub's {text}, revision {folder.name}"
    raise CouldNotRun(
        f"there is no folder or file {ascii(text)[:200]}, and a hub id looks like org/name."
    )


def _dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    known = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    if dtype is not None and found not in known:
        raise WrongUsage(f"dtype is float64, float32, bfloat16 or float16; got {dtype!r}.")
    return found


def _device(device: torch.device | str | None) -> torch.device | None:
    try:
        found = None if device is None else torch.device(device)
    except (RuntimeError, TypeError):
        raise WrongUsage(
            f"device is cpu, cuda, cuda:1 or another that torch knows; got {device!r}."
        ) from None
    if found is not None and found.type == "meta":
        raise WrongUsage(
            "on the device meta there are no numbers, so nothing can be computed there."
        )
    if found is not None and found.type == "cuda":
        gpus = torch.cuda.device_count()
        if (found.index or 0) >= gpus:
            raise CouldNotRun(f"there is no device {found} here: {gpus} GPUs can be used.")
    try:
        torch.empty(0, device=found)
    except Exception as error:  # each kind of device has errors of its own
        raise CouldNotRun(
            f"there is no device {found} here: {str(error).split('. ')[0].rstrip('.')}."
        ) from None
    return found
