"""Recordings on disk: `recording.safetensors` for the numbers, `recording.json` for all else.

Calls are written as they are kept, so that weights and scores are made on demand from a file too;
what is shared is written once. The JSON names every tensor with its shape and dtype and the
checksum of their file; all of it is checked before memory is taken.
"""

from collections import namedtuple
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlab.core.store import (
    StateFolder,
    check_room,
    digest_of,
    make_folder,
    read_header,
    refusing_damage,
    write_tensors,
)
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.recording.budget import Budget
from attnlab.look.recording.contents import Part, Passed, Store
from attnlab.look.recording.kept_call import Grown, KeptCall, KeptMask, Made
from attnlab.look.recording.tokens import Read, name_of
from attnlab.look.summaries.summary import Summary
from attnlab.sites import SITES

_FORMAT = "attnlab recording 1"
_NUMBERS = "recording.safetensors"
_LONGEST = 2**24  # positions; a file that speaks of more is not believed


def write_store(store: Store, folder: Path) -> None:
    """Write a store into a folder, created if needed."""
    if not store.passed:
        raise WrongUsage(
            "there is nothing to save: nothing has been recorded. Run the model inside the "
            "context first."
        )
    writer = _Writer()
    document = {
        "model": store.model,
        "sites": list(store.sites),
        "edits": list(store.edits),
        "heads": store.heads,
        "names": _names(store),
        "reads": [writer.read(read) for read in store.reads],
        "passed": {
            site: [writer.passed(each) for each in found] for site, found in store.passed.items()
        },
    }
    make_folder(folder)
    file = folder / _NUMBERS
    check_room(file, sum(each.nbytes for each in writer.tensors.values()), "the recording")
    write_tensors(file, writer.tensors)
    shapes = {
        name: [str(each.dtype).removeprefix("torch."), *each.shape]
        for name, each in writer.tensors.items()
    }
    # Last, and with the checksum: what was begun and not ended is found out.
    _state_folder(folder).write({**document, "tensors": shapes, "sha256": digest_of(file)})


def read_store(folder: Path, budget: Budget) -> Store:
    """Read a store.

    Raises:
        CouldNotRun: a file is missing, damaged, or not what the other says; or it does not fit in
            the budget.
    """
    state = _state_folder(folder)
    document = state.read()
    with refusing_damage(f"the recording in {folder}"):
        tensors = _read_numbers(state, document, budget)
        reads: list[Read] = []
        for form in document["reads"]:
            reads.append(_read_of(form, tensors, reads))
        heads = dict(document["heads"])
        _require(all(_is_count(each, 1) for each in heads.values()), "a number of heads is none")
        passed: dict[str, list[Passed]] = {}
        for site, forms in document["passed"].items():
            passed[site] = [_passed_of(form, tensors, len(reads)) for form in forms]
            _require(bool(forms), f"nothing has passed {site}")
            for each in passed[site]:
                _check_passed(site, each, heads.get(site.rpartition(".")[0]))
        sites, names = tuple(map(str, document["sites"])), document["names"]
        if names is not None:
            names = {int(token): str(name) for token, name in names.items()}
        _require(bool(passed) and set(passed) <= set(sites), "sites and values do not fit together")
        _require(isinstance(document["model"], dict), "the model is no object")
        edits = _edits(document)
        return Store(sites, budget, names, document["model"], passed, reads, heads, edits)


def _state_folder(folder: Path) -> StateFolder:
    return StateFolder(folder, "recording.json", _FORMAT, "recording")


def _read_numbers(
    state: StateFolder, document: dict[str, Any], budget: Budget
) -> dict[str, Tensor]:
    file = state.path / _NUMBERS
    header, _ = read_header(file)
    shapes = {name: [each.dtype, *each.shape] for name, each in header.items()}
    if shapes != document["tensors"]:
        raise CouldNotRun(
            f"{file} does not hold what recording.json beside it says; they are of two recordings."
        )
    budget.take(_NUMBERS, file.stat().st_size)
    return state.get(_NUMBERS, document["sha256"])


def _names(store: Store) -> dict[str, str] | None:
    if store.vocabulary is None:
        return None
    ids: set[int] = set()
    for read in store.reads:
        if read.ids is not None:
            ids.update(read.ids.flatten().tolist())
    return {str(token): name_of(token, store.vocabulary) for token in sorted(ids)}


