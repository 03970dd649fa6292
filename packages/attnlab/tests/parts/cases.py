"""Random attention problems: every kind of mask, odd and unequal sizes, awkward memory layouts.

A case is NumPy float64, but its numbers can be represented in the precision it is made for, so that
torch and the reference start from the same ones. `unit` scores have a standard deviation of 1,
whatever the scale.
"""

from typing import NamedTuple

import numpy as np
import torch

from tests import reference as ref

KINDS = ("none", "causal", "causal word", "padding", "density", "block", "dead rows")
KINDS += ("bias", "bias that blocks")
HALVES = (torch.bfloat16, torch.float16)
DTYPES = (torch.float64, torch.float32, *HALVES)


class Case(NamedTuple):
    """One problem; `visible` is what may be attended to, written out, (..., query, key)."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    mask: np.ndarray | None
    scale: float | bool | None
    kind: str
    visible: np.ndarray
    grad_output: np.ndarray

    def torch_mask(self, dtype=torch.float32):
        if self.kind == "causal word":
            return "causal"
        return None if self.mask is None else as_tensor(self.mask, dtype)

    def tensors(self, dtype, *, grad=False):
        """Query, key and value; which of them are non-contiguous depends on the case."""
        strided = [(self.query.size + i) % 2 == 0 for i in range(3)]
        made = [as_tensor(x, dtype, strided=s) for x, s in zip(self[:3], strided, strict=True)]
        return tuple(x.requires_grad_(grad) for x in made)  # type: ignore[return-value]


def as_tensor(x, dtype, *, strided=False):
    if x.dtype == bool:
        return torch.from_numpy(x.copy())
    if strided:  # the last two axes change places in memory
        return torch.from_numpy(x.swapaxes(-1, -2).copy()).to(dtype).transpose(-1, -2)
    return torch.from_numpy(x.copy()).to(dtype)


def rounded(x, dtype):
    return torch.from_numpy(x).to(dtype).double().numpy()


def random_case(seed, *, largest=65, dtype=torch.float32, kind=None):
    """Make the case of this number; its kind of mask goes round with the number unless it is
    given."""
    rng = np.random.default_rng([20260101, seed])
    kind = KINDS[seed % len(KINDS)] if kind is None else kind
    batch = int(rng.integers(0, 5)) if rng.random() < 0.3 else int(rng.integers(1, 4))
    heads = int(rng.integers(1, 9))
    num_queries, num_keys = _length(rng, largest), _length(rng, largest)
    if kind.startswith("causal"):
        num_queries, num_keys = sorted((num_queries, num_keys))
    if kind == "block" or (kind == "causal word" and rng.random() < 0.5):
        num_queries = num_keys
    width, value_width = int(rng.integers(1, 65)), int(rng.integers(1, 65))
    scale = (None, None, False, float(rng.uniform(0.1, 2.0)))[rng.integers(0, 4)]
    factor = width**-0.5 if scale is None else (1.0 if scale is False else scale)
    # Sometimes one key head serves all, and sometimes there is no batch: the leading axes
    # broadcast.
    key_heads = 1 if rng.random() < 0.2 else heads
    lead, key_lead = (batch, heads), (batch, key_heads)
    if rng.random() >= 0.8:
        lead, key_lead = lead[1:], key_lead[1:]

    query = rng.normal(size=(*lead, num_queries, width)) / (factor * width**0.5)
    key = rng.normal(size=(*key_lead, num_keys, width))
    value = rng.normal(size=(*key_lead, num_keys, value_width))
    mask = _mask(rng, kind, lead, num_queries, num_keys)
    if mask is not None and mask.dtype != bool:
        mask = rounded(mask, dtype)
    query, key, value = (rounded(x, dtype) for x in (query, key, value))
    grad = rounded(rng.normal(size=(*lead, num_queries, value_width)), dtype)
    seen = np.ones((1, 1), bool) if mask is None else mask
    seen = seen if seen.dtype == bool else seen > -np.inf
    visible = np.broadcast_to(seen, (*lead, num_queries, num_keys))
    return Case(query, key, value, mask, scale, kind, visible, grad)


def _length(rng, largest):
    """Mostly short, now and then long, always from 1 to the largest."""
    most = largest if rng.random() < 0.06 else min(largest, 9)
    return int(rng.integers(1, most + 1))


def _mask(rng, kind, lead, num_queries, num_keys):
    if kind == "none":
        return None
    if kind.startswith("causal"):
        return ref.causal_mask(num_queries, num_keys)
    if kind == "padding":
        lengths = [int(n) for n in rng.integers(0, num_keys + 1, size=lead[0])]
        mask = ref.padding_mask(lengths, num_keys)
        return mask if len(lead) == 2 else mask[:, 0]
    if kind == "block":
        first = int(rng.integers(0, num_keys + 1))
        return ref.block_mask([first, num_keys - first])
    # Two to four axes: per head and batch, per head, or one for all.
    shape = (*lead[int(rng.integers(0, len(lead) + 1)) :], num_queries, num_keys)
    chosen = rng.random(shape) < rng.random()
    if kind == "density":
        return chosen
    if kind == "dead rows":
        chosen[..., rng.random(num_queries) < 0.5, :] = False
        return chosen
    bias = rng.normal(size=shape)
    return bias if kind == "bias" else np.where(chosen, bias, -np.inf)
