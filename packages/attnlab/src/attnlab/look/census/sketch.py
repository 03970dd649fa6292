"""The sums of a census, which do not grow with the corpus and add up: those of two disjoint sets of
texts together are those of their union.

Counts are integers and add up exactly; sums are float64. The interval of a mean is an online
bootstrap over texts (Oza and Russell 2001): each text counts Poisson(1) times in each replicate,
drawn from its own number. Examples are a bottom-k sample in each bin: those texts stay whose random
keys, drawn from their numbers, are least, so the sample of a union is made from two samples.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from attnlab import seeds
from attnlab.look.census.bins import NUM_DISTANCES, SHARE, bins_of
from attnlab.look.census.meter import COUNTED, BatchMeasures
from attnlab.look.corpus.corpus import CorpusBatch

_REPLICATES = 200
_SAMPLED, _TOP = 3, 10  # examples of each bin, and with the largest values
_SAMPLE = 64  # texts drawn by lot, for all heads
_ADDED = ("sums", "counts", "histogram", "by_distance", "moments", "strongest_texts")


@dataclass(eq=False)
class Sketch:
    """The sums of a census so far; heads in their order.

    sums, counts: (measure, head, 1 + replicate), of values and of queries that have one; the first
    column counts every text once · histogram: (measure, head, bin) queries · by_distance (head,
    distance), moments (head, 2): see `BatchMeasures` · tokens (token,): the ids that were read, in
    order · occurrences (token,) · received, strongest (head, token): sums of the weight on a token
    as key, and of the strongest weight of a token as query · strongest_texts (head, bin): texts by
    their strongest weight · top, sampled (head, example, 5): value, random key, text, query and key
    of examples; sampled (head, bin · example, 5). Places without an example have text -1 · sample
    (text, 2): random key and number of the texts with the least keys.
    """

    sums: Tensor
    counts: Tensor
    histogram: Tensor
    by_distance: Tensor
    moments: Tensor
    tokens: Tensor
    occurrences: Tensor
    received: Tensor
    strongest: Tensor
    strongest_texts: Tensor
    top: Tensor
    sampled: Tensor
    sample: Tensor

    @classmethod
    def empty(cls, heads: int) -> "Sketch":
        """Return the sums of no text."""
        zeros = partial(torch.zeros, dtype=torch.float64)
        shape = (len(COUNTED), heads, _REPLICATES + 1)
        return cls(
            zeros(shape),
            torch.zeros(shape, dtype=torch.int64),
            torch.zeros(len(COUNTED), heads, SHARE.number, dtype=torch.int64),
            zeros(heads, NUM_DISTANCES),
            zeros(heads, 2),
            torch.zeros(0, dtype=torch.int64),
            torch.zeros(0, dtype=torch.int64),
            zeros(heads, 0),
            zeros(heads, 0),
            torch.zeros(heads, SHARE.number, dtype=torch.int64),
            _no_examples(heads, _TOP),
            _no_examples(heads, SHARE.number * _SAMPLED),
            zeros(0, 2),
        )

    @classmethod
    def of(cls, measured: BatchMeasures, batch: CorpusBatch, seed: int) -> "Sketch":
        """Return the sums of a batch whose texts have numbers that are unique in the corpus; seed:
        of the replicates and random keys."""
        values, numbers = measured.values.double(), torch.tensor(batch.numbers)
        is_there = ~values.isnan()
        pairs = [_bootstrap_weights(seed, number) for number in batch.numbers]
        times = torch.stack([counted for counted, _ in pairs])
        keys = torch.tensor([key for _, key in pairs], dtype=torch.float64)
        sketch = cls.empty(values.shape[2])
        # (measure, text, head) with (text, 1 + replicate)
        sketch.sums = torch.einsum("mth,tr->mhr", values.nansum(-1), times.double())
        sketch.counts = torch.einsum("mth,tr->mhr", is_there.sum(-1), times)
        for row, name in enumerate(COUNTED):
            sketch.histogram[row] = _histogram(values[row], bins_of(name).of(values[row]))
        sketch.by_distance, sketch.moments = measured.by_distance, measured.moments
        sketch._count_tokens(measured, batch)
        examples = _examples(measured, numbers, keys)
        largest = examples[..., 0].t().unsqueeze(-1)  # (text, head, 1)
        largest = largest.masked_fill(largest == float("-inf"), float("nan"))
        sketch.strongest_texts = _histogram(largest, SHARE.of(largest.contiguous()))
        sketch.top = _largest(examples)
        sketch.sampled = _sample(examples)
        sketch.sample = _least(torch.stack((keys, numbers.double()), 1))
        return sketch

    def add(self, other: "Sketch") -> None:
        """Add the sums of other texts."""
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        tokens = torch.unique(torch.cat((self.tokens, other.tokens)))
        for name in ("occurrences", "received", "strongest"):
            mine = _spread(getattr(self, name), self.tokens, tokens)
            setattr(self, name, mine + _spread(getattr(other, name), other.tokens, tokens))
        self.tokens = tokens
        self.top = _largest(torch.cat((self.top, other.top), 1))
        self.sampled = _sample(torch.cat((self.sampled, other.sampled), 1))
        self.sample = _least(torch.cat((self.sample, other.sample)))

    def texts(self) -> list[int]:
        """List the numbers of the texts that are examples or in the sample."""
        examples = (self.top[..., 2].flatten(), self.sampled[..., 2].flatten())
        numbers = torch.unique(torch.cat((*examples, self.sample[:, 1])))
        return [int(number) for number in numbers if number >= 0]

    def _count_tokens(self, measured: BatchMeasures, batch: CorpusBatch) -> None:
        real_ids = batch.ids[batch.real]
        self.tokens = torch.unique(real_ids)
        place = torch.searchsorted(self.tokens, real_ids)
        self.occurrences = torch.bincount(place, minlength=len(self.tokens))
        for name, values in (("received", measured.received), ("strongest", measured.strongest)):
            of_tokens = values.double().nan_to_num(0.0).transpose(0, 1)[:, batch.real]
            total = of_tokens.new_zeros(len(of_tokens), len(self.tokens))
            setattr(self, name, total.index_add_(1, place, of_tokens))


def _bootstrap_weights(seed: int, number: int) -> tuple[Tensor, float]:
    """Draw how often a text counts in the whole (once) and in each replicate, and its random
    key."""
    source = seeds.generator(seed, "census", number)
    times = torch.poisson(torch.ones(_REPLICATES), generator=source).long()
    key = torch.rand(1, generator=source, dtype=torch.float64)
    return torch.cat((times.new_ones(1), times)), float(key)


def _histogram(values: Tensor, bins: Tensor) -> Tensor:
    """Count values by head and bin: (text, head, query) both -> (head, bin)."""
    heads = torch.arange(values.shape[1])[None, :, None].expand_as(bins)
    place = (heads * SHARE.number + bins)[~values.isnan()]
    counts = torch.bincount(place, minlength=values.shape[1] * SHARE.number)
    return counts.view(-1, SHARE.number)


def _no_examples(heads: int, number: int) -> Tensor:
    nothing = torch.full((heads, number, 5), -1.0, dtype=torch.float64)
    nothing[..., 0] = float("-inf")
    nothing[..., 1] = float("inf")
    return nothing


def _examples(measured: BatchMeasures, numbers: Tensor, keys: Tensor) -> Tensor:
    """Return the query of each text with the strongest weight: (head, text, 5)."""
    by_query = measured.strongest.nan_to_num(float("-inf")).transpose(0, 1)
    best = by_query.max(-1)  # (head, text)
    strongest_key = measured.strongest_key.transpose(0, 1)
    key = strongest_key.gather(-1, best.indices.unsqueeze(-1)).squeeze(-1)
    columns = (best.values, keys.expand_as(key), numbers.expand_as(key), best.indices, key)
    examples = torch.stack([column.double() for column in columns], -1)
    examples[best.values == float("-inf")] = _no_examples(1, 1)[0, 0]
    return examples


def _largest(examples: Tensor) -> Tensor:
    """Keep the examples of the largest values; among equal ones those of the first texts."""
    by_text = examples[..., 2].sort(dim=1, stable=True).indices
    examples = _taken(examples, by_text)
    order = examples[..., 0].sort(dim=1, descending=True, stable=True).indices
    return _filled(_taken(examples, order[:, :_TOP]), _TOP)


def _sample(examples: Tensor) -> Tensor:
    """Keep in each bin of values the examples with the least random keys."""
    bins = SHARE.of(examples[..., 0].contiguous())
    bins[examples[..., 2] < 0] = SHARE.number
    order = examples[..., 1].sort(dim=1, stable=True).indices
    examples, bins = _taken(examples, order), bins.gather(1, order)
    kept = []
    for bin_ in range(SHARE.number):
        first = (bins != bin_).to(torch.int8).sort(dim=1, stable=True)
        chosen = _taken(examples, first.indices[:, :_SAMPLED]).clone()
        chosen[first.values[:, :_SAMPLED] == 1] = _no_examples(1, 1)[0, 0]
        kept.append(_filled(chosen, _SAMPLED))
    return torch.cat(kept, 1)


def _least(sample: Tensor) -> Tensor:
    return sample[sample[:, 0].argsort(stable=True)[:_SAMPLE]]


def _taken(examples: Tensor, order: Tensor) -> Tensor:
    return examples.gather(1, order.unsqueeze(-1).expand(-1, -1, examples.shape[-1]))


def _filled(examples: Tensor, number: int) -> Tensor:
    """Fill up with places without an example."""
    missing = number - examples.shape[1]
    return torch.cat((examples, _no_examples(len(examples), max(missing, 0))), 1)


def _spread(sums: Tensor, ids: Tensor, among: Tensor) -> Tensor:
    """Spread sums of some ids, (…, id), over more of them."""
    wider = sums.new_zeros(*sums.shape[:-1], len(among))
    wider[..., torch.searchsorted(among, ids)] = sums
    return wider
