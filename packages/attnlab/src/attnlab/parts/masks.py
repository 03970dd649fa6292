"""Masks: who may look at whom. One convention for the whole project: **True = may attend**.

It is the convention of `torch.nn.functional.scaled_dot_product_attention` (and the opposite of
`torch.nn.MultiheadAttention`'s). Masks are boolean tensors that broadcast to (batch, head, query,
key), so they combine with `&` and `|`, or with `both`, which also takes None for "everything is
allowed". When there are more keys than queries, the queries are the **last** positions, as in
generation with a cache.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from attnlab.errors import WrongUsage, type_words
from attnlab.shapes import require_integer

Mask: TypeAlias = Tensor | Literal["causal"] | None
Device: TypeAlias = torch.device | str | None


def causal_mask(num_queries: int, num_keys: int | None = None, *, device: Device = None) -> Tensor:
    """Mask where each query sees itself and what came before: (query, key).

    Args:
        num_queries: how many queries.
        num_keys: how many keys; None for as many. The queries are the last positions of the keys.
        device: where the mask is made.

    Returns:
        a boolean mask, True = may attend.

    Raises:
        WrongUsage: a number that is no whole number, or fewer keys than queries.

    >>> causal_mask(3).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    queries, keys = _places(num_queries, num_keys, device)
    return keys <= queries


def anti_causal_mask(
    num_queries: int, num_keys: int | None = None, *, device: Device = None
) -> Tensor:
    """Mask where each query sees itself and later positions, (query, key): a leak for tests to
    catch."""
    queries, keys = _places(num_queries, num_keys, device)
    return keys >= queries


def sliding_window_mask(
    num_queries: int, window: int, num_keys: int | None = None, *, device: Device = None
) -> Tensor:
    """Mask where each query sees the last `window` positions, itself included (Beltagy et al.
    2020).

    Args:
        num_queries: how many queries.
        window: how many keys each query sees, at least 1.
        num_keys: how many keys; None for as many. The queries are the last positions of the keys.
        device: where the mask is made.

    Returns:
        a boolean mask (query, key), True = may attend.

    Raises:
        WrongUsage: a number that is no whole number, or fewer keys than queries.
    """
    require_integer("window", window)
    queries, keys = _places(num_queries, num_keys, device)
    return (keys <= queries) & (keys > queries - window)


def prefix_mask(length: int, prefix: int, *, device: Device = None) -> Tensor:
    """Mask where all see the first `prefix` positions, the rest causal (Raffel et al. 2020, figure
    4).

    Args:
        length: how many positions.
        prefix: how many of the first all see.
        device: where the mask is made.

    Returns:
        a boolean mask (query, key), True = may attend.

    Raises:
        WrongUsage: a number that is no whole number or below 0.
    """
    require_integer("prefix", prefix, low=0)
    return causal_mask(length, device=device) | (torch.arange(length, device=device) < prefix)


def block_mask(lengths: Sequence[int], *, device: Device = None) -> Tensor:
    """Mask for several sequences packed into one row: each sees only itself, (query, key).

    >>> block_mask([1, 2]).int()
    tensor([[1, 0, 0],
            [0, 1, 1],
            [0, 1, 1]], dtype=torch.int32)
    """
    for length in lengths:
        require_integer("each block's length", length, low=0)
    repeats = torch.tensor(lengths, dtype=torch.int64, device=device)
    number = torch.arange(len(lengths), device=device).repeat_interleave(repeats)
    return number.unsqueeze(-1) == number