class _Writer:
    """Turns values into JSON forms that name their tensors; shared tensors are written once."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        # The tensors are held, so that no address is used again.
        self._known: dict[tuple[Any, ...], tuple[Tensor, str]] = {}

    def name(self, held: Tensor | Grown) -> str:
        """Return the name of a tensor."""
        tensor = held.store[..., : held.used, :] if isinstance(held, Grown) else held
        place = tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
        if place not in self._known:
            name = f"t{len(self.tensors)}"
            self.tensors[name] = tensor.detach().cpu().contiguous()
            self._known[place] = tensor, name
        return self._known[place][1]

    def read(self, read: Read) -> dict[str, Any]:
        """Return the form of the tokens of one pass."""
        form: dict[str, Any] = read._asdict()
        for field in ("ids", "real", "rows"):
            if form[field] is not None:
                form[field] = self.name(form[field])
        return form

    def passed(self, passed: Passed) -> dict[str, Any]:
        """Return the form of a value at a site."""
        return {
            "held": self.held(passed.held),
            "query": passed.query,
            "key": passed.key,
            "mask": None if passed.mask is None else self.held(passed.mask),
            "gradient": None if passed.gradient is None else self.name(passed.gradient),
        }

    def held(self, held: Any) -> dict[str, Any]:
        """Return the form of what is held: a value, or what it is made from."""
        if isinstance(held, Tensor):
            return {"kind": "value", "value": self.name(held)}
        if isinstance(held, Part):
            return {"kind": "part", "value": self.name(held.grown), "length": held.length}
        if isinstance(held, KeptMask):
            mask = self.name(held.mask) if isinstance(held.mask, Tensor) else held.mask
            sizes = {"queries": held.num_queries, "keys": held.num_keys}
            return {"kind": "mask", "mask": mask, **sizes}
        if isinstance(held, Made):
            call = held.call
            return {
                "kind": held.what,
                "query": self.name(call.query),
                "key": self.name(call.key),
                "mask": self.held(call.mask),
                "scale": call.scale,
            }
        if isinstance(held, tuple) and hasattr(held, "_fields"):
            fields: dict[str, Any] = {}
            for name, value in zip(held._fields, held, strict=True):
                is_tensor = isinstance(value, Tensor)
                fields[name] = {"tensor": self.name(value)} if is_tensor else {"plain": value}
            return {"kind": "reduced", "name": type(held).__name__, "fields": fields}
        raise WrongUsage(
            f"what reduce made cannot be saved: it is a {type(held).__name__}, neither a tensor "
            "nor a NamedTuple of them."
        )


def _read_of(form: Mapping[str, Any], tensors: Mapping[str, Tensor], reads: list[Read]) -> Read:
    """Return the tokens of one pass; `reads` are those of the passes before."""
    ids, real, rows = (_tensor_at(form, field, tensors) for field in ("ids", "real", "rows"))
    (batch, length), offset, before = form["shape"], form["offset"], form["before"]
    is_sized = all(_is_count(each) for each in (batch, length, offset))
    _require(is_sized, "a text has no size")
    _require(before is None or _is_count(before, most=len(reads) - 1), "a pass goes on from none")
    if ids is not None:
        is_whole = not ids.is_floating_point() and ids.dtype != torch.bool
        _require(
            is_whole and ids.shape[:2] == (batch, length) and ids.dim() < 4,
            "ids do not fit",
        )
    _require(_is(real, torch.bool, batch, length), "real does not fit")
    _require(_is(rows, torch.int64, batch), "rows do not fit")
    if rows is not None:
        _require(before is not None, "rows go on from nothing")
        num_rows = reads[before].shape[0]
        _require(bool(((rows >= 0) & (rows < num_rows)).all()), "rows go on from nothing")
    part, edits, names = str(form["part"]), _edits(form), _texts(form.get("names"))
    return Read(part, ids, (batch, length), offset, real, before, edits, names, rows)


def _passed_of(form: Mapping[str, Any], tensors: Mapping[str, Tensor], num_reads: int) -> Passed:
    query, key, mask = form["query"], form["key"], form["mask"]
    for side in (query, key):
        _require(side is None or _is_count(side, most=num_reads - 1), "a pass is not there")
    if mask is not None:
        mask = _mask_of(mask, tensors)
    gradient = _tensor_at(form, "gradient", tensors)
    return Passed(_held_of(form["held"], tensors), query, key, mask, gradient)


def _held_of(form: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    kind = form["kind"]
    if kind == "value":
        return tensors[form["value"]]
    if kind == "part":
        store, length = tensors[form["value"]], form["length"]
        _require(_is_count(length, most=store.shape[-2]), "a part is longer than its whole")
        return Part(Grown(store), length)
    if kind == "mask":
        return _mask_of(form, tensors)
    if kind in ("weights", "scores"):
        return Made(_call_of(form, tensors), kind)
    _require(kind == "reduced", f"there is no kind {kind!r}")
    fields: dict[str, Any] = {}
    for name, value in form["fields"].items():
        fields[name] = tensors[value["tensor"]] if "tensor" in value else value["plain"]
    if set(fields) == set(Summary._fields):
        return Summary(**fields)
    return namedtuple(str(form["name"]), fields)(**fields)


def _mask_of(form: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> KeptMask:
    _require(form["kind"] == "mask", "a mask is none")
    queries, keys, mask = form["queries"], form["keys"], form["mask"]
    _require(_is_count(queries) and _is_count(keys), "a mask has no size")
    if mask not in (None, "causal"):
        mask = tensors[mask]
        is_mask = mask.dtype == torch.bool or mask.is_floating_point()
        _require(is_mask, "a mask holds neither bits nor numbers")
        _require(2 <= mask.dim() <= 4, "a mask has no queries and keys")
        fits = mask.shape[-2] in (1, queries) and mask.shape[-1] in (1, keys)
        _require(fits, "a mask does not fit")
    return KeptMask(mask, queries, keys, torch.device("cpu"))


def _call_of(form: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> KeptCall:
    query, key, scale = tensors[form["query"]], tensors[form["key"]], form["scale"]
    mask = _mask_of(form["mask"], tensors)
    _require(query.dim() == key.dim() == 4, "a call is malformed")
    (batch, heads, num_queries, width), num_keys = query.shape, key.shape[2]
    kv_heads = max(key.shape[1], 1)
    fits = key.shape == (batch, kv_heads, num_keys, width) and heads % kv_heads == 0
    _require(fits, "queries and keys do not fit")
    shape = batch, heads, num_queries, mask.num_keys
    _require(num_keys >= mask.num_keys and _fits(mask, shape), "a mask does not fit")
    is_number = query.dtype == key.dtype and query.is_floating_point()
    _require(is_number, "queries and keys are not of one kind")
    is_bounded = scale is None or isinstance(scale, float) or abs(scale) < 2**63
    _require(is_bounded, "a scale is no number")
    return KeptCall(query, key if num_keys == mask.num_keys else Grown(key), mask, scale)


def _check_passed(site: str, passed: Passed, num_heads: int | None) -> None:
    """Raise unless a value fits its site."""
    own, shape, held = site.rpartition(".")[2], passed.shape(), passed.held
    _require(own in SITES, f"there is no site {site!r}")
    fits = (own == "mask") == isinstance(held, KeptMask)
    _require(
        fits and (not isinstance(held, Made) or held.what == own), f"a value is none of {site}"
    )
    if shape is None or own == "mask":
        return
    num_axes = 1 + SITES[own].partition(")")[0].count(",")
    has_axes = len(shape) == num_axes or (own == "logits" and len(shape) > 1)
    _require(has_axes, f"{site} has other axes")
    if own in ("weights", "scores"):
        _require(num_heads == shape[1], f"{site} has another number of heads")
        fits = passed.mask is None or _fits(passed.mask, shape)
        _require(fits, f"the mask at {site} does not fit")
    gradient = passed.gradient
    _require(gradient is None or gradient.shape == shape, f"a gradient at {site} does not fit")


def _fits(mask: KeptMask, shape: tuple[int, ...]) -> bool:
    """Does a mask fit weights of this shape, (batch, head, query, key)?"""
    if (mask.num_queries, mask.num_keys) != shape[2:]:
        return False
    if not isinstance(mask.mask, Tensor):
        return True
    own = (1, 1, *mask.mask.shape[:-2])[-2:]
    return all(each in (1, size) for each, size in zip(own, shape[:2], strict=True))


def _edits(form: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    edits = tuple(form["edits"])
    _require(all(isinstance(each, dict) for each in edits), "an edit is no object")
    return edits


def _texts(values: Any) -> tuple[str, ...] | None:
    if values is None:
        return None
    is_list = isinstance(values, list) and all(isinstance(each, str) for each in values)
    _require(is_list, "odd names")
    return tuple(values)


def _tensor_at(form: Mapping[str, Any], field: str, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """Return the tensor that a field names; None for none."""
    return None if form.get(field) is None else tensors[form[field]]


def _is(tensor: Tensor | None, dtype: torch.dtype, *shape: int) -> bool:
    return tensor is None or (tensor.dtype == dtype and tensor.shape == shape)


def _is_count(number: Any, least: int = 0, most: int = _LONGEST) -> bool:
    return type(number) is int and least <= number <= most


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise ValueError(what)
