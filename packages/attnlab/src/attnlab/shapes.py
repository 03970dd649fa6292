"""The one glossary of axes, and the checks that use it.

Everywhere in the project these words, and no others, name an axis:

| word         | meaning                                                            |
| ------------ | ------------------------------------------------------------------ |
| `batch`      | independent inputs; also any further leading axes, written `...`   |
| `head`       | attention heads; `kv_head` where keys and values are shared        |
| `query`      | positions that look                                                |
| `key`        | positions that are looked at (values live on the same axis)        |
| `length`     | positions, where queries and keys are the same ones                |
| `d_model`    | width of the residual stream                                       |
| `head_width` | width of one head's query and key (d_k); its value's is `value_width` |
| `d_ff`       | width inside the feed-forward part                                 |
| `vocabulary` | token ids                                                          |

Attention weights are `(batch, head, query, key)`, always, also for one head.
"""

from collections.abc import Iterable, Sequence
from typing import get_args

import torch
from torch import Tensor

from attnlab.errors import WrongUsage, is_integer


def shape_text(shape: Iterable[int]) -> str:
    """Write a shape the way messages show it.

    >>> shape_text((2, 3))
    '(2, 3)'
    """
    return "(" + ", ".join(map(str, shape)) + ")"


def check_attention_shapes(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | str | None
) -> None:
    """Raise `WrongUsage` unless query, key, value and mask can be attended with.

    query (..., query, head_width) · key (..., key, head_width) · value (..., key, value_width) ·
    mask broadcasting to (..., query, key).
    """
    tensors = query, key, value
    if not isinstance(mask, Tensor) and _are_alike(tensors):
        return
    for name, tensor in zip(("query", "key", "value"), tensors, strict=True):
        _check_numbers(name, tensor)
    if query.shape[-1] != key.shape[-1]:
        raise WrongUsage(
            f"query and key must have the same width; got {query.shape[-1]} and {key.shape[-1]}. "
            "Both are the d_k of the formula softmax(QKᵀ/√d_k) V."
        )
    if query.shape[-1] == 0:
        raise WrongUsage(
            "query and key must be at least 1 wide; got width 0, for which no scores exist."
        )
    if key.shape[-2] != value.shape[-2]:
        raise WrongUsage(
            f"key and value must have the same length; got {key.shape[-2]} keys and "
            f"{value.shape[-2]} values. Each key needs its own value."
        )
    if not query.dtype == key.dtype == value.dtype:
        raise WrongUsage(
            "query, key and value must share one dtype; "
            f"got {query.dtype}, {key.dtype} and {value.dtype}. Convert them to one of these first."
        )
    leading: Sequence[int] = query.shape[:-2]
    if not leading == key.shape[:-2] == value.shape[:-2]:
        axes = (leading, key.shape[:-2], value.shape[:-2])
        try:
            leading = torch.broadcast_shapes(*axes)  # type: ignore[no-untyped-call]
        except RuntimeError:
            names = zip(("query", "key", "value"), map(shape_text, axes), strict=True)
            shapes = ", ".join(f"{name} {text}" for name, text in names)
            raise WrongUsage(f"the leading axes must broadcast together; got {shapes}.") from None
    if isinstance(mask, Tensor):
        _check_mask(mask, (*leading, query.shape[-2], key.shape[-2]))


def _are_alike(tensors: tuple[object, object, object]) -> bool:
    """Are query, key and value floating-point numbers of one shape, which always fit?"""
    query, key, value = tensors
    if not (isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor)):
        return False
    if not query.shape == key.shape == value.shape or not query.dtype == key.dtype == value.dtype:
        return False
    return query.dim() > 1 and query.shape[-1] > 0 and query.is_floating_point()


def _check_numbers(name: str, tensor: object) -> None:
    if not isinstance(tensor, Tensor):
        kind = type(tensor).__name__
        raise WrongUsage(f"{name} must be a tensor; got a {kind}. Convert it with torch.as_tensor.")
    if tensor.dim() < 2:
        raise WrongUsage(
            f"{name} needs at least two axes, (..., length, width); got shape "
            f"{shape_text(tensor.shape)}. Add a length axis with {name}.unsqueeze(-2)."
        )
    if not tensor.is_floating_point():
        raise WrongUsage(
            f"{name} must hold floating-point numbers; got {tensor.dtype}. Convert it "
            f"with {name}.float()."
        )


def _check_mask(mask: Tensor, scores: Sequence[int]) -> None:
    fits = mask.dim() <= len(scores)
    for got, expected in zip(reversed(mask.shape), reversed(scores), strict=False):
        fits = fits and got in (1, expected)
    if not fits:
        raise WrongUsage(
            f"mask must broadcast to the scores (..., query, key) = {shape_text(scores)}; got "
            f"{shape_text(mask.shape)}. A padding mask per batch needs shape (batch, 1, 1, key)."
        )


def require_choice(name: str, value: object, kind: object) -> None:
    """Raise `WrongUsage` naming `value` unless it is one of a `Literal`'s."""
    if value not in get_args(kind):
        raise WrongUsage(f"{name} must be one of {', '.join(get_args(kind))}; got {value!r}.")


def require_integer(name: str, number: object, *, low: int = 1) -> int:
    """Return `number` as an int of at least `low`, or raise `WrongUsage` naming it."""
    if not is_integer(number) or number < low:
        raise WrongUsage(f"{name} must be an integer of at least {low}; got {number!r}.")
    return number