def padding_mask(lengths: Tensor | Sequence[int], length: int, *, device: Device = None) -> Tensor:
    """Mask that hides the padding after each row's real tokens: (batch, 1, 1, key).

    Args:
        lengths: how many real tokens each input of the batch has: (batch,), whole numbers.
        length: the padded length.
        device: where the mask is made.

    Returns:
        a boolean mask (batch, 1, 1, key), True = a real token.

    Raises:
        WrongUsage: lengths that are no whole numbers, or more than `length`.

    >>> padding_mask([1, 3], 3)[:, 0, 0].int()
    tensor([[1, 0, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    require_integer("length", length, low=0)
    real = torch.as_tensor(lengths, device=device)
    if real.numel() == 0:  # torch takes an empty list for floats
        real = real.long()
    if real.dim() != 1 or real.is_floating_point() or real.dtype == torch.bool:
        raise WrongUsage(
            "lengths must be one integer for each input of the batch; got shape "
            f"{tuple(real.shape)} of {real.dtype}."
        )
    if real.numel() and (int(real.min()) < 0 or int(real.max()) > length):
        raise WrongUsage(
            f"each length must be from 0 to the padded length {length}; got {real.tolist()}."
        )
    return (torch.arange(length, device=real.device) < real.unsqueeze(-1))[:, None, None, :]


def both(*masks: Tensor | None) -> Tensor | None:
    """Allow what all of the masks allow; None allows everything."""
    kept = [mask for mask in masks if mask is not None]
    for mask in kept:
        if mask.dtype != torch.bool:
            raise WrongUsage(
                f"only boolean masks can be combined; got {mask.dtype}. Add float masks up instead."
            )
    return None if not kept else functools.reduce(operator.and_, kept)


def as_tensor(mask: Mask, num_queries: int, num_keys: int, device: Device = None) -> Tensor | None:
    """Make the word "causal" a tensor; leave everything else as it is."""
    if isinstance(mask, str):
        if mask != "causal":
            raise WrongUsage(f'a mask is a tensor, None or the word "causal"; got {mask!r}.')
        return causal_mask(num_queries, num_keys, device=device)
    if mask is not None and not isinstance(mask, Tensor):
        raise WrongUsage(
            f'a mask is a tensor, None or the word "causal"; got {type_words(mask)}. '
            "Convert it with torch.as_tensor(mask)."
        )
    if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
        raise WrongUsage(
            "a mask is boolean (True = may attend) or float (added to the scores); got "
            f"{mask.dtype}. If its ones mean 'may attend', convert it with mask.bool()."
        )
    return mask


def allowed_by(mask: Tensor) -> Tensor:
    """Return a mask, boolean or added to the scores, as True = may attend."""
    if mask.dtype == torch.bool:
        return mask
    return mask != float("-inf")


def real_positions(mask: Mask, batch: int) -> Tensor | None:
    """Return the positions that some query may attend to, (batch, key); the others are padding.

    None where the mask is no tensor, and so knows no padding.

    >>> real_positions(padding_mask([1, 3], 3), 2).int()
    tensor([[1, 0, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    if not isinstance(mask, Tensor):
        return None
    allowed = allowed_by(mask)
    seen = allowed[(None,) * (4 - allowed.dim())].flatten(1, 2).any(1)
    return seen.expand(batch, -1)


def refuse_zeros_and_ones(mask: object) -> None:
    """Raise where a float mask holds only zeros and ones, and so was meant to be boolean.

    A learned bias may be anything; in a compiled or traced graph the numbers cannot be read.

    Raises:
        WrongUsage: with what makes a boolean mask of it.
    """
    if not isinstance(mask, Tensor) or not mask.is_floating_point() or mask.requires_grad:
        return
    if not mask.numel() or not _is_readable(mask):
        return
    least, most = map(float, mask.aminmax())
    if most == 1.0 and least in (0.0, 1.0) and bool(((mask == 0) | (mask == 1)).all()):
        raise WrongUsage(
            f"this mask holds only zeros and ones, as {mask.dtype}, and a float mask is added to "
            "the scores. If its ones mean 'may attend', give mask.bool(); if they shall be "
            "added, give mask - 1, which makes the same weights."
        )


def _is_readable(tensor: Tensor) -> bool:
    if tensor.is_meta or torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return False
    is_captured = tensor.is_cuda and torch.cuda.is_current_stream_capturing()
    return not is_captured and not torch._C._are_functorch_transforms_active()


def _places(num_queries: int, num_keys: int | None, device: Device) -> tuple[Tensor, Tensor]:
    """Return the positions of the queries (query, 1) and keys (key,), both ending together."""
    require_integer("the number of queries", num_queries, low=0)
    if num_keys is None:
        num_keys = num_queries
    require_integer("the number of keys", num_keys, low=0)
    queries = torch.arange(num_keys - num_queries, num_keys, device=device)
    return queries.unsqueeze(-1), torch.arange(num_keys, device=device)
