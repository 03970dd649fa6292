"""The submission record: a student's work as plain JSON, which a course grades.

It holds the time, the widths, the student's matrices, the values that the student's own PyTorch
class computes, and the source of its two methods. The values are those of given weights on given
inputs, both drawn from named seeds and written into the layers by name: they do not depend on the
order in which a constructor makes its layers.
"""

import datetime
import hashlib
import inspect
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnlab.design.designs import Design
from attnlab.design.proof import prove
from attnlab.errors import AttnlabError, WrongUsage, one_line
from attnlab.models.single_head import SingleHead, SingleHeadConfig

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
    if not isinstance(model_class, type) or not issubclass(model_class, nn.Module):
        raise WrongUsage(
            "expected a class of torch modules, the class itself and not a model made of it; "
            f"got {_short(model_class)}."
        )
    if not isinstance(designs, Sequence) or not all(isinstance(one, Design) for one in designs):
        raise WrongUsage(f"expected a list of designs, as [identity()]; got {_short(designs)}.")
    time = datetime.datetime.now(datetime.UTC) if time is None else time
    if not isinstance(time, datetime.datetime):
        raise WrongUsage(f"time is a datetime, or None for now; got {_short(time)}.")
    values, entries = [], []
    for seed, case in enumerate(_CASES):
        values.append({**asdict(case), "seed": seed, "output": _output(model_class, case, seed)})
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


def _short(value: Any) -> str:
    return one_line(reprlib.repr(value), 200)
