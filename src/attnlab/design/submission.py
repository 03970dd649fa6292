"""The submission record: what a student hands in, as plain JSON that anybody can check again.

It holds the time, the widths, the student's matrices, the values that the student's own PyTorch class computes, and
the source of its two methods. The values are those of given weights on given inputs, both drawn from named seeds and
written into the layers by name: they do not depend on the order in which a constructor makes its layers.
"""

import datetime
import hashlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnlab.design.designs import Design
from attnlab.design.proof import prove
from attnlab.errors import AttnlabError, WrongUsage
from attnlab.models.single_head import SingleHead, SingleHeadConfig
from attnlab.parts.reference.single_head import NumpyTransformer

__all__ = ["METHODS", "check_record", "submission_record"]

METHODS = ("__init__", "forward")
"""The methods that a student writes."""

_FORM = "attnlab submission 1"
_CASES: tuple[dict[str, int | None], ...] = (
    {"input_dim": 3, "qk_dim": 3, "v_dim": 3, "pos_dim": None, "max_seq_len": 6, "length": 1},
    {"input_dim": 3, "qk_dim": 5, "v_dim": 2, "pos_dim": None, "max_seq_len": 6, "length": 6},
    {"input_dim": 4, "qk_dim": 8, "v_dim": 1, "pos_dim": 4, "max_seq_len": 5, "length": 5},
    {"input_dim": 2, "qk_dim": 1, "v_dim": 3, "pos_dim": 7, "max_seq_len": 7, "length": 4},
)
_LAYERS = {"Km": ("Km", "key"), "Qm": ("Qm", "query"), "Vm": ("Vm", "value")}  # the names that a layer may have
_POSITIONS = ("pos", "positions", "pos_embedding")
_TOLERANCE = 1e-9


def submission_record(
    model_class: type[nn.Module], designs: Sequence[Design], *, time: datetime.datetime | None = None
) -> dict[str, Any]:
    """Make the record of a student's model class and designs.

    Args:
        model_class: called as `model_class(input_dim=…, qk_dim=…, v_dim=…, pos_dim=…, max_seq_len=…)`; it has layers
            without bias named Km, Qm, Vm (or key, query, value) and, with pos_dim, a table named pos; its `forward`
            takes (length, input_dim). `SingleHead` itself fits too.
        designs: the student's matrices for the tasks.
        time: of the submission; None for now.

    Raises:
        WrongUsage: the class cannot be built or called so, or lacks a layer.
    """
    moment = datetime.datetime.now(datetime.UTC) if time is None else time
    return {
        "form": _FORM,
        "time": moment.isoformat(timespec="seconds"),
        "class": model_class.__name__,
        "source": {name: _source(model_class, name) for name in METHODS},
        "values": [{**case, "seed": seed, **_value(model_class, case, seed)} for seed, case in enumerate(_CASES)],
        "designs": [
            {**design.to_mapping(), "shapes": _shapes(design), "proof": prove(design).to_mapping()}
            for design in designs
        ],
    }


def check_record(record: Any) -> list[str]:
    """Check a record again from nothing but itself, and return what is wrong with it; nothing wrong, an empty list.

    The values are computed anew by the NumPy reference from the named seeds, and every design is proved anew.
    """
    if not isinstance(record, Mapping) or record.get("form") != _FORM:
        return [f"this is no record of the form {_FORM!r}."]
    missing = [name for name in ("time", "class", "source", "values", "designs") if name not in record]
    if missing:
        return [f"the record lacks {', '.join(missing)}."]
    found = []
    values = record["values"]
    if not isinstance(values, list) or len(values) != len(_CASES):
        found.append(f"expected the values of {len(_CASES)} cases.")
    else:
        found += [text for seed, value in enumerate(values) if (text := _check_value(value, seed))]
    if not isinstance(record["designs"], list) or not record["designs"]:
        found.append("expected at least one design.")
    else:
        found += [text for each in record["designs"] if (text := _check_design(each))]
    if not isinstance(record["source"], Mapping) or set(record["source"]) != set(METHODS):
        found.append(f"expected the source of {' and '.join(METHODS)}.")
    return found


