"""Heads as JSON: weights and scores in the wire form."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from attnlab.draw.wire import pack
from attnlab.look.heads import head_at

PackedHead = dict[str, Any]


def packed_head(name: str, weights: Tensor, scores: Tensor) -> PackedHead:
    """Describe a head by its weights and scores, (query, key); a masked pair has no score."""
    scores = scores.masked_fill(~torch.isfinite(scores), torch.nan)
    rows, columns = weights.shape
    packed = {"weights": pack(weights), "scores": pack(scores)}
    return {"name": name, "rows": rows, "columns": columns, **packed}


def packed_heads(recording: Mapping[str, Tensor]) -> Iterator[PackedHead]:
    """Describe every head of a recorded pass, site by site."""
    for site in recording:
        if site.endswith("weights"):
            scores = recording[f"{site.removesuffix('weights')}scores"][0]
            for head, weights in enumerate(recording[site][0]):
                yield packed_head(head_at(site, head), weights, scores[head])
