"""Recordings on disk: `recording.safetensors` for the numbers, `recording.json` for all else.

Calls are written as they are kept, so that weights and scores are made on demand from a file too;
what is shared is written once. The JSON names every tensor with its shape and dtype and the
checksum of their file; all of it is checked before memory is taken.
"""

from collections import namedtuple
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlab.core import store as disk
from attnlab.core.sizes import count_bytes
from attnlab.core.store import JsonObject
from attnlab.errors import CouldNotRun, WrongUsage, type_words
from attnlab.look.indices import has_integers
from attnlab.look.recording.budget import Budget
from attnlab.look.recording.contents import MADE, Passed, Store
from attnlab.look.recording.kept_call import Grown, KeptCall, KeptMask, Part
from attnlab.look.recording.tokens import Read, names_of
from attnlab.look.summaries.summary import Summary
from attnlab.sites import SITES, part_of, site_suffix

_NUMBERS = "recording.safetensors"
_LONGEST = 2**24  # positions; a file that speaks of more is not believed
_Tensors = Mapping[str, Tensor]


def write_store(store: Store, folder: Path) -> None:
    """Write a store into a folder, created if needed."""
    store.check_recorded()
    writer = _Writer()
    document = {
        "model": store.model,
        "sites": list(store.sites),
        "edits": list(store.edits),
        "heads": store.heads,
        "names": _names(store),
        "reads": list(map(writer.read, store.reads)),
        "passed": {site: list(map(writer.passed, steps)) for site, steps in store.passed.items()},
    }
    disk.make_folder(folder)
    file = folder / _NUMBERS
    disk.check_room(file, count_bytes(writer.tensors.values()), "the recording")
    disk.write_tensors(file, writer.tensors)
    shapes = {
        name: _dtype_and_shape(str(tensor.dtype), tensor.shape)
        for name, tensor in writer.tensors.items()
    }
    # Last, and with the checksum: what was begun and not ended is found out.
    _state_folder(folder).write({**document, "tensors": shapes, "sha256": disk.digest_of(file)})


def read_store(folder: Path, budget: Budget) -> Store:
    """Read a store.

    Raises:
        CouldNotRun: a file is missing, damaged, or not what the other says; or it does not fit in
            the budget.
    """
    state = _state_folder(folder)
    document, file = state.read(), folder / _NUMBERS
    with disk.refusing_damage(f"the recording in {folder}"):
        header, _ = disk.read_header(file)
        shapes = {
            name: _dtype_and_shape(entry.dtype, entry.shape) for name, entry in header.items()
        }
        if shapes != document["tensors"]:
            raise CouldNotRun(f"{file} and {state.file} do not match; they are of two recordings.")
        budget.take(_NUMBERS, file.stat().st_size)
        tensors = state.get(_NUMBERS, document["sha256"])
        reads: list[Read] = []
        for form in document["reads"]:
            reads.append(_read_of(form, tensors, reads))
        heads = dict(document["heads"])
        passed: dict[str, list[Passed]] = {}
        for site, forms in document["passed"].items():
            passed[site] = [_passed_of(form, tensors, len(reads)) for form in forms]
            for passed_value in passed[site]:
                _check_passed(site, passed_value, heads.get(part_of(site)))
        sites, names = tuple(map(str, document["sites"])), document["names"]
        if names is not None:
            names = {int(token): str(name) for token, name in names.items()}
        _require("the list of sites", bool(passed), all(passed.values()), set(passed) <= set(sites))
        _require("a number of heads", all(_is_count(count, 1) for count in heads.values()))
        model, edits = dict(document["model"]), tuple(map(dict, document["edits"]))
        return Store(sites, budget, names, model, passed, reads, heads, edits)


def _state_folder(folder: Path) -> disk.StateFolder:
    return disk.StateFolder(folder, "recording.json", "attnlab recording 1", "recording")


def _dtype_and_shape(dtype: str, shape: Sequence[int]) -> list[str | int]:
    return [dtype.removeprefix("torch."), *shape]


def _names(store: Store) -> dict[str, str] | None:
    if store.vocabulary is None:
        return None
    ids: set[int] = set()
    for read in store.reads:
        if read.ids is not None:
            ids.update(read.ids.flatten().tolist())
    return names_of(ids, store.vocabulary)


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


def _read_of(form: JsonObject, tensors: _Tensors, reads: list[Read]) -> Read:
    """Return the tokens of one pass; `reads` are those of the passes before."""
    ids = _tensor_at(form, "ids", tensors)
    real = _tensor_at(form, "real", tensors)
    rows = _tensor_at(form, "rows", tensors)
    shape, offset, before = tuple(form["shape"]), form["offset"], form["before"]
    _require("a text", len(shape) == 2, _is_count(offset), *map(_is_count, shape))
    if ids is not None:
        _require("a text's ids", has_integers(ids), ids.shape[:2] == shape, ids.dim() < 4)
    if real is not None:
        _require("a text's padding", real.dtype == torch.bool, real.shape == shape)
    _require("the pass before", before is None or _is_count(before, most=len(reads) - 1))
    if rows is not None:
        is_row = (rows >= 0) & (rows < reads[before].shape[0])
        _require("rows", rows.dtype == torch.int64, rows.shape == shape[:1], bool(is_row.all()))
    names = form.get("names")
    if names is not None:
        names = tuple(map(str, names))
    edits = tuple(map(dict, form["edits"]))
    return Read(str(form["part"]), ids, shape, offset, real, before, edits, names, rows)


