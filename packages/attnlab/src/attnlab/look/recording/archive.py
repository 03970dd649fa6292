"""Recordings on disk: `recording.safetensors` for the numbers, `recording.json` for all else.

Calls are written as they are kept, so that weights and scores are made on demand from a file too;
what is shared is written once. The JSON holds the checksum of the numbers and one of itself, so
that damage and a mix of two recordings are refused.
"""

import json
from collections import namedtuple
from collections.abc import Mapping
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
from attnlab.look.recording.contents import MADE, Passed, Store
from attnlab.look.recording.kept_call import Grown, KeptCall, KeptMask, Part
from attnlab.look.recording.tokens import Read, names_of
from attnlab.look.summaries.summary import Summary

_NUMBERS = "recording.safetensors"
_Tensors = Mapping[str, Tensor]


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
        "reads": list(map(writer.read, store.reads)),
        "passed": {site: list(map(writer.passed, steps)) for site, steps in store.passed.items()},
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
        passed = {
            site: [_passed_of(form, tensors) for form in forms]
            for site, forms in document["passed"].items()
        }
        return Store(
            sites=tuple(document["sites"]),
            budget=budget,
            vocabulary=names,
            model=document["model"],
            passed=passed,
            reads=[_read_of(form, tensors) for form in document["reads"]],
            heads=document["heads"],
            edits=tuple(document["edits"]),
        )


def _digest(document: JsonObject) -> str:
    return disk.digest_of(json.dumps(document, sort_keys=True).encode())


def _state_folder(folder: Path) -> disk.StateFolder:
    return disk.StateFolder(folder, "recording.json", "attnlab recording 1", "recording")


class _Writer:
    """Turns values into JSON forms that name their tensors; shared tensors are written once."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        # The tensors are held, so that no address is used again.
        self._known: dict[tuple[Any, ...], tuple[Tensor, str]] = {}

    def name(self, held: Tensor | Part | None) -> str | None:
        """Return the name of a tensor, or of all that one has grown to."""
        if held is None:
            return None
        if isinstance(held, Part):
            held = held.grown.store[..., : held.grown.used, :]
        place = held.data_ptr(), held.dtype, held.shape, held.stride()
        if place not in self._known:
            name = f"t{len(self.tensors)}"
            self.tensors[name] = held.detach().cpu().contiguous()
            self._known[place] = held, name
        return self._known[place][1]

    def read(self, read: Read) -> JsonObject:
        """Return the form of the tokens of one pass."""
        form = dict(vars(read))
        for field in ("ids", "real", "rows"):
            form[field] = self.name(form[field])
        return form

    def passed(self, passed: Passed) -> JsonObject:
        """Return the form of a value at a site."""
        return {
            "held": self.held(passed.held),
            "query": passed.query,
            "key": passed.key,
            "mask": passed.mask and self.held(passed.mask),
            "gradient": self.name(passed.gradient),
        }

    def held(self, held: Any) -> JsonObject:
        """Return the form of what is held: a value, or what it is made from."""
        if isinstance(held, Tensor):
            return {"kind": "value", "value": self.name(held)}
        if isinstance(held, Part):
            return {"kind": "part", "value": self.name(held), "length": held.length}
        if isinstance(held, KeptMask):
            mask = held.mask
            if isinstance(mask, Tensor):
                mask = self.name(mask)
            sizes = {"queries": held.num_queries, "keys": held.num_keys}
            return {"kind": "mask", "mask": mask, **sizes}
        if isinstance(held, KeptCall):
            names = {"query": self.name(held.query), "key": self.name(held.key)}
            return {"kind": held.what, **names, "mask": self.held(held.mask), "scale": held.scale}
        if isinstance(held, tuple) and hasattr(held, "_fields"):
            fields: JsonObject = {}
            for name, value in zip(held._fields, held, strict=True):
                is_tensor = isinstance(value, Tensor)
                fields[name] = {"tensor": self.name(value)} if is_tensor else {"plain": value}
            return {"kind": "reduced", "name": type(held).__name__, "fields": fields}
        raise WrongUsage(f"reduce made {type_words(held)}; only NamedTuples can be saved.")


def _read_of(form: JsonObject, tensors: _Tensors) -> Read:
    """Return the tokens of one pass."""
    fields = {**form, "shape": tuple(form["shape"]), "edits": tuple(form["edits"])}
    for name in ("ids", "real", "rows"):
        fields[name] = form[name] and tensors[form[name]]
    fields["names"] = form["names"] and tuple(form["names"])
    return Read(**fields)


def _passed_of(form: JsonObject, tensors: _Tensors) -> Passed:
    mask = form["mask"] and _held_of(form["mask"], tensors)
    gradient = form["gradient"] and tensors[form["gradient"]]
    return Passed(_held_of(form["held"], tensors), form["query"], form["key"], mask, gradient)


def _held_of(form: JsonObject, tensors: _Tensors) -> Any:
    """Return what `_Writer.held` wrote: a value, or what it is made from."""
    kind = form["kind"]
    if kind == "value":
        return tensors[form["value"]]
    if kind == "part":
        return Part(Grown(tensors[form["value"]]), form["length"])
    if kind == "mask":
        mask = form["mask"]
        if mask not in (None, "causal"):
            mask = tensors[mask]
        return KeptMask(mask, form["queries"], form["keys"], torch.device("cpu"))
    if kind in MADE:
        query, key = tensors[form["query"]], tensors[form["key"]]
        mask = _held_of(form["mask"], tensors)
        if key.shape[-2] > mask.num_keys:
            return KeptCall(query, Part(Grown(key), mask.num_keys), mask, form["scale"], kind)
        return KeptCall(query, key, mask, form["scale"], kind)
    fields: JsonObject = {}
    for name, value in form["fields"].items():
        fields[name] = tensors[value["tensor"]] if "tensor" in value else value["plain"]
    if set(fields) == set(Summary._fields):
        return Summary(**fields)
    return namedtuple(str(form["name"]), fields)(**fields)
