"""Composition: how much of what an earlier head writes a later head reads, as query, key or value.

The score is ‖A B‖ / (‖A‖ ‖B‖), with B = OV of the earlier head and A the later one's QKᵀ, QK or OV
(Elhage et al. 2021). It is not 0 for unrelated heads, but about 1 / √d_model. So beside it stands
what it is where the earlier head's directions are sampled at random and all singular values stay:
the mean and the middle 95 % of some draws. Of unrelated pairs one in forty is above.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnlab.display import Card, NumberTable, card_text, displayed
from attnlab.look.anatomy import AnatomyStep, HeadsStep, NormStep
from attnlab.look.factored import SVD, FactoredMatrix
from attnlab.look.head_matrices import LayerMatrices, through_norms
from attnlab.look.heads import head_name
from attnlab.look.inputs import foreign_of

KINDS = {"Q": "queries", "K": "keys", "V": "values"}
_MOST_LINES = 10


@displayed
@dataclass(frozen=True)
class Compositions:
    """The composition scores of pairs of heads, NaN where the second does not come after the first.

    heads: names of the rows (the later head) and columns (the earlier) · scores: by kind, "Q", "K"
    and "V", (head, head) · mean, low, high: of the scores for random directions, likewise.
    """

    heads: list[str]
    scores: dict[str, Tensor]
    mean: dict[str, Tensor]
    low: dict[str, Tensor]
    high: dict[str, Tensor]

    def top(self, count: int = _MOST_LINES) -> list[tuple[str, str, str, float, float, float]]:
        """Return the pairs that are farthest above chance, in units of the interval: kind, earlier
        head, later head, score, low and high of chance."""
        ranked = []
        for kind, scores in self.scores.items():
            above = (scores - self.mean[kind]) / (self.high[kind] - self.mean[kind])
            for later, earlier in (~scores.isnan()).nonzero().tolist():
                ranked.append((float(above[later, earlier]), kind, later, earlier))
        ranked.sort(key=lambda pair: -pair[0])
        pairs = []
        for _, kind, later, earlier in ranked[:count]:
            score, low, high = (
                float(table[kind][later, earlier]) for table in (self.scores, self.low, self.high)
            )
            pairs.append((kind, self.heads[earlier], self.heads[later], score, low, high))
        return pairs

    def number_tables(self) -> list[NumberTable]:
        """Return the scores less the mean of chance as tables to draw: later by earlier head."""
        label = "Composition score less its mean for random directions"
        return [
            NumberTable(
                f"{kind}: what is read as {word}", label, self.heads, self.heads,
                "later head", "earlier head", (self.scores[kind] - self.mean[kind]).tolist(),
            )
            for kind, word in KINDS.items()
        ]  # fmt: skip

    def _card(self) -> Card:
        pairs, above = 0, 0
        for kind, score in self.scores.items():
            pairs += int((~score.isnan()).sum())
            above += int((score > self.high[kind]).sum())
        rows = [
            (kind, earlier, later, f"{score:.3f}", f"{low:.3f} to {high:.3f}")
            for kind, earlier, later, score, low, high in self.top()
        ]
        if not pairs:
            return Card("Compositions: none of these heads comes after another")
        title = f"Compositions: {above:,} of {pairs:,} above chance, {pairs / 40:.0f} expected"
        columns = ("kind", "earlier", "later", "score", "random, 95 %")
        return Card(title, columns=columns, rows=rows)

    def __str__(self) -> str:
        return card_text(self._card())


def compositions(
    model: nn.Module, layers: Sequence[LayerMatrices], *, samples: int, seed: int
) -> Compositions:
    """Return the composition scores of the heads of some layers, with those of random
    directions."""
    starts, names = [0], list[str]()
    for layer in layers:
        names += [head_name(layer.part, number) for number in layer.heads]
        starts.append(len(names))
    tables = [
        {kind: torch.full((len(names), len(names)), torch.nan) for kind in KINDS} for _ in range(4)
    ]
    for second, later in enumerate(layers):
        rows = slice(starts[second], starts[second + 1])
        reading, keys = _readings(later), later.streams.key.steps
        steps_before = {"Q": later.streams.query.steps, "K": keys, "V": keys}
        for first, earlier in enumerate(layers):
            columns = slice(starts[first], starts[first + 1])
            for kind, stream_steps in steps_before.items():
                norms = _norms_after(earlier.part, stream_steps)
                if norms is None:
                    continue
                written = _written(model, earlier, norms)
                chance = _chance(reading[kind], written, samples, seed)
                values = [_scores(reading[kind], written), chance.mean(0)]
                values += torch.quantile(chance, chance.new_tensor([0.025, 0.975]), dim=0)
                for table, value in zip(tables, values, strict=True):
                    table[kind][rows, columns] = value.float()
    return Compositions(names, *tables)


def _norms_after(part: str, steps: Sequence[AnatomyStep]) -> list[str] | None:
    """Return the norms of the stream after an attention among these steps; None if it is not."""
    for index, step in enumerate(steps):
        if isinstance(step, HeadsStep) and step.point == part:
            return [later.path for later in steps[index:] if isinstance(later, NormStep)]
    return None


def _readings(layer: LayerMatrices) -> dict[str, SVD]:
    """Return what heads read by each kind, as vectors of the stream on the left."""
    qk = FactoredMatrix(layer.query.mT, layer.key, layer.precision).svd()
    ov = FactoredMatrix(layer.output.mT, layer.value, layer.precision).svd()
    return {"Q": qk, "K": SVD(qk.right, qk.values, qk.left), "V": SVD(ov.right, ov.values, ov.left)}


def _written(model: nn.Module, layer: LayerMatrices, norms: Sequence[str]) -> SVD:
    """Return what heads write, as it is after norms of the stream."""
    with torch.no_grad():
        output = through_norms(foreign_of(model), norms, layer.output)
    return FactoredMatrix(output.mT, layer.value, layer.precision).svd()


def _scores(reading: SVD, written: SVD) -> Tensor:
    """Return the score of each reading and each writing head, (reading, writing)."""
    overlaps = torch.einsum("bdi,adj->baij", reading.left, written.left).square()
    squares = _shares(reading.values), _shares(written.values)
    return torch.einsum("bi,baij,aj->ba", squares[0], overlaps, squares[1]).sqrt()


def _chance(reading: SVD, written: SVD, samples: int, seed: int) -> Tensor:
    """Return the scores for random directions, (sample, reading, writing)."""
    squares = _shares(reading.values), _shares(written.values)
    width, sizes = written.left.shape[-2], (squares[0].shape[-1], squares[1].shape[-1])
    source, overlaps = torch.Generator().manual_seed(seed), []
    for _ in range(samples):
        sampled = torch.randn(width, sizes[1], generator=source, dtype=torch.float64)
        frame, upper = torch.linalg.qr(sampled)  # uniform where the diagonal is positive
        overlaps.append((frame[: sizes[0]] * upper.diagonal().sign()).square())
    stacked = torch.stack(overlaps).to(squares[0])
    return torch.einsum("bi,nij,aj->nba", squares[0], stacked, squares[1]).sqrt()


def _shares(values: Tensor) -> Tensor:
    """Return each singular value's share of the sum of squares."""
    squares = values.square()
    return squares / squares.sum(-1, keepdim=True).clamp(min=math.ulp(0.0))
