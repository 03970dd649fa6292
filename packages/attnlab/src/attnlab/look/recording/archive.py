"""Recordings on disk: `recording.safetensors` for the numbers, `recording.json` for all else.

Calls are written as they are kept, so that weights and scores are made on demand from a file too;
what is shared is written once. The JSON holds the checksum of the numbers and one of itself, so
that damage and a mix of two recordings are refused.
"""

import json
from collections import namedtuple
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlab.core import store as disk
from attnlab.core.sizes import count_bytes
from attnlab.core.store import JsonObject
from attnlab.errors import WrongUsage, type_words
from attnlab.look.recording.budget import Budget
from attnlab.look.recording.contents import Passed, Store
from attnlab.look.recording.kept_call import GrowingTensor, KeptCall, KeptMask, TensorPrefix
from attnlab.look.recording.tokens import StackRead, names_of
from attnlab.look.summaries.summary import Summary

_NUMBERS = "recording.safetensors"
_KINDS: dict[str, Callable[..., Any]] = {
    kind.__name__: kind for kind in (KeptCall, KeptMask, TensorPrefix, Passed, StackRead, Summary)
}


def write_store(store: Store, folder: Path) -> None:
    """Write a store into a folder, created if needed."""
    store.check_recorded()
    writer, names = _Writer(), None
    if store.vocabulary is not None:
        ids = [read.ids.flatten().tolist() for read in store.reads if read.ids is not None]
        names = names_of(chain.from_iterable(ids), store.vocabulary)
    document = {
        "model": store.model,
        "sites": list(store.sites),
        "edits": list(store.edits),
        "heads": store.heads,
        "names": names,
        "reads": writer.form(store.reads),
        "passed": {site: writer.form(steps) for site, steps in store.passed.items()},
    }
    disk.make_folder(folder)
    file = folder / _NUMBERS
    disk.check_room(file, count_bytes(writer.tensors.values()), "the recording")
    disk.write_tensors(file, writer.tensors)
    # Last, and with checksums: what was begun and not ended is detected, and so is damage.
    state = {**document, "sha256": disk.digest_of(file)}
    _state_folder(folder).write({**state, "digest": _digest(state)})


def read_store(folder: Path, budget: Budget) -> Store:
    """Read a store.

    Raises:
        CouldNotRun: a file is missing, damaged, or of another recording; or it does not fit in the
            budget.
    """
    state = _state_folder(folder)
    document, file = state.read(), folder / _NUMBERS
    with disk.refusing_damage(f"the recording in {folder}"):
        del document["format"]
        if document.pop("digest") != _digest(document):
            raise ValueError(f"{state.file} was changed after it was written")
        budget.take(_NUMBERS, file.stat().st_size if file.exists() else 0)
        tensors = state.get(_NUMBERS, document["sha256"])
        names = document["names"]
        if names is not None:
            names = {int(token): name for token, name in names.items()}
        passed = {site: list(_read(forms, tensors)) for site, forms in document["passed"].items()}
        return Store(
            sites=tuple(document["sites"]),
            budget=budget,
            vocabulary=names,
            model=document["model"],
            passed=passed,
            reads=list(_read(document["reads"], tensors)),
            heads=document["heads"],
            edits=tuple(document["edits"]),
        )


def _digest(document: JsonObject) -> str:
    return disk.digest_of(json.dumps(document, sort_keys=True).encode())


def _state_folder(folder: Path) -> disk.StateFolder:
    return disk.StateFolder(folder, "recording.json", "attnlab recording 2", "recording")


class _Writer:
    """Turns values into JSON forms that name their tensors; shared tensors are written once."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        # The tensors are held, so that no address is used again.
        self._known: dict[tuple[Any, ...], tuple[Tensor, str]] = {}

    def form(self, value: Any) -> Any:
        """Return the form of a value, of one that is made of others, or of several."""
        if isinstance(value, Tensor):
            return {"tensor": self._name(value)}
        if isinstance(value, GrowingTensor):
            return {"grown": self._name(value.store[..., : value.used, :])}
        if isinstance(value, torch.device):
            return None  # it is read into the processor's memory
        if isinstance(value, Passed) and not isinstance(value.held, Tensor | tuple):
            raise WrongUsage(
                f"reduce made {type_words(value.held)}; only NamedTuples can be saved."
            )
        if isinstance(value, Passed | StackRead):
            return self._fields(value, vars(value))
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._fields(value, dict(zip(value._fields, value, strict=True)))
        if isinstance(value, tuple | list):
            return list(map(self.form, value))
        return value

    def _fields(self, value: Any, fields: Mapping[str, Any]) -> JsonObject:
        forms = {name: self.form(field) for name, field in fields.items()}
        return {"kind": type(value).__name__, "fields": forms}

    def _name(self, held: Tensor) -> str:
        """Return the name of a tensor in the file."""
        place = held.data_ptr(), held.dtype, held.shape, held.stride()
        if place not in self._known:
            name = f"t{len(self.tensors)}"
            self.tensors[name] = held.detach().cpu().contiguous()
            self._known[place] = held, name
        return self._known[place][1]


def _read(form: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the value whose form `_Writer` wrote."""
    if isinstance(form, list):
        return tuple(_read(item, tensors) for item in form)
    match form:
        case {"tensor": name}:
            return tensors[name]
        case {"grown": name}:
            return GrowingTensor(tensors[name])
        case {"kind": kind, "fields": fields}:
            values = {name: _read(field, tensors) for name, field in fields.items()}
            if kind == KeptMask.__name__:
                values["device"] = torch.device("cpu")
            if kind in _KINDS:
                return _KINDS[kind](**values)
            return namedtuple(kind, values)(**values)
    return form
