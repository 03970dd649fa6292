"""The values of an edit as JSON: tensors as nested lists, recordings as folders.

JSON has no infinity; -inf inside a tensor is written "-inf".
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from attnlab.errors import WrongUsage, require_known
from attnlab.shapes import shape_text

_MOST = 1_000  # numbers that a brief form still spells out
_SHOWN = 20  # items of a list in an edit's repr
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (*_FLOATS, *_INTEGERS)}


def plain_value(value: Any, *, brief: bool = False) -> Any:
    """Return a field's value as plain JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    if isinstance(value, tuple | list):
        return [plain_value(item, brief=brief) for item in value]
    if isinstance(value, Mapping):
        return {"values": {site: plain_value(item, brief=brief) for site, item in value.items()}}
    if not isinstance(value, Tensor):
        return value
    if brief and value.numel() > _MOST:
        stored = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return {"shape": list(value.shape), "sha256": hashlib.sha256(stored.data).hexdigest()}
    return {"tensor": _listed(value.tolist()), "dtype": str(value.dtype).removeprefix("torch.")}


def _listed(numbers: Any) -> Any:
    if isinstance(numbers, list):
        return list(map(_listed, numbers))
    if isinstance(numbers, float) and not math.isfinite(numbers):
        return str(numbers)
    return numbers


def live(form: Any) -> Any:
    """Return the value that `plain_value` wrote; a recording stays the name of its folder."""
    if isinstance(form, list):
        return tuple(map(live, form))
    if not isinstance(form, dict):
        return form
    match form:
        case {"number": str(number), **others} if not others:
            return _read(float, number)
        case {"tensor": values, "dtype": str(dtype), **others} if not others:
            require_known("dtype", dtype, _DTYPES)
            return _read(_tensor, values, _DTYPES[dtype])
        case {"values": dict(values), **others} if not others:
            return {site: live(value) for site, value in values.items()}
    raise WrongUsage(
        'a value is a number, a text, a list, {"tensor": lists, "dtype": name} or {"values": '
        f"{{site: tensor}}}}; got an object with {', '.join(map(repr, form)) or 'nothing in it'}."
    )


def _read(make: Callable[..., Any], *arguments: object) -> Any:
    try:
        return make(*arguments)
    except (TypeError, OverflowError, RuntimeError, ValueError) as error:
        raise WrongUsage(
            "a number is written as a text such as '-inf', a tensor as nested lists of numbers, "
            f"all of one length: {error!s:.200}."
        ) from None


def _tensor(values: object, dtype: torch.dtype) -> Tensor:
    return torch.tensor(_unlisted(values), dtype=dtype)


def _unlisted(numbers: Any) -> Any:
    if isinstance(numbers, list):
        return list(map(_unlisted, numbers))
    return float(numbers) if isinstance(numbers, str) else numbers


def short_repr(value: Any) -> str:
    """Write a field's value for an edit's repr."""
    if isinstance(value, tuple):
        shown = list(map(short_repr, value[:_SHOWN]))
        if len(value) > _SHOWN:
            shown.append(f"… {len(value) - _SHOWN} more")
        return f"[{', '.join(shown)}]"
    if isinstance(value, Tensor) and value.numel() <= 4:
        return repr(value.tolist())
    if isinstance(value, Tensor):
        return f"tensor{shape_text(value.shape)}"
    if isinstance(value, Mapping):
        return f"{type(value).__name__} of {len(value)} sites"
    return repr(value)
