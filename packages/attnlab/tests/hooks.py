"""Hooks to look with and to change with, and what they must leave as it was."""

import hashlib

import numpy as np
import torch

from attnlab.parts.heads import share_heads
from attnlab.sites import Hook
from tests.reference.attention import attention
from tests.reference.masks import causal_mask


def parameters_hash(model):
    """A number that changes when any parameter or buffer changes in any bit."""
    found = hashlib.sha256()
    for name, value in model.state_dict().items():
        found.update(name.encode() + value.contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def no_hook_is_left(model):
    """Say that no hook stands at any part."""
    names = ("_installed", "_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    return not any(getattr(part, name, ()) for part in model.modules() for name in names)


class Watcher(Hook):
    """Looks at every attention by itself, and computes its weights in NumPy and float64 from what
    it sees."""

    changes = False

    def __init__(self):
        self.weights: dict[str, list[np.ndarray]] = {}

    def watch(self, part, call):
        found = numpy_weights(call.query, call.key, call.mask, call.scale)
        self.weights.setdefault(f"{part}.weights" if part else "weights", []).append(found)


class Change(Hook):
    """Puts a changed value in the place of one at a site."""

    def __init__(self, site, change, words="changed"):
        self.site, self.change, self.words = site, change, words

    def wants(self, site):
        return site == self.site

    def visit(self, site, value):
        return self.change(value)

    def describe(self):
        return [{"kind": self.words, "site": self.site}]


def numpy_weights(query, key, mask, scale):
    """Equation 1 by the letter, (batch, head, query, key); dead rows are zeros."""
    query, key = (each.detach().double() for each in (query, key))
    key = share_heads(key, query.shape[1])
    allowed = None
    if isinstance(mask, str):
        allowed = causal_mask(query.shape[2], key.shape[2])
    elif mask is not None:
        allowed = mask.numpy() if mask.dtype == torch.bool else mask.detach().double().numpy()
    return attention(query, key, key, allowed, None if scale is True else scale).weights
