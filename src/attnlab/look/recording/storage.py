"""Recordings on disk: `recording.safetensors` for the numbers, `recording.json` for all else. Never
pickle.

Calls are written as they are kept, so that weights and scores are made on demand from a file too;
what is shared is written once. The JSON names every tensor with its shape and dtype and the
checksum of their file; all of it is checked before memory is taken.
"""

import hashlib
import os
import tempfile
from collections import namedtuple
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.files import check_room, explained, read_json, write_json
from attnlab.look.recording.budget import Budget
from attnlab.look.recording.contents import Part, Passed, Store
from attnlab.look.recording.kept_call import Grown, KeptCall, KeptMask, Made
from attnlab.look.recording.tokens import Read, name_of
from attnlab.look.summaries.summary import Summary
from attnlab.sites import SITES

__all__ = ["read_store", "write_store"]

_FORMAT = "attnlab recording 1"
_LONGEST = 2**24  # positions; a file that speaks of more is not believed
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
}


def write_store(store: Store, folder: Path) -> None:
    """Write a store into a folder, created if needed."""
    if not store.passed:
        raise WrongUsage(
            "there is nothing to save: nothing has been recorded. Run the model inside the "
            "context first."
        )
    writer = _Writer()
    document = {
        "format": _FORMAT,
        "model": store.model,
        "sites": list(store.sites),
        "edits": list(store.edits),
        "heads": store.heads,
        "names": _names(store),
        "reads": [_read_form(read, writer) for read in store.reads],
        "passed": {
            site: [_passed_form(each, writer) for each in found]
            for site, found in store.passed.items()
        },
    }
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    file = folder / "recording.safetensors"
    _write_tensors(file, writer.tensors)
    shapes = {
        name: [str(each.dtype).removeprefix("torch."), *each.shape]
        for name, each in writer.tensors.items()
    }
    # Last, and with the checksum: what was begun and not ended is found out.
    write_json(folder / "recording.json", {**document, "tensors": shapes, "sha256": _digest(file)})