def _passed_of(form: JsonObject, tensors: _Tensors, num_reads: int) -> Passed:
    query, key, mask = form["query"], form["key"], form["mask"]
    for side in (query, key):
        _require("a pass", side is None or _is_count(side, most=num_reads - 1))
    if mask is not None:
        mask = _mask_of(mask, tensors)
    gradient = _tensor_at(form, "gradient", tensors)
    return Passed(_held_of(form["held"], tensors), query, key, mask, gradient)


def _held_of(form: JsonObject, tensors: _Tensors) -> Any:
    kind = form["kind"]
    if kind == "value":
        return tensors[form["value"]]
    if kind == "part":
        store, length = tensors[form["value"]], form["length"]
        _require("a part", _is_count(length, most=store.shape[-2]))
        return Part(Grown(store), length)
    if kind == "mask":
        return _mask_of(form, tensors)
    if kind in MADE:
        return _call_of(form, tensors)
    _require(f"the kind {kind!r}", kind == "reduced")
    fields: JsonObject = {}
    for name, value in form["fields"].items():
        fields[name] = tensors[value["tensor"]] if "tensor" in value else value["plain"]
    if set(fields) == set(Summary._fields):
        return Summary(**fields)
    return namedtuple(str(form["name"]), fields)(**fields)


def _mask_of(form: JsonObject, tensors: _Tensors) -> KeptMask:
    queries, keys, mask = form["queries"], form["keys"], form["mask"]
    _require("a mask", form["kind"] == "mask", _is_count(queries), _is_count(keys))
    if mask not in (None, "causal"):
        mask = tensors[mask]
        is_mask = mask.dtype == torch.bool or mask.is_floating_point()
        has_sizes = mask.shape[-2] in (1, queries) and mask.shape[-1] in (1, keys)
        _require("a mask", is_mask, has_sizes, mask.dim() <= 4)
    return KeptMask(mask, queries, keys, torch.device("cpu"))


def _call_of(form: JsonObject, tensors: _Tensors) -> KeptCall:
    query, key, scale = tensors[form["query"]], tensors[form["key"]], form["scale"]
    mask = _mask_of(form["mask"], tensors)
    (batch, heads, num_queries, width), (_, kv_heads, num_keys, _) = query.shape, key.shape
    _require(
        "a call",
        key.shape == (batch, max(kv_heads, 1), num_keys, width),
        heads % max(kv_heads, 1) == 0,
        num_keys >= mask.num_keys,
        _fits(mask, (batch, heads, num_queries, mask.num_keys)),
        query.dtype == key.dtype,
        query.is_floating_point(),
        scale is None or isinstance(scale, float) or abs(scale) < 2**63,
    )
    keys = Part(Grown(key), mask.num_keys) if num_keys > mask.num_keys else key
    return KeptCall(query, keys, mask, scale, form["kind"])


def _check_passed(site: str, passed: Passed, num_heads: int | None) -> None:
    """Raise unless a value fits its site."""
    name, shape, held = site_suffix(site), passed.shape(), passed.held
    what, is_mask = f"what is at {site}", isinstance(held, KeptMask)
    is_own = is_mask == (name == "mask")
    if isinstance(held, KeptCall):
        is_own = held.what == name
    _require(what, name in SITES, is_own)
    if shape is None or is_mask:
        return
    num_axes = 1 + SITES[name].partition(")")[0].count(",")
    _require(what, len(shape) == num_axes or (name == "logits" and len(shape) > 1))
    _require(what, passed.gradient is None or passed.gradient.shape == shape)
    if name in MADE:
        _require(what, num_heads == shape[1], passed.mask is None or _fits(passed.mask, shape))


def _fits(mask: KeptMask, shape: tuple[int, ...]) -> bool:
    """Does a mask fit weights of this shape, (batch, head, query, key)?"""
    fits = (mask.num_queries, mask.num_keys) == shape[2:]
    if isinstance(mask.mask, Tensor):
        batch, heads = mask.with_heads().shape[:2]
        fits = fits and batch in (1, shape[0]) and heads in (1, shape[1])
    return fits


def _tensor_at(form: JsonObject, field: str, tensors: _Tensors) -> Tensor | None:
    """Return the tensor that a field names; None for none."""
    name = form.get(field)
    return None if name is None else tensors[name]


def _is_count(number: object, least: int = 0, most: int = _LONGEST) -> bool:
    return type(number) is int and least <= number <= most


def _require(what: str, *fits: bool) -> None:
    if not all(fits):
        raise ValueError(f"{what} does not fit")
