"""What can be known of a head's matrices from outside, and what cannot.

Attention sees keys and queries only through the product `Qm Kmᵀ`: for any invertible R, `Km R` and
`Qm R⁻ᵀ` are other matrices with the same scores, the same attention and the same outputs. So Km and
Qm of two models cannot be compared; the product can, where a token really meets a token, and less
what the softmax does not see: a number added to all the keys of a query.
"""

import math
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from attnlab.errors import WrongUsage
from attnlab.models.single_head import Matrices
from attnlab.shapes import shape_text
from attnlab.tasks.vectors import VectorTask


@dataclass(frozen=True)
class ScoreTable:
    """A head's scores for every possible query and key: (query, key), NaN where they never meet.

    queries and keys name the rows and columns: `A2` is the letter A at the second place, `A` the
    letter at any place.
    """

    scores: Tensor
    queries: tuple[str, ...]
    keys: tuple[str, ...]


def gauge_change(matrices: Matrices, change: Tensor) -> Matrices:
    """Return other matrices of the same function: `Km R` and `Qm R⁻ᵀ`, for an invertible R (qk_dim,
    qk_dim)."""
    size = matrices.Km.shape[1]
    if tuple(change.shape) != (size, size):
        raise WrongUsage(
            f"R must have shape ({size}, {size}), as wide as the queries; got "
            f"{shape_text(change.shape)}."
        )
    change = change.to(matrices.Km.dtype)
    return matrices._replace(
        Km=matrices.Km @ change, Qm=torch.linalg.solve(change, matrices.Qm.T).T
    )


def score_table(matrices: Matrices, task: VectorTask) -> ScoreTable:
    """Return the scaled scores `x Qm Kmᵀ xᵀ / √d_qk` of all queries and keys, minus each row's
    mean.

    x runs over every token at every place where it can stand, positions written as the head sees
    them. All of it can be known from attention alone: two heads that attend alike have the same
    table, whatever their matrices.

    >>> from attnlab.design.designs import identity
    >>> design = identity(1e-3)
    >>> scores = score_table(design.model().matrices(), design.task).scores
    >>> scores.round(decimals=1).tolist()[0]
    [5.7, -2.8, -2.8]
    """
    rows = torch.eye(task.input_dim, dtype=matrices.Km.dtype)
    pairs = [(token, -1) for token in range(task.input_dim)]
    if matrices.pos is not None:
        # CLS is at place 0 and nowhere else; letters are everywhere else.
        pairs = list(product(range(task.letters), range(task.has_cls, task.row_length)))
        if task.has_cls:
            pairs.insert(0, (task.letters, 0))
        tokens, places = torch.tensor(pairs).unbind(1)
        rows = torch.cat((rows[tokens], matrices.pos[places]), 1)
    scores = rows @ matrices.Qm @ matrices.Km.T @ rows.T / math.sqrt(matrices.Km.shape[1])
    for (query, (token, place)), (key, (other, where)) in product(enumerate(pairs), repeat=2):
        if place == where >= 0 and token != other:
            scores[query, key] = math.nan  # two tokens at one place
    scores = scores - scores.nanmean(1, keepdim=True)
    names = [_name(task, token, place) for token, place in pairs]
    first = int(task.has_cls and matrices.pos is not None)  # what comes out at CLS is ignored
    return ScoreTable(scores[first:], tuple(names[first:]), tuple(names))


def _name(task: VectorTask, token: int, place: int) -> str:
    """Name a token at a place; -1 is any."""
    name = task.names[token]
    if place >= 0 and token < task.letters:
        return f"{name}{place + (not task.has_cls)}"
    return name