def seeded(seed: int, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Draw one named array of a case, normal numbers divided by 2: the same on every machine, in every order."""
    digest = hashlib.sha256(f"{_FORM}/{seed}/{name}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big")).normal(size=shape) / 2


def _arrays(case: Mapping[str, Any], seed: int) -> dict[str, NDArray[np.float64]]:
    pos_dim = case["pos_dim"] or 0
    width = case["input_dim"] + pos_dim
    shapes = {
        "Km": (width, case["qk_dim"]),
        "Qm": (width, case["qk_dim"]),
        "Vm": (width, case["v_dim"]),
        "x": (case["length"], case["input_dim"]),
        **({"pos": (case["max_seq_len"], pos_dim)} if pos_dim else {}),
    }
    return {name: seeded(seed, name, shape) for name, shape in shapes.items()}


def _value(model_class: type[nn.Module], case: Mapping[str, Any], seed: int) -> dict[str, Any]:
    arrays = _arrays(case, seed)
    widths = {name: size for name, size in case.items() if name != "length"}
    try:
        if issubclass(model_class, SingleHead):
            model: nn.Module = model_class(SingleHeadConfig(**widths))
        else:
            model = model_class(**widths)
        model = model.double().eval()
        _fill(model, arrays)
        x = torch.from_numpy(arrays["x"])
        with torch.no_grad():
            answer = model(x.unsqueeze(0)).output[0] if isinstance(model, SingleHead) else model(x)
        return {"output": answer.tolist()}
    except AttnlabError:
        raise
    except Exception as error:
        raise WrongUsage(f"{model_class.__name__} failed with {dict(case)}: {type(error).__name__}: {error}") from error


def _fill(model: nn.Module, arrays: Mapping[str, NDArray[np.float64]]) -> None:
    """Write the arrays into the layers by name."""
    with torch.no_grad():
        for name, spellings in _LAYERS.items():
            layer = next((part for word in spellings if (part := getattr(model, word, None)) is not None), None)
            weight = getattr(layer, "weight", None)
            if not isinstance(weight, Tensor) or getattr(layer, "bias", None) is not None:
                raise WrongUsage(
                    f"{type(model).__name__} must have a linear layer without bias named {' or '.join(spellings)}."
                )
            weight.copy_(torch.from_numpy(arrays[name]).T)
        if "pos" in arrays:
            table = next((part for word in _POSITIONS if (part := getattr(model, word, None)) is not None), None)
            table = getattr(table, "weight", table)
            if not isinstance(table, Tensor):
                raise WrongUsage(f"{type(model).__name__} must have a table of positions named {_POSITIONS[0]}.")
            table.copy_(torch.from_numpy(arrays["pos"]).reshape(table.shape))


def _source(model_class: type[nn.Module], name: str) -> str | None:
    """Return the source of a method; None where Python does not know it (typed into a plain interpreter, say)."""
    method = model_class.__dict__.get(name)
    try:
        return None if method is None else inspect.getsource(method)
    except (OSError, TypeError):
        return None


def _shapes(design: Design) -> dict[str, list[int] | None]:
    matrices = {"Km": design.Km, "Qm": design.Qm, "Vm": design.Vm, "pos": design.pos}
    return {name: None if rows is None else [len(rows), len(rows[0])] for name, rows in matrices.items()}


def _check_value(value: Any, seed: int) -> str | None:
    case = _CASES[seed]
    if not isinstance(value, Mapping) or {name: value.get(name) for name in case} != case:
        return f"case {seed} is not {case}."
    arrays = _arrays(case, seed)
    expected = NumpyTransformer(arrays["Km"], arrays["Qm"], arrays["Vm"], arrays.get("pos"))(arrays["x"])
    try:
        got = np.asarray(value.get("output"), dtype=np.float64)
    except (TypeError, ValueError):
        return f"the output of case {seed} is no matrix of numbers."
    if got.shape != expected.shape:
        return f"the output of case {seed} must have shape {expected.shape}; got {got.shape}."
    difference = float(np.abs(got - expected).max())
    if not difference <= _TOLERANCE:
        return f"the output of case {seed} is {difference:.2g} from the reference; {_TOLERANCE:g} is allowed."
    return None


def _check_design(entry: Any) -> str | None:
    if not isinstance(entry, Mapping) or not {"proof", "shapes"} <= set(entry):
        return "a design lacks its shapes or its proof."
    try:
        design = Design.from_mapping({name: value for name, value in entry.items() if name not in ("proof", "shapes")})
        proof = prove(design)
    except AttnlabError as error:
        return str(error)
    if entry["shapes"] != _shapes(design):
        return f"the shapes of {design.name} are not those of its matrices."
    stated = entry["proof"] if isinstance(entry["proof"], Mapping) else {}
    for name in ("digest", "holds", "failures"):
        if stated.get(name) != getattr(proof, name):
            return f"the proof of {design.name} says {name} is {stated.get(name)!r}; checked again it is " + repr(
                getattr(proof, name)
            )
    return None if proof.holds else f"the design of {design.name} fails: {proof.counterexample}."
