"""What summaries are held against: the whole matrix of weights in NumPy and float64."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnlab import seeds

KINDS = ("none", "causal", "window", "padding", "boolean", "sparse", "added", "bands", "heads")


class Case(NamedTuple):
    """An attention to be summarized, and how."""

    query: Tensor
    key: Tensor
    mask: Tensor | str | int | None
    scale: float | None
    tiles: int
    top: int


def case(seed, dtype=torch.float32, kind=None):
    """Draw an attention: any lengths, widths, axes and masks."""
    source = seeds.generator(seed, "summaries", "case")

    def one_of(*choices):
        return choices[int(torch.randint(len(choices), (), generator=source))]

    def normal(*shape):
        return torch.randn(*shape, generator=source, dtype=torch.float64)

    def share(*shape):
        return torch.rand(*shape, generator=source)

    batch, heads = one_of((1, 1), (1, 2), (2, 3))
    keys = one_of(1, 2, 7, 8, 31, 33, 64, 65, 100, 129, 150)
    queries = one_of(keys, keys, keys, 1, 5, 40, 97)
    width = one_of(1, 3, 8, 16, 17, 64)
    query = normal(batch, heads, queries, width) * one_of(0.3, 1.0, 3.0)
    key = normal(batch, one_of(heads, 1), keys, width)
    added = normal(queries, keys).masked_fill(share(queries, keys) < 0.3, -torch.inf).to(dtype)
    masks = {
        "none": None,
        "causal": "causal",
        "window": int(torch.randint(1, keys + 3, (), generator=source)),
        "padding": share(batch, 1, 1, keys) < 0.6,
        "boolean": share(queries, keys) < 0.5,
        "sparse": share(batch, 1, queries, keys) < 0.02,
        "added": added,
        "bands": (torch.arange(keys) // 64 % 2 == 1).expand(queries, keys),
        "heads": share(batch, heads, queries, keys) < 0.9,
    }
    kind = one_of(*KINDS) if kind is None else kind
    scale, tiles, top = one_of(None, None, 0.5), one_of(1, 3, 16, 50, 512), one_of(1, 4, 8)
    return Case(query.to(dtype), key.to(dtype), masks[kind], scale, tiles, top)


def weights_and_scores(one):
    """Make all weights and scores in float64."""
    query, key = one.query.double().numpy(), one.key.double().numpy()
    scale = query.shape[-1] ** -0.5 if one.scale is None else one.scale
    scores = query @ np.swapaxes(key, -1, -2) * scale
    queries, keys = scores.shape[-2:]
    distance = np.arange(keys - queries, keys)[:, None] - np.arange(keys)
    if isinstance(one.mask, str):
        scores = np.where(distance >= 0, scores, -np.inf)
    elif isinstance(one.mask, int):
        scores = np.where((distance >= 0) & (distance < one.mask), scores, -np.inf)
    elif one.mask is not None and one.mask.dtype == torch.bool:
        scores = np.where(one.mask.numpy(), scores, -np.inf)
    elif one.mask is not None:
        scores = scores + one.mask.double().numpy()
    largest = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isfinite(largest), largest, 0.0))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1.0, total), scores


def summary(weights, scores, tiles, top):
    """Say what a summary says, from the whole matrix."""
    queries, keys = weights.shape[-2:]
    position = np.arange(keys - queries, keys)
    distance = position[:, None] - np.arange(keys)
    mean = (weights * distance).sum(-1)
    with np.errstate(divide="ignore"):
        entropy = -(weights * np.where(weights > 0, np.log(weights), 0.0)).sum(-1)
        log_sum = np.log(np.exp(scores - 50.0).sum(-1)) + 50.0
    alive = weights.sum(-1) > 0

    def on(key):
        place = np.broadcast_to(key.clip(0, keys - 1)[:, None], (*mean.shape, 1))
        found = np.take_along_axis(weights, place, -1)
        return np.where((key >= 0) & (key < keys), found[..., 0], 0.0)

    order = np.argsort(-scores, axis=-1, kind="stable")[..., :top]
    best = np.take_along_axis(weights, order, -1)
    missing = [(0, 0)] * mean.ndim + [(0, top - best.shape[-1])]
    cells = max(1, -(-queries // tiles)), max(1, -(-keys // tiles))
    starts = np.arange(0, queries, cells[0]), np.arange(0, keys, cells[1])
    rows = np.minimum(cells[0], queries - starts[0])
    columns = np.minimum(cells[1], keys - starts[1])
    counts = rows[:, None] * columns

    def pooled(operation):
        return operation.reduceat(operation.reduceat(weights, starts[0], -2), starts[1], -1)

    return {
        "entropy": entropy,
        "effective_keys": np.where(alive, np.exp(entropy), 0.0),
        "largest": weights.max(-1),
        "distance": mean,
        "spread": np.sqrt((weights * (distance - mean[..., None]) ** 2).sum(-1)),
        "first": on(np.zeros_like(position)),
        "own": on(position),
        "previous": on(position - 1),
        "log_sum": log_sum,
        "top_keys": np.pad(np.where(best > 0, order, -1), missing, constant_values=-1),
        "top_weights": np.pad(best, missing),
        "cells": np.array(cells),
        "map_mean": pooled(np.add) / counts,
        "map_max": pooled(np.maximum),
    }


def check(found, expected, bound, weights):
    """Hold a summary against what it should be; where scores nearly tie, either key is right."""
    reach = expected["spread"]
    for name, right in expected.items():
        value = getattr(found, name).double().numpy()
        assert value.shape == right.shape, f"{name}: {value.shape} is not {right.shape}"
        if name in ("top_keys", "cells"):
            continue
        size = 1.0 + np.abs(right) + (reach if name in ("distance", "spread") else 0.0)
        with np.errstate(invalid="ignore"):
            error = np.where(value == right, 0.0, np.abs(value - right) / size)
        assert (error <= bound).all(), f"{name} is wrong by {error.max():.1e}"
    assert (found.cells.numpy() == expected["cells"]).all()
    keys = found.top_keys.numpy()
    there = np.where(keys >= 0, np.take_along_axis(weights, keys.clip(0), -1), 0.0)
    assert (np.abs(there - expected["top_weights"]) <= bound).all(), "top_keys name other keys"
    for row in keys.reshape(-1, keys.shape[-1]):
        named = row[row >= 0]
        assert len(set(named)) == len(named), "a key is named twice"
