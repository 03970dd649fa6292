"""The similarity of heads, without their matrices of weights."""

import torch
from torch import Tensor

from attnlab.errors import WrongUsage
from attnlab.look.summaries.question import Pattern, ask
from attnlab.look.summaries.row_blocks import blocks_of
from attnlab.parts.attend import attention_weights
from attnlab.shapes import shape_text


@torch.no_grad()
def head_similarity(
    query: Tensor, key: Tensor, mask: Pattern = None, *, scale: float | bool | None = None
) -> Tensor:
    """Return the cosine similarity of the weights of all pairs of heads: `Σ a b / √(Σ a² Σ b²)`.

    Weights are never negative, so neither is this; 0 means that two heads share no key of any
    query. A head without any key has similarity 0, also to itself. Heads of several layers are
    compared by concatenating their queries, and their keys, along the head axis.

    Shapes: query (..., head, query, head_width), key the same or with one head that all share ->
    (..., head, head), float64.
    """
    question = ask(query, key, mask, scale=scale)
    if not question.shape:
        raise WrongUsage(
            "similarity needs a head axis, (..., head, query, width); got "
            f"{shape_text(query.shape)}."
        )
    heads = question.shape[-1]
    products = torch.zeros(question.num_heads, heads, dtype=torch.float64, device=query.device)
    for first in range(0, question.num_heads, max(1, heads)):
        group = slice(first, first + heads)
        for block in blocks_of(question, group):
            weights = attention_weights(question.scores(*block)).flatten(1)
            products[group] += (weights @ weights.T).double()
    products = products.reshape(*question.shape, heads)
    norm = products.diagonal(dim1=-2, dim2=-1).sqrt()
    scaled = norm.unsqueeze(-1) * norm.unsqueeze(-2)
    # Not "where scaled > 0": NaN must stay NaN.
    return torch.where(scaled == 0, 0.0, products / scaled.masked_fill(scaled == 0, 1.0))
