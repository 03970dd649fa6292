"""Arrays and heads as JSON: the bytes of an array in base64, little-endian."""

import base64
from typing import Any

import torch
from torch import Tensor


def packed(values: Tensor) -> dict[str, str]:
    """Write an array as its bytes: `{"float32": base64}`; booleans and bytes are "uint8"."""
    kind = torch.uint8 if values.dtype in (torch.bool, torch.uint8) else torch.float32
    content = values.detach().cpu().to(kind).contiguous().numpy().tobytes()
    return {str(kind).removeprefix("torch."): base64.b64encode(content).decode()}


def packed_head(name: str, weights: Tensor, scores: Tensor) -> dict[str, Any]:
    """Describe a head by its weights and scores, (query, key)."""
    is_open = torch.isfinite(scores)
    return {
        "name": name,
        "rows": weights.shape[0],
        "columns": weights.shape[1],
        "weights": packed(weights),
        "scores": packed(scores.masked_fill(~is_open, torch.nan)),
        "mask": packed(is_open),
    }
