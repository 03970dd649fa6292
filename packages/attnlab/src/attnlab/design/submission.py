"""The submission record: a student's work as plain JSON that anybody can check again.

It holds the time, the widths, the student's matrices, the values that the student's own PyTorch
class computes, and the source of its two methods. The values are those of given weights on given
inputs, both drawn from named seeds and written into the layers by name: they do not depend on the
order in which a constructor makes its layers.
"""

import datetime
import hashlib
import inspect
import math
import re
import reprlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from attnlab.design.designs import Design
from attnlab.design.gauge import score_table
from attnlab.design.proof import prove
from attnlab.errors import AttnlabError, WrongUsage, is_number, one_line
from attnlab.models.single_head import Matrices, SingleHead, SingleHeadConfig
from attnlab.parts.numpy_transformer import NumpyTransformer
from attnlab.tasks.vectors import VectorRule

METHODS = ("__init__", "forward")
"""The methods that a student writes."""

_FORM = "attnlab submission 1"


@dataclass(frozen=True)
class _Case:
    """The widths of a model, and the length of its input."""

    input_dim: int
    qk_dim: int
    v_dim: int
    pos_dim: int | None
    max_seq_len: int
    length: int

    def widths(self) -> dict[str, Any]:
        """Return the arguments of the model's constructor."""
        widths = asdict(self)
        del widths["length"]
        return widths


_CASES = (
    _Case(input_dim=3, qk_dim=3, v_dim=3, pos_dim=None, max_seq_len=6, length=1),
    _Case(input_dim=3, qk_dim=5, v_dim=2, pos_dim=None, max_seq_len=6, length=6),
    _Case(input_dim=4, qk_dim=8, v_dim=1, pos_dim=4, max_seq_len=5, length=5),
    _Case(input_dim=2, qk_dim=1, v_dim=3, pos_dim=7, max_seq_len=7, length=4),
)
# The names that a layer may have.
_LAYERS = {"Km": ("Km", "key"), "Qm": ("Qm", "query"), "Vm": ("Vm", "value")}
_POSITIONS = ("pos", "positions", "pos_embedding")
_TOLERANCE = 1e-9


def submission_record(
    model_class: type[nn.Module],
    designs: Sequence[Design],
    *,
    time: datetime.datetime | None = None,
) -> dict[str, object]:
    """Make the record of a student's model class and designs.

    Args:
        model_class: called as `model_class(input_dim=…, qk_dim=…, v_dim=…, pos_dim=…,
            max_seq_len=…)`; it has layers without bias named Km, Qm, Vm (or key, query, value) and,
            with pos_dim, a table named pos; its `forward` takes (length, input_dim). `SingleHead`
            itself fits too.
        designs: the student's matrices for the tasks.
        time: of the submission; None for now.

    Raises:
        WrongUsage: what is given is no class of models or no designs, or the class cannot be built
            or called so.
    """
    _check_arguments(model_class, designs)
    time = datetime.datetime.now(datetime.UTC) if time is None else time
    if not isinstance(time, datetime.datetime):
        raise WrongUsage(f"time is a datetime, or None for now; got {_short(time)}.")
    values, entries = [], []
    for seed, case in enumerate(_CASES):
        values.append(_case_entry(case, seed, _output(model_class, case, seed)))
    for design in designs:
        shapes, proof = _shapes(design), prove(design).to_mapping()
        entries.append({**design.to_mapping(), "shapes": shapes, "proof": proof})
    return {
        "form": _FORM,
        "time": time.isoformat(timespec="seconds"),
        "class": model_class.__name__,
        "source": {name: _source(model_class, name) for name in METHODS},
        "values": values,
        "designs": entries,
    }


def _check_arguments(model_class: type[nn.Module], designs: Sequence[Design]) -> None:
    got = f"a value of type {type(model_class).__name__}"
    if isinstance(model_class, type):
        got = model_class.__name__
    if not isinstance(model_class, type) or not issubclass(model_class, nn.Module):
        raise WrongUsage(
            "expected a class of torch modules, the class itself and not a model made of it; "
            f"got {got}."
        )
    is_list = isinstance(designs, Sequence)
    if not is_list or not all(isinstance(design, Design) for design in designs):
        raise WrongUsage(f"expected a list of designs, as [identity()]; got {_short(designs)}.")


def check_record(record: Any) -> list[str]:
    """Check a record from its contents alone, and list its errors.

    The values are computed anew by the NumPy reference from the named seeds; every design is proved
    anew, and what the record says of the proof and of the gain must be what comes out. There is one
    design for each task. Who wrote the source, and when, a record cannot prove: only that a time
    and two definitions stand there is checked.
    """
    if not isinstance(record, Mapping) or record.get("form") != _FORM:
        return [f"this is not a record of the form {_FORM!r}."]
    needed = ("time", "class", "source", "values", "designs")
    missing = [name for name in needed if name not in record]
    if missing:
        return [f"the record lacks {', '.join(missing)}."]
    wrong_values = _check_values(record["values"])
    return _check_head(record) + wrong_values + _check_designs(record["designs"])


