"""The values of an edit as JSON: tensors as nested lists, recordings as folders.

JSON has no infinity; -inf inside a tensor is written "-inf".
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from attnlab.errors import WrongUsage, did_you_mean
from attnlab.shapes import shape_text

__all__ = ["live", "plain", "short"]

_MOST = 1_000  # numbers that a brief form still spells out
_SHOWN = 20  # things of a list that an edit's name shows
_DEEPEST = 32  # lists within lists, and objects
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
}


def plain(value: Any, *, brief: bool = False) -> Any:
    """Return a field's value as JSON has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    if isinstance(value, tuple | list):
        return [plain(each, brief=brief) for each in value]
    if isinstance(value, Tensor):
        if brief and value.numel() > _MOST:
            stored = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            return {
                "shape": list(value.shape),
                "sha256": hashlib.sha256(stored.tobytes()).hexdigest(),
            }
        return {"tensor": _listed(value.tolist()), "dtype": str(value.dtype).removeprefix("torch.")}
    if isinstance(value, Mapping):
        return {"values": {site: plain(each, brief=brief) for site, each in value.items()}}
    return value


def live(form: Any) -> Any:
    """Return the value that `plain` wrote down; a recording is opened from its folder."""
    _check_depth(form)
    if isinstance(form, list):
        return (
            tuple(live(each) for each in form)
            if any(isinstance(each, list | dict) for each in form)
            else tuple(form)
        )
    if not isinstance(form, dict):
        return form
    match form:
        case {"number": str(text), **rest} if not rest:
            try:
                return float(text)
            except ValueError:
                raise WrongUsage(
                    f"a number is written as a text such as '-inf'; got {text!r:.40}."
                ) from None
        case {"tensor": numbers, "dtype": str(name), **rest} if not rest:
            if name not in _DTYPES:
                raise WrongUsage(
                    f"there are no tensors of {name!r} here; {did_you_mean(name, _DTYPES)}"
                )
            try:
                return torch.tensor(_unlisted(numbers), dtype=_DTYPES[name])
            except (TypeError, ValueError, OverflowError, RuntimeError) as error:
                raise WrongUsage(
                    f"a tensor is written as nested lists of numbers, all of one length: {error}."
                ) from None
        case {"values": dict(values), **rest} if not rest:
            return {site: live(each) for site, each in values.items()}
    raise WrongUsage(
        'a value is a number, a text, a list, {"tensor": lists, "dtype": name} or {"values": '
        f"{{site: tensor}}}}; got an object with {', '.join(map(repr, form)) or 'nothing in it'}."
    )


def _check_depth(form: Any) -> None:
    level, depth = [form], 0
    while level := [each for each in level if isinstance(each, list | dict)]:
        depth += 1
        if depth > _DEEPEST:
            raise WrongUsage(f"a value holds lists within lists more than {_DEEPEST} deep.")
        level = [
            inner for each in level for inner in (each.values() if isinstance(each, dict) else each)
        ]


def short(value: Any) -> str:
    """Write a field's value as it is shown in an edit's name."""
    if isinstance(value, tuple):
        more = f", … {len(value) - _SHOWN} more" if len(value) > _SHOWN else ""
        return "[" + ", ".join(short(each) for each in value[:_SHOWN]) + more + "]"
    if isinstance(value, Tensor):
        return repr(value.tolist()) if value.numel() <= 4 else f"tensor{shape_text(value.shape)}"
    if isinstance(value, Mapping):
        return f"{type(value).__name__} of {len(value)} sites"
    return repr(value)


def _listed(numbers: Any) -> Any:
    if isinstance(numbers, list):
        return [_listed(each) for each in numbers]
    return str(numbers) if isinstance(numbers, float) and not math.isfinite(numbers) else numbers


def _unlisted(numbers: Any) -> Any:
    if isinstance(numbers, list):
        return [_unlisted(each) for each in numbers]
    return float(numbers) if isinstance(numbers, str) else numbers
