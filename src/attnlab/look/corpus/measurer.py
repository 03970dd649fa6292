"""The hook that measures every chosen head on a batch of texts, some rows of weights at a time."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from attnlab.errors import CouldNotRun
from attnlab.look.collector import Collector
from attnlab.look.corpus.measures import Measure, Rows
from attnlab.look.recording.kept_call import KeptCall, KeptMask
from attnlab.shapes import shape_text
from attnlab.sites import AttentionCall

_BLOCK = 2**22  # weights at a time


class Measurer(Collector):
    """Measures the heads of a model on one batch.

    Args:
        heads: which heads of which attentions.
        measure: what is measured.
        ids, real: (batch, length), and what is not padding.
        names: the name of an id.
    """

    def __init__(
        self,
        heads: Mapping[str, Sequence[int]],
        measure: Measure,
        ids: Tensor,
        real: Tensor,
        names: Callable[[int], str],
    ) -> None:
        super().__init__(heads)
        self._heads, self._measure, self._names = heads, measure, names
        self._ids, self._real = ids, real
        self._found: dict[str, tuple[Tensor, Tensor]] = {}

    def check(self, part: str, call: AttentionCall) -> None:
        """Raise unless an attention has a query and a key for each token of the batch."""
        expected = (*self._ids.shape, self._ids.shape[1])
        if (call.query.shape[0], call.query.shape[2], call.key.shape[2]) != expected:
            raise CouldNotRun(
                f"{part} should have {self._ids.shape[1]} queries and as many keys, in "
                f"{len(self._ids)} texts; its queries are {shape_text(call.query.shape)}, its "
                f"keys {shape_text(call.key.shape)}."
            )

    def collect(self, part: str, call: AttentionCall, weights: Tensor | None) -> None:
        """Measure the chosen heads of an attention, some rows of its weights at a time."""
        heads = list(self._heads[part])
        mask = call.mask
        if isinstance(mask, Tensor) and mask.dim() > 2 and mask.shape[-3] > 1:
            mask = mask[..., heads, :, :]
        kept_mask = KeptMask(mask, call.query.shape[2], call.key.shape[2], call.query.device)
        rows_of: Callable[[slice], Tensor]
        if weights is None:
            kept = KeptCall(call.query[:, heads], _keys_of(call, heads), kept_mask, call.scale)
            rows_of = lambda queries: kept.make("weights", queries=queries)  # noqa: E731
        else:
            chosen = weights[:, heads]
            rows_of = lambda queries: chosen[:, :, queries]  # noqa: E731
        batch, length = self._ids.shape
        step = max(1, _BLOCK // max(1, batch * len(heads) * length))
        values, keys = [], []
        for first in range(0, length, step):
            queries = slice(first, min(first + step, length))
            found = rows_of(queries).detach()
            if found.dtype in (torch.float16, torch.bfloat16):
                found = found.float()
            allowed = self._allowed(kept_mask, queries)
            rows = Rows(found, self._ids, self._real, allowed, first, self._names)
            value, key = self._measure(rows)
            is_padding = ~self._real[:, None, queries]
            values.append(value.masked_fill(is_padding, float("nan")).cpu())
            keys.append(key.expand(value.shape).cpu())
        self._found[part] = torch.cat(values, -1), torch.cat(keys, -1)

    def found(self) -> tuple[Tensor, Tensor]:
        """Return values and keys of all chosen heads, in their order: (text, head, query)."""
        values, keys = zip(*(self._found[part] for part in self._heads), strict=True)
        return torch.cat(values, 1), torch.cat(keys, 1)

    def _allowed(self, mask: KeptMask, queries: slice) -> Tensor:
        """Return which keys may be attended to: (batch, head or 1, query, key)."""
        real = self._real[:, None, None, :]
        part = mask.part(queries=queries)
        if part is None:
            return real.expand(-1, -1, queries.stop - queries.start, -1)
        return real & (part if part.dtype == torch.bool else part > torch.finfo(part.dtype).min / 2)


def _keys_of(call: AttentionCall, heads: Sequence[int]) -> Tensor:
    share = call.query.shape[1] // call.key.shape[1]
    return call.key[:, [head // share for head in heads]]