def read_store(folder: Path, budget: Budget) -> Store:
    """Read a store.

    Raises:
        CouldNotRun: a file is missing, damaged, or not what the other says; or it does not fit in
            the budget.
    """
    document = read_json(folder / "recording.json")
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise CouldNotRun(
            f"{folder / 'recording.json'} is no recording: it does not say {_FORMAT!r}."
        )
    file = folder / "recording.safetensors"
    try:
        tensors = _read_tensors(file, document["tensors"], document["sha256"], budget)
        reads = [_read_of(form, tensors, number) for number, form in enumerate(document["reads"])]
        for read in reads:
            if read.rows is not None and read.before is not None:
                _require(
                    int(read.rows.max()) < reads[read.before].shape[0], "rows go on from nothing"
                )
        passed = {
            str(site): [_passed_of(form, tensors, len(reads)) for form in forms]
            for site, forms in document["passed"].items()
        }
        heads = {str(part): _count(number) for part, number in document["heads"].items()}
        for site, found in passed.items():
            for each in found:
                _check_passed(site, each, heads.get(site.rpartition(".")[0]))
        names = document["names"]
        vocabulary = (
            None if names is None else {int(token): str(name) for token, name in names.items()}
        )
        sites = tuple(map(str, document["sites"]))
        _require(all(isinstance(each, dict) for each in document["edits"]), "an edit is no object")
        if not (
            passed
            and all(passed.values())
            and set(passed) <= set(sites)
            and isinstance(document["model"], dict)
        ):
            raise ValueError("sites and values do not fit together")
        return Store(
            sites,
            budget,
            vocabulary,
            document["model"],
            passed,
            reads,
            heads,
            tuple(document["edits"]),
        )
    except (KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise CouldNotRun(f"the recording in {folder} is damaged: {what}.") from None


class _Writer:
    """Names every tensor; shared tensors are written once."""

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


def _names(store: Store) -> dict[str, str] | None:
    if store.vocabulary is None:
        return None
    ids = {
        token
        for read in store.reads
        if read.ids is not None
        for token in read.ids.flatten().tolist()
    }
    return {str(token): name_of(token, store.vocabulary) for token in sorted(ids)}


def _read_form(read: Read, writer: _Writer) -> dict[str, Any]:
    form: dict[str, Any] = read._asdict()
    for field in ("ids", "real", "rows"):
        form[field] = None if form[field] is None else writer.name(form[field])
    return form


def _broadcasts(mask: KeptMask, shape: tuple[int, ...]) -> bool:
    """Does a mask fit so many rows and heads?"""
    if not isinstance(mask.mask, Tensor):
        return True
    own = (1, 1, *mask.mask.shape[:-2])[-2:]
    return all(each in (1, size) for each, size in zip(own, shape, strict=True))


def _read_of(form: Mapping[str, Any], tensors: Mapping[str, Tensor], number: int) -> Read:
    ids, real = (None if form[field] is None else tensors[form[field]] for field in ("ids", "real"))
    before, (batch, length), offset = form["before"], form["shape"], form["offset"]
    _require(
        all(type(each) is int and 0 <= each <= _LONGEST for each in (batch, length, offset)),
        "a text has no size",
    )
    _require(all(isinstance(each, dict) for each in form["edits"]), "an edit is no object")
    _require(
        before is None or (isinstance(before, int) and 0 <= before < number),
        "a reading goes on from a later one",
    )
    is_whole = ids is None or not (ids.is_floating_point() or ids.dtype == torch.bool)
    _require(
        is_whole and (ids is None or (ids.shape[:2] == (batch, length) and ids.dim() < 4)),
        "ids do not fit",
    )
    _require(
        real is None or (real.shape == (batch, length) and real.dtype == torch.bool),
        "real does not fit",
    )
    names = form.get("names")
    _require(
        names is None or (isinstance(names, list) and all(isinstance(each, str) for each in names)),
        "odd names",
    )
    own = None if names is None else tuple(names)
    rows = None if form.get("rows") is None else tensors[form["rows"]]
    _require(
        rows is None or (rows.shape == (batch,) and rows.dtype == torch.int64), "rows do not fit"
    )
    _require(
        rows is None or (before is not None and int(rows.min()) >= 0), "rows go on from nothing"
    )
    return Read(
        str(form["part"]),
        ids,
        (batch, length),
        offset,
        real,
        before,
        tuple(form["edits"]),
        own,
        rows,
    )


def _passed_form(passed: Passed, writer: _Writer) -> dict[str, Any]:
    return {
        "held": _held_form(passed.held, writer),
        "query": passed.query,
        "key": passed.key,
        "mask": None if passed.mask is None else _held_form(passed.mask, writer),
        "gradient": None if passed.gradient is None else writer.name(passed.gradient),
    }


def _passed_of(form: Mapping[str, Any], tensors: Mapping[str, Tensor], num_reads: int) -> Passed:
    for side in ("query", "key"):
        number = form[side]
        _require(
            number is None or (isinstance(number, int) and 0 <= number < num_reads),
            "a reading is not there",
        )
    mask = None if form["mask"] is None else _held_of(form["mask"], tensors)
    _require(mask is None or isinstance(mask, KeptMask), "a mask is none")
    gradient = None if form["gradient"] is None else tensors[form["gradient"]]
    return Passed(_held_of(form["held"], tensors), form["query"], form["key"], mask, gradient)


def _check_passed(site: str, passed: Passed, num_heads: int | None) -> None:
    """Raise unless a value fits its site."""
    own, shape = site.rpartition(".")[2], passed.shape()
    is_made = isinstance(passed.held, Made)
    _require(own in SITES, f"there is no site {site!r}")
    _require((own == "mask") == isinstance(passed.held, KeptMask), f"a value is none of {site}")
    _require(not is_made or passed.held.what == own, f"a value is none of {site}")
    if shape is None or own == "mask":
        return
    _require(
        len(shape) == 1 + SITES[own].partition(")")[0].count(",") or own == "logits",
        f"{site} has other axes",
    )
    _require(len(shape) > 1, f"{site} has other axes")
    if own in ("weights", "scores"):
        _require(num_heads == shape[1], f"{site} has another number of heads")
        mask = passed.mask
        fits = mask is None or (
            (mask.num_queries, mask.num_keys) == shape[2:] and _broadcasts(mask, shape[:2])
        )
        _require(fits, f"the mask at {site} does not fit")
    _require(
        passed.gradient is None or passed.gradient.shape == shape,
        f"a gradient at {site} does not fit",
    )


def _held_form(held: Any, writer: _Writer) -> dict[str, Any]:
    if isinstance(held, Tensor):
        return {"kind": "value", "value": writer.name(held)}
    if isinstance(held, Part):
        return {"kind": "part", "value": writer.name(held.grown), "length": held.length}
    if isinstance(held, KeptMask):
        mask = writer.name(held.mask) if isinstance(held.mask, Tensor) else held.mask
        return {"kind": "mask", "mask": mask, "queries": held.num_queries, "keys": held.num_keys}
    if isinstance(held, Made):
        call = held.call
        query, key = writer.name(call.query), writer.name(call.key)
        form = {
            "query": query,
            "key": key,
            "mask": _held_form(call.mask, writer),
            "scale": call.scale,
        }
        return {"kind": held.what, **form}
    if isinstance(held, tuple) and hasattr(held, "_fields"):
        fields = {
            name: _field_form(value, writer) for name, value in zip(held._fields, held, strict=True)
        }
        return {"kind": "reduced", "name": type(held).__name__, "fields": fields}
    raise WrongUsage(
        f"what reduce made cannot be saved: it is a {type(held).__name__}, neither a tensor "
        "nor a NamedTuple of them."
    )


def _held_of(form: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    kind = form["kind"]
    if kind == "value":
        return tensors[form["value"]]
    if kind == "part":
        store, length = tensors[form["value"]], form["length"]
        _require(
            isinstance(length, int) and 0 <= length <= store.shape[-2],
            "a part is longer than its whole",
        )
        return Part(Grown(store), length)
    if kind == "mask":
        queries, keys, mask = form["queries"], form["keys"], form["mask"]
        _require(
            all(isinstance(each, int) and each >= 0 for each in (queries, keys)),
            "a mask has no size",
        )
        _require(max(queries, keys) <= _LONGEST, "a mask is longer than any text")
        mask = tensors[mask] if mask not in (None, "causal") else mask
        if isinstance(mask, Tensor):
            _require(
                mask.dtype == torch.bool or mask.is_floating_point(),
                "a mask holds neither bits nor numbers",
            )
            _require(2 <= mask.dim() <= 4, "a mask has no queries and keys")
            _require(
                mask.shape[-2] in (1, queries) and mask.shape[-1] in (1, keys),
                "a mask does not fit",
            )
        return KeptMask(mask, queries, keys, torch.device("cpu"))
    if kind in ("weights", "scores"):
        query, key, mask = (
            tensors[form["query"]],
            tensors[form["key"]],
            _held_of(form["mask"], tensors),
        )
        _require(
            isinstance(mask, KeptMask) and query.dim() == key.dim() == 4, "a call is malformed"
        )
        fits = (
            query.shape[0] == key.shape[0]
            and query.shape[1] % key.shape[1] == 0
            and query.shape[3] == key.shape[3]
        )
        _require(
            fits and query.shape[2] == mask.num_queries and key.shape[2] >= mask.num_keys,
            "a call does not fit",
        )
        _require(
            query.dtype == key.dtype and query.is_floating_point(),
            "queries and keys are not of one kind",
        )
        _require(_broadcasts(mask, (query.shape[0], query.shape[1])), "a mask does not fit")
        _require(
            form["scale"] is None or isinstance(form["scale"], int | float), "a scale is no number"
        )
        _require(
            isinstance(form["scale"], float) or abs(form["scale"] or 0) < 2**63,
            "a scale is no number",
        )
        return Made(
            KeptCall(
                query, key if key.shape[2] == mask.num_keys else Grown(key), mask, form["scale"]
            ),
            kind,
        )
    _require(kind == "reduced", f"there is no kind {kind!r}")
    fields = {str(name): _field_of(value, tensors) for name, value in form["fields"].items()}
    known = (
        Summary if set(fields) == set(Summary._fields) else namedtuple(str(form["name"]), fields)
    )
    return known(**fields)


def _field_form(value: Any, writer: _Writer) -> Any:
    return {"tensor": writer.name(value)} if isinstance(value, Tensor) else {"plain": value}


def _field_of(form: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    return tensors[form["tensor"]] if "tensor" in form else form["plain"]


def _write_tensors(file: Path, tensors: dict[str, Tensor]) -> None:
    """Replace the file in one step, without a second copy of all numbers in memory."""
    size = sum(each.nbytes for each in tensors.values())
    check_room(file, size, "the recording")
    with explained(file, size):
        handle, temporary = tempfile.mkstemp(
            prefix=f".{file.name}.", suffix=".part", dir=file.parent
        )
        try:
            safetensors.torch.save_file(tensors, temporary)
            os.fsync(handle)
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, file)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)


def _read_tensors(
    file: Path, expected: Mapping[str, Any], digest: str, budget: Budget
) -> dict[str, Tensor]:
    try:
        with safetensors.safe_open(str(file), framework="pt") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118  not a mapping
            shapes = {
                name: [str(_DTYPES.get(each.get_dtype())).removeprefix("torch."), *each.get_shape()]
                for name, each in slices.items()
            }
        if shapes != expected:
            raise CouldNotRun(
                f"{file} does not hold what recording.json beside it says; they are of two "
                "recordings."
            )
        if _digest(file) != digest:
            raise CouldNotRun(f"{file} is damaged: its checksum is not the one in recording.json.")
        budget.take("recording.safetensors", file.stat().st_size)
        return safetensors.torch.load_file(file)
    except (OSError, safetensors.SafetensorError) as error:
        raise CouldNotRun(f"could not read {file}: {error}.") from None


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _count(number: Any) -> int:
    _require(isinstance(number, int) and number > 0, "a number of heads is none")
    return int(number)


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise ValueError(what)
