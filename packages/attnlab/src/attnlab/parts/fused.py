"""Attention without its weights by a kernel of ours, where it is quicker than torch's.

torch's fused kernel for processors leaves a third of the machine unused. Ours
(`native/attention.cpp`) is compiled the first time that a long enough attention is computed without
gradients, held against torch's, and timed beside it once a machine.
`ATTNLAB_ATTENTION_PATH=default` (or `use_attention_path("default")`) switches all of it off,
`native` takes it without a race, `auto` is the rule. Without a C++ compiler torch's kernel computes
everything.

A query's output is the same to the bit for any number of threads and whatever else is in its batch,
and a hook that wants a summary of the weights gets it from the same pass over the scores.
"""

import math
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from attnlab.native import attention
from attnlab.native.compiler import compiler_name
from attnlab.parts.probes import ComputePath, Probe, compared, recalled, remember

AttentionPath = Literal["auto", "default", "native"]

_FEWEST = 256  # keys, and queries, below which the call costs more than the kernel saves
_FEWEST_SCORES = 2**20
_SAFE_SCALE = 1e3  # so that tame queries and keys have tame scores
_MEMORY = "attention-path"


def native_output(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | str | None, scale: float
) -> Tensor | None:
    """Compute (..., query, value_width) by our kernel; None where memory ran out.

    `takes_native` says whether it may; the caller says whether the numbers are guarded.
    """
    before = after = attention.FAR  # how far a query sees before and after itself
    if isinstance(mask, str):
        mask, after = None, 0
    elif mask is not None and mask.dtype != torch.bool:
        mask = mask.float()
    band = (before, after)
    try:
        return attention.attend_rows(query, key, mask, scale=scale, band=band, value=value)
    except MemoryError:
        return None


def takes_native(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | str | None, scale: float
) -> bool:
    """Say whether our kernel is the one for this attention, in a microsecond where it is short."""
    if torch.compiler.is_compiling() or _is_short(query, key):
        return False
    if not query.numel() or abs(scale) > _SAFE_SCALE or _is_observed():
        return False
    if not query.dtype == key.dtype == value.dtype == torch.float32:
        return False
    tensors = [query, key, value]
    if isinstance(mask, Tensor):
        tensors.append(mask)
    return all(map(_is_plain, tensors)) and _pays(mask) and _PATH.is_on()


def _is_short(query: Tensor, key: Tensor) -> bool:
    num_keys = key.shape[-2]
    if min(num_keys, query.shape[-2]) < _FEWEST:
        return True
    return math.prod(query.shape[:-1]) * num_keys < _FEWEST_SCORES


def _is_observed() -> bool:
    """Does something transform torch's operations, or watch them, so that it has to see them?"""
    return (
        torch._C._get_tracing_state() is not None
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_function_stack() > 0
        or torch._C._len_torch_dispatch_stack() > 0
        or torch.is_autocast_enabled("cpu")
    )


def _is_differentiated(tensor: Tensor) -> bool:
    if torch.is_grad_enabled() and tensor.requires_grad:
        return True
    return forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]


def _is_plain(tensor: Tensor) -> bool:
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not tensor.is_neg()
        and not _is_differentiated(tensor)
    )


def _pays(mask: Tensor | str | None) -> bool:
    """Does a mask cost less than our kernel gains? A bias for each pair does not."""
    if not isinstance(mask, Tensor):
        return True
    if mask.dtype == torch.bool or mask.dim() < 2 or mask.shape[-2] == 1:
        return True
    return bool((mask[..., 0, -1] == float("-inf")).all())


@cache
def _reason_against() -> str | None:
    """Return why our kernel cannot be used here: it does not compile, or its results are off."""
    library = attention.library()
    if isinstance(library, str):
        return library
    query, key, value = _example(2, 67, 131, 20)
    mask = torch.ones(67, 131).tril(64).bool()
    expected = F.scaled_dot_product_attention(query, key, value, mask)
    output = native_output(query, key, value, "causal", 20**-0.5)
    error = math.inf
    if output is not None:
        error = float((output - expected).abs().max())
    if error < 1e-5:
        return None
    return f"its result is off by {error:.1e}"


def _measured(fresh: bool) -> Probe:
    if compiler_name() is None:
        return Probe(None, False, str(attention.library()))
    known = recalled(_MEMORY, fresh)
    if known is not None and not known.is_taken:
        return known  # and nothing needs to be compiled
    reason = _reason_against()
    if reason is not None:
        return Probe(None, False, reason)
    if known is not None:
        return known
    query, key, value = _example(2, 1024, 1024, 64)
    ratio = compared(
        lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True),
        lambda: native_output(query, key, value, "causal", 0.125),
        rounds=15,
    )
    return remember(_MEMORY, ratio)


def _example(
    heads: int, num_queries: int, num_keys: int, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    source = torch.Generator().manual_seed(0)
    numbers = torch.randn(1, heads, num_queries + 2 * num_keys, width, generator=source)
    query, keys = numbers[:, :, :num_queries], numbers[:, :, num_queries:]
    return query, keys[:, :, :num_keys], keys[:, :, num_keys:]


_PATH = ComputePath("attention", "native", _measured, lambda: _reason_against())  # noqa: PLW0108  replaced in tests
use_attention_path = _PATH.use
attention_path_probe = _PATH.probe
attention_path_in_use = _PATH.in_use
