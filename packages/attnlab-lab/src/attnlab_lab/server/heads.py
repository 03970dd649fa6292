"""Heads as JSON: weights and scores in the wire form."""

from collections.abc import Iterator, Mapping
from typing import TypedDict

import torch
from torch import Tensor

from attnlab.draw.wire import Packed, pack
from attnlab.look.heads import head_at


class PackedHead(TypedDict):
    """A head: its weights and scores, (query, key); a pair that is masked has no score."""

    name: str
    rows: int
    columns: int
    weights: Packed
    scores: Packed


def packed_head(name: str, weights: Tensor, scores: Tensor) -> PackedHead:
    """Describe a head by its weights and scores, (query, key)."""
    rows, columns = weights.shape
    return {
        "name": name,
        "rows": rows,
        "columns": columns,
        "weights": pack(weights),
        "scores": pack(scores.masked_fill(~torch.isfinite(scores), torch.nan)),
    }


def packed_heads(recording: Mapping[str, Tensor]) -> Iterator[PackedHead]:
    """Describe every head of a recorded pass, site by site."""
    for site in recording:
        if site.endswith("weights"):
            scores = recording[f"{site.removesuffix('weights')}scores"][0]
            for head, weights in enumerate(recording[site][0]):
                yield packed_head(head_at(site, head), weights, scores[head])
