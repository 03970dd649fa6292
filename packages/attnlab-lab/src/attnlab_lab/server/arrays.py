"""Arrays and heads as JSON: the bytes of an array in base64, little-endian."""

import base64
from collections.abc import Iterator, Mapping
from typing import TypedDict

import torch
from torch import Tensor

from attnlab.look.heads import head_at

Packed = dict[str, str]


class PackedHead(TypedDict):
    """A head as JSON: its weights and scores, (query, key), and where a pair is open."""

    name: str
    rows: int
    columns: int
    weights: Packed
    scores: Packed
    mask: Packed


def packed(values: Tensor) -> Packed:
    """Write an array as its bytes: `{"float32": base64}`; booleans and bytes are "uint8"."""
    kind = torch.uint8 if values.dtype in (torch.bool, torch.uint8) else torch.float32
    content = values.detach().cpu().to(kind).contiguous().numpy().tobytes()
    return {str(kind).removeprefix("torch."): base64.b64encode(content).decode()}


def packed_head(name: str, weights: Tensor, scores: Tensor) -> PackedHead:
    """Describe a head by its weights and scores, (query, key)."""
    is_open = torch.isfinite(scores)
    rows, columns = weights.shape
    return {
        "name": name,
        "rows": rows,
        "columns": columns,
        "weights": packed(weights),
        "scores": packed(scores.masked_fill(~is_open, torch.nan)),
        "mask": packed(is_open),
    }


def packed_heads(recording: Mapping[str, Tensor]) -> Iterator[PackedHead]:
    """Describe every head of a recorded pass, site by site."""
    for site in recording:
        if site.endswith("weights"):
            scores = recording[f"{site.removesuffix('weights')}scores"][0]
            for head, weights in enumerate(recording[site][0]):
                yield packed_head(head_at(site, head), weights, scores[head])
