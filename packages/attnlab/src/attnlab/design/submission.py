"""The submission record: a student's class and designs as plain JSON, which a course grades.

It holds the time, the student's matrices with their proofs, and the source of the two methods of
the student's own PyTorch class.
"""

import datetime
import inspect
import reprlib
from collections.abc import Sequence

from torch import nn

from attnlab.design.designs import Design
from attnlab.design.proof import prove
from attnlab.errors import WrongUsage, one_line

METHODS = ("__init__", "forward")
"""The methods that a student writes."""

_FORM = "attnlab submission 1"


def submission_record(
    model_class: type[nn.Module],
    designs: Sequence[Design],
    *,
    time: datetime.datetime | None = None,
) -> dict[str, object]:
    """Make the record of a student's model class and designs.

    Args:
        model_class: called as `model_class(input_dim=…, qk_dim=…, v_dim=…, pos_dim=…,
            max_seq_len=…)`; its `forward` takes (length, input_dim). `SingleHead` itself fits too.
        designs: the student's matrices for the tasks.
        time: of the submission; None for now.

    Raises:
        WrongUsage: what is given is no class of models or no designs.
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
    return {
        "form": _FORM,
        "time": time.isoformat(timespec="seconds"),
        "class": model_class.__name__,
        "source": {name: _source(model_class, name) for name in METHODS},
        "designs": [
            {**design.to_mapping(), "proof": prove(design).to_mapping()} for design in designs
        ],
    }


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


def _short(value: object) -> str:
    return one_line(reprlib.repr(value), 200)
