"""The hook that measures every chosen head on a batch of texts, some rows of weights at a time."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from attnlab.errors import CouldNotRun
from attnlab.look.corpus.measures import Measure, Rows
from attnlab.look.recording.kept_call import KeptCall, KeptMask
from attnlab.shapes import shape_text
from attnlab.sites import AttentionCall, Hook

__all__ = ["Enough", "Measurer"]

_BLOCK = 2**22  # weights at a time


class Enough(BaseException):
    """Raised when every chosen head is measured, to skip the rest of the model; not an
    `Exception`."""


class Measurer(Hook):
    """Measures the heads of a model on one batch.

    Args:
        heads: which heads of which attentions.
        measure: what is measured.
        ids, real: (batch, length), and what is not padding.
        names: the name of an id.
    """

    changes = False
    one_thread = True

    def __init__(
        self,
        heads: Mapping[str, Sequence[int]],
        measure: Measure,
        ids: Tensor,
        real: Tensor,
        names: Callable[[int], str],
    ) -> None:
        self._heads, self._measure, self._names = heads, measure, names
        self._ids, self._real = ids, real
        self._found: dict[str, tuple[Tensor, Tensor]] = {}
        self._call: AttentionCall | None = None

    def wants(self, site: str) -> bool:
        """Want the weights of chosen heads."""
        part, _, own = site.rpartition(".")
        return own == "weights" and part in self._heads

    def watch(self, part: str, call: AttentionCall) -> None:
        """Measure an attention whose weights can be computed from queries and keys."""
        if part not in self._heads:
            return
        self._call = call
        expected = (*self._ids.shape, self._ids.shape[1])
        if (call.query.shape[0], call.query.shape[2], call.key.shape[2]) != expected:
            raise CouldNotRun(
                f"{part} should have {self._ids.shape[1]} queries and as many keys, in "
                f"{len(self._ids)} texts; its queries are {shape_text(call.query.shape)}, its "
                f"keys {shape_text(call.key.shape)}."
            )
        if not call.is_open:
            heads = list(self._heads[part])
            query, key = call.query[:, heads], _keys_of(call, heads)
            kept = KeptCall(query, key, self._mask(call, heads), call.scale)
            self._take(part, lambda rows: kept.make("weights", queries=rows), kept.mask)

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Measure weights that the model computes explicitly."""
        part, heads = site.rpartition(".")[0], list(self._heads[site.rpartition(".")[0]])
        assert self._call is not None
        chosen = value[:, heads]
        self._take(part, lambda rows: chosen[:, :, rows], self._mask(self._call, heads))
        return value

    def found(self) -> tuple[Tensor, Tensor]:
        """Return values and keys of all chosen heads, in their order: (text, head, query)."""
        values, keys = zip(*(self._found[part] for part in self._heads), strict=True)
        return torch.cat(values, 1), torch.cat(keys, 1)

    def _mask(self, call: AttentionCall, heads: Sequence[int]) -> KeptMask:
        mask = call.mask
        if isinstance(mask, Tensor) and mask.dim() > 2 and mask.shape[-3] > 1:
            mask = mask[..., list(heads), :, :]
        return KeptMask(mask, call.query.shape[2], call.key.shape[2], call.query.device)

    def _take(self, part: str, rows_of: Callable[[slice], Tensor], mask: KeptMask) -> None:
        batch, length = self._ids.shape
        step = max(1, _BLOCK // max(1, batch * len(self._heads[part]) * length))
        values, keys = [], []
        for first in range(0, length, step):
            queries = slice(first, min(first + step, length))
            weights = rows_of(queries).detach()
            if weights.dtype in (torch.float16, torch.bfloat16):
                weights = weights.float()
            allowed = self._allowed(mask, queries)
            rows = Rows(weights, self._ids, self._real, allowed, first, self._names)
            value, key = self._measure(rows)
            is_padding = ~self._real[:, None, queries]
            values.append(value.masked_fill(is_padding, float("nan")).cpu())
            keys.append(key.expand(value.shape).cpu())
        self._found[part] = torch.cat(values, -1), torch.cat(keys, -1)
        if len(self._found) == len(self._heads):
            raise Enough

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