def seeded(seed: int, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Draw one named array of a case: normal numbers divided by 2, the same on every machine."""
    digest = hashlib.sha256(f"{_FORM}/{seed}/{name}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big")).normal(size=shape) / 2


def _arrays(case: _Case, seed: int) -> dict[str, NDArray[np.float64]]:
    width = case.input_dim + (case.pos_dim or 0)
    shapes = {
        "Km": (width, case.qk_dim),
        "Qm": (width, case.qk_dim),
        "Vm": (width, case.v_dim),
        "x": (case.length, case.input_dim),
    }
    if case.pos_dim is not None:
        shapes["pos"] = (case.max_seq_len, case.pos_dim)
    return {name: seeded(seed, name, shape) for name, shape in shapes.items()}


def _case_entry(case: _Case, seed: int, output: list[object]) -> dict[str, object]:
    """Return the entry of a case in a record."""
    return {**asdict(case), "seed": seed, "output": output}


def _output(model_class: type[nn.Module], case: _Case, seed: int) -> Any:
    """Run the student's class on a case."""
    arrays, is_head = _arrays(case, seed), issubclass(model_class, SingleHead)
    x = torch.from_numpy(arrays["x"])
    try:
        if is_head:
            model = model_class(SingleHeadConfig(**case.widths()))
        else:
            model = model_class(**case.widths())
        _fill(model.double().eval(), arrays)
        with torch.no_grad():
            if is_head:
                return model(x.unsqueeze(0)).output[0].tolist()
            return model(x).tolist()
    except AttnlabError:
        raise
    except Exception as error:
        raise WrongUsage(
            f"{model_class.__name__} failed with {asdict(case)}: {type(error).__name__}: "
            f"{one_line(error, 200)}"
        ) from error


@torch.no_grad()
def _fill(model: nn.Module, arrays: Mapping[str, NDArray[np.float64]]) -> None:
    """Write the arrays into the layers by name."""
    for name, spellings in _LAYERS.items():
        layer = _attribute(model, spellings)
        weight = getattr(layer, "weight", None)
        if not isinstance(weight, Tensor) or getattr(layer, "bias", None) is not None:
            raise WrongUsage(
                f"{type(model).__name__} must have a linear layer without bias named "
                f"{' or '.join(spellings)}."
            )
        weight.copy_(torch.from_numpy(arrays[name]).T)
    if "pos" in arrays:
        table = _attribute(model, _POSITIONS)
        table = getattr(table, "weight", table)
        if not isinstance(table, Tensor):
            raise WrongUsage(f"{type(model).__name__} must have a table of positions, pos.")
        table.copy_(torch.from_numpy(arrays["pos"]).reshape(table.shape))


def _attribute(model: nn.Module, names: Sequence[str]) -> Any:
    """Return the first of these attributes that the model has; None without any."""
    for name in names:
        attribute = getattr(model, name, None)
        if attribute is not None:
            return attribute
    return None


def _source(model_class: type[nn.Module], name: str) -> str | None:
    """Return the source of a method, a parent's where it is inherited.

    None where Python does not know it: of a class made by exec or typed into a plain interpreter,
    say.
    """
    for parent in model_class.__mro__:
        if parent not in (nn.Module, object) and name in vars(parent):
            try:
                return inspect.getsource(vars(parent)[name])
            except (OSError, TypeError):
                return None
    return None


def _shapes(design: Design) -> dict[str, list[int] | None]:
    shapes: dict[str, list[int] | None] = {}
    for name in ("Km", "Qm", "Vm", "pos"):
        rows = getattr(design, name)
        shapes[name] = None if rows is None else [len(rows), len(rows[0])]
    return shapes


def _check_head(record: Mapping[Any, Any]) -> list[str]:
    """Check the time, the name of the class and the source."""
    problems = []
    try:
        datetime.datetime.fromisoformat(record["time"])
    except (TypeError, ValueError):
        got = _short(record["time"])
        problems.append(f"the time must be ISO 8601, such as 2025-05-17T12:00:00+00:00; got {got}.")
    if not (isinstance(record["class"], str) and record["class"].isidentifier()):
        problems.append(f"class must be the name of a class; got {_short(record['class'])}.")
    return problems + _check_source(record["source"])


def _check_source(source: Any) -> list[str]:
    if not isinstance(source, Mapping) or set(source) != set(METHODS):
        return [f"expected the source of {' and '.join(METHODS)}."]
    problems = []
    for name in METHODS:
        if source[name] is None:
            problems.append(
                f"the source of {name} is missing: Python does not know it of a class typed into "
                "an interpreter or made by exec; write the class into a file or a notebook and "
                "make the record again."
            )
        elif not re.match(rf"\s*def {name}\(", str(source[name])):
            expected = f"def {name}(…); got {_short(source[name])}"
            problems.append(f"the source of {name} must be its definition, {expected}.")
    return problems


def _check_values(values: Any) -> list[str]:
    """Compute the values of all cases by the NumPy reference."""
    if not isinstance(values, list) or len(values) != len(_CASES):
        return [f"expected the values of {len(_CASES)} cases."]
    problems = []
    for seed, (value, case) in enumerate(zip(values, _CASES, strict=True)):
        arrays = _arrays(case, seed)
        x = arrays.pop("x")
        expected = _case_entry(case, seed, NumpyTransformer(**arrays)(x).tolist())
        problems += _differences(f"case {seed}", value, expected, _TOLERANCE)
    return problems


def _check_designs(entries: Any) -> list[str]:
    if not isinstance(entries, list) or not entries:
        return ["expected one design for each task."]
    problems = []
    for entry in entries:
        problems += _check_design(entry)
    if problems:
        return problems
    rules = [entry["task"]["rule"] for entry in entries]
    for rule in get_args(VectorRule):
        if rules.count(rule) != 1:
            problems.append(f"expected one design for {rule}; got {rules.count(rule)}.")
    return problems


def _check_design(entry: Any) -> list[str]:
    fields = dict(entry) if isinstance(entry, Mapping) else {}
    shapes, stated = fields.pop("shapes", None), fields.pop("proof", None)
    try:
        design = Design.from_mapping(fields)
        proof = prove(design)
    except AttnlabError as error:
        return [str(error)]
    name, rounding = design.name, 2 * (proof.rounding or 0.0)
    problems = _differences(f"the shapes of {name}", shapes, _shapes(design), 0.0)
    # Another machine may add in another order, which moves a number by as much as rounding can,
    # and no further.
    problems += _differences(f"the proof of {name}", stated, proof.to_mapping(), rounding)
    if not problems and not proof.holds:
        problems.append(f"the design of {name} fails: {proof.counterexample}.")
    gain = _measured_gain(design)
    if not problems and not math.isclose(design.gain, gain, rel_tol=_TOLERANCE):
        problems.append(
            f"the gain of {name} is stated as {design.gain:g}; its matrices have {gain:g}."
        )
    return problems[:1]


def _differences(
    what: str, stated: Any, computed: Mapping[str, object], rounding: float
) -> list[str]:
    """Name the first field that differs from the one computed again."""
    if not isinstance(stated, Mapping) or set(stated) != set(computed):
        return [f"{what} must have exactly the keys {', '.join(computed)}."]
    for name in sorted(computed, key="digest".__ne__):  # which says best that matrices were changed
        if not _is_same(stated[name], computed[name], rounding):
            recorded, again = _short(stated[name]), _short(computed[name])
            return [f"{what} says {name} is {recorded}; checked again it is {again}."]
    return []


def _is_same(stated: Any, computed: Any, rounding: float) -> bool:
    """Compare two values of JSON, numbers up to rounding."""
    if isinstance(computed, Mapping):
        return not _differences("", stated, computed, rounding)
    if isinstance(computed, list | tuple):
        if not isinstance(stated, list | tuple) or len(stated) != len(computed):
            return False
        return all(map(_is_same, stated, computed, [rounding] * len(computed)))
    if isinstance(computed, float):
        # An integer of JSON may be too large for a float.
        fits = is_number(stated) and abs(stated) <= sys.float_info.max
        return fits and math.isclose(stated, computed, rel_tol=_TOLERANCE, abs_tol=rounding)
    return type(stated) is type(computed) and bool(stated == computed)


def _measured_gain(design: Design) -> float:
    """Measure by its scores how strong a design is: the number of times that the pattern of gain 1
    is in them.

    Scores, less what attention does not see, grow with the gain in proportion; so this holds for
    matrices that were written in another way, too.
    """
    scores, unit = _scores(design), _scores(design.with_gain(1.0))
    return float((scores * unit).sum() / (unit * unit).sum())


def _scores(design: Design) -> Tensor:
    """Return a design's scores before the division, with positions even if it has none."""
    matrices = design.model().matrices()
    if matrices.pos is None:  # one channel of zeros
        Km, Qm, Vm = (F.pad(matrix, (0, 0, 0, 1)) for matrix in matrices[:3])
        matrices = Matrices(Km, Qm, Vm, Km.new_zeros(design.task.row_length, 1))
    scaled = score_table(matrices, design.task).scores * math.sqrt(len(design.Km[0]))
    return scaled.nan_to_num(0.0)


def _short(value: Any) -> str:
    return one_line(reprlib.repr(value), 200)
