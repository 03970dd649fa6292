"""From what a user names to a live model and its tokenizer: a folder, a GGUF file, or a hub id.

Nothing is unpickled and nothing that came with the model is run, unless `remote_code=True` was said. The folder is
judged before transformers is even imported, so what is refused is refused at once (`folder.py`).
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.pretrained.building import HEADS, build
from attnlab.pretrained.folder import gguf_file, look_into
from attnlab.pretrained.hub import hub_folder, is_hub_id
from attnlab.pretrained.tokenizer import tokenizer_of

__all__ = ["HEADS", "Opened", "open_pretrained"]


class Opened(NamedTuple):
    """A live model, ready to be looked at.

    `name` is short, for titles; `source` says in words where it came from; `notes` hold what a user should know, such
    as weights in the file that the model does not use. `tokenizer` is None where the model brings none that
    transformers can make.
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
        x: a folder with `config.json` and safetensors (one file or shards), a `.gguf` file or a folder with exactly
            one, or a hub id such as "google-bert/bert-base-uncased". What is on disk goes before the hub, and the
            hub's cache before the network.
        revision: of a hub id, a branch, tag or commit.
        dtype: of the weights; None for what the files say.
        device: where to put the model; None for the processor.
        head: what the model ends in, one of `HEADS` ("none", "causal-lm", …); None for what `config.json` says.
        remote_code: True to run Python code that comes with the model, as its author, with all your rights.

    Raises:
        CouldNotRun: there is no such model, or it cannot be opened safely; the sentence says what to do.
        WrongUsage: a head, dtype or device that there is not.
    """
    number_type, place = _dtype(dtype), _device(device)
    if not isinstance(remote_code, bool):  # "no" would be taken for yes
        raise WrongUsage(f"remote_code is True or False; got {remote_code!r}.")
    if head is not None and not isinstance(head, str):
        raise WrongUsage(f"head is one of {', '.join(HEADS)}; got {head!r}.")
    path, source = _found(x, revision, remote_code)
    name = str(x) if source.startswith("the hub") else path.resolve().name
    quantised = gguf_file(path)
    if quantised is not None:
        from attnlab.pretrained.gguf_models import converted

        name, source = quantised.stem, f"the GGUF file {quantised}"
        path = converted(quantised)
    folder = look_into(path, remote_code=remote_code)
    if folder.code:
        from attnlab.pretrained.remote import build_with_remote_code

        model, tokenizer, notes = build_with_remote_code(folder, head=head, dtype=number_type, device=place)
    else:
        model, config, notes = build(folder, head=head, dtype=number_type, device=place)
        tokenizer, more = tokenizer_of(folder, config)
        notes += more
    return Opened(model, tokenizer, name, source, tuple(notes))


def _found(x: str | os.PathLike[str], revision: str | None, remote_code: bool) -> tuple[Path, str]:
    """Return where the files of a model are, and where they came from in words."""
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
    if isinstance(x, str) and is_hub_id(text) and not text.endswith((".gguf", ".safetensors", ".bin", ".json")):
        folder = hub_folder(text, revision, remote_code=remote_code)
        return folder, f"the hub's {text}, revision {folder.name}"
    raise CouldNotRun(f"there is no folder or file {ascii(text)[:200]}, and a hub id looks like org/name.")


def _dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype is not None and found not in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        raise WrongUsage(f"dtype is float64, float32, bfloat16 or float16; got {dtype!r}.")
    return found


def _device(device: torch.device | str | None) -> torch.device | None:
    try:
        found = None if device is None else torch.device(device)
    except (RuntimeError, TypeError):
        raise WrongUsage(f"device is cpu, cuda, cuda:1 or another that torch knows; got {device!r}.") from None
    if found is not None and found.type == "meta":
        raise WrongUsage("on the device meta there are no numbers, so nothing can be looked at there.")
    if found is not None and found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise CouldNotRun(f"there is no device {found} here: {torch.cuda.device_count()} GPUs can be used.")
    try:
        torch.empty(0, device=found)
    except Exception as error:  # each kind of device has errors of its own
        raise CouldNotRun(f"there is no device {found} here: {str(error).split('. ')[0].rstrip('.')}.") from None
    return found
