"""Random models and inputs of every kind, all tiny, for claims about any of them."""

import hashlib
import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from attnlab.models import SingleHead, SingleHeadConfig
from attnlab.parts.heads import share_heads
from attnlab.seeds import isolated
from attnlab.sites import Hook
from tests.edits.effects import models
from tests.reference.attention import attention
from tests.reference.masks import causal_mask

POSITIONS = ("none", "sinusoidal", "learned", "concatenated", "rotary", "alibi")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class Case(NamedTuple):
    """A model, and how to run it on its input; `words` say what it is."""

    model: nn.Module
    run: Callable[[], Any]
    words: str


def case(seed):
    """Draw a case: a model of any kind and dtype, with padding or without."""
    draw = random.Random(seed)
    kind, dtype = (*models.KINDS, "single head")[seed % 5], draw.choice(DTYPES)
    words = f"{seed}: {kind} {dtype}"
    if kind == "single head":
        with isolated(seed):
            settings = {"pos_dim": draw.choice([None, 3]), "learned_positions": True}
            config = SingleHeadConfig(input_dim=3, qk_dim=5, v_dim=4, **settings)
            model = SingleHead(config).to(dtype).eval()
            vectors = torch.randn(draw.randint(1, 3), draw.randint(1, 9), 3, dtype=dtype)
        options = {"real": _real(draw, vectors), "need_weights": draw.random() < 0.5}
        return Case(model, lambda: model(vectors, **options).output, words)
    # norms keep scores so small that the weights are as exact as their dtype
    fixed = {"positions": draw.choice(POSITIONS), "norm_place": draw.choice(["pre", "post"])}
    each = models.given(seed, kind, dtype, **fixed)
    if kind != "decoder":
        name = "mask" if "mask" in each.inputs else "real"
        real = _real(draw, each.inputs.get("tokens", each.inputs.get("source")))
        each.inputs[name] = real[:, None, None] if name == "mask" and real is not None else real
    return Case(each.model, partial(models.run, each), words)


def _real(draw, inputs):
    """Say which positions are no padding: all in half of the cases, in others perhaps none."""
    if draw.random() < 0.5:
        return None
    batch, length = inputs.shape[:2]
    lengths = torch.tensor([[draw.randint(0, length)] for _ in range(batch)])
    return torch.arange(length) < lengths


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
