"""Join the steps of a cached generation into the result of one pass over all tokens.

Self-attention becomes one triangle, with a row for each query over the keys that it could see;
cross-attention a panel of all queries over the same keys; other values are concatenated. Rows that
a beam search has reordered are traced back; if a cache has dropped old keys, the others keep their
positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from attnlab.errors import WrongUsage, not_none
from attnlab.look.recording.contents import BY_HEAD, HAS_KEYS, MADE, Passed, Store
from attnlab.look.recording.kept_call import KeptCall, KeptMask, working_bytes
from attnlab.look.recording.selection import SiteSelection
from attnlab.look.recording.tokens import StackRead, first_key
from attnlab.sites import site_suffix


def joined_store(store: Store) -> Store:
    """Return a store in which the last generation is one pass."""
    store.check_recorded()
    reads = list(store.reads)
    numbers: dict[int | None, int | None] = {None: None}  # of the last step's reading -> the joined
    passed = {}
    for site in store.passed:
        whole = joined(store, site)
        for number in (whole.query, whole.key):
            if number is not None and number not in numbers:
                numbers[number] = len(reads)
                reads.append(_joined_read(reads, number))
        passed[site] = [replace(whole, query=numbers[whole.query], key=numbers[whole.key])]
    return replace(store, passed=passed, reads=reads)


def joined(store: Store, site: str) -> Passed:
    """Join the steps of the last generation at one site.

    Raises:
        WrongUsage: they do not fit together.
    """
    passed = _last_generation(store, site)
    last = passed[-1]
    if len(passed) == 1:
        return last
    name, firsts = site_suffix(site), []
    for step in passed:
        if step.shape() is None:
            raise WrongUsage(f"{site} was reduced; reduced steps cannot be joined.")
        firsts.append(_first_key(store, step, name))
    steps = _Steps(site, store, passed, firsts)
    if name in ("key", "value"):
        if not any(firsts):
            return last
        return replace(last, held=steps.all_keys(steps.values()))
    if name not in HAS_KEYS:
        return replace(last, held=steps.end_to_end(), gradient=None)
    mask = _joined_mask([step.mask for step in passed if step.mask is not None], firsts)
    held: KeptMask | KeptCall | Tensor | None = mask
    if name in MADE:
        held = steps.call(mask)
    if held is None:
        held = steps.end_to_end()
    return replace(last, held=held, mask=mask, gradient=None)


@dataclass(frozen=True)
class _Steps:
    """The steps of a generation at one site, and the position of the first key of each."""

    site: str
    store: Store
    passed: list[Passed]
    firsts: list[int]

    def values(self) -> list[Tensor]:
        """Return the value of each step."""
        return [step.value(self.site, self.store.budget) for step in self.passed]

    def all_keys(self, keys: Sequence[Tensor]) -> Tensor:
        """Concatenate the new keys of each step, for a last step that no longer holds all."""
        new = []
        for step, step_keys in zip(self.passed, keys, strict=True):
            length = self.store.reads[not_none(step.query)].shape[1]  # its first key is known
            new.append(step_keys[..., -length:, :])
        return torch.cat(new, -2)

    def call(self, mask: KeptMask) -> KeptCall | None:
        """Join the calls of the steps, if all their keys are still held; else None."""
        calls = [step.held for step in self.passed if isinstance(step.held, KeptCall)]
        if len(calls) < len(self.passed):
            return None
        last, budget = calls[-1], self.store.budget
        keys = last.keys
        if any(self.firsts):
            keys = self.all_keys([call.keys for call in calls])
        queries, size = [], 0
        for call, first in zip(calls, self.firsts, strict=True):
            step_keys = call.keys
            is_there = torch.equal(step_keys, keys[..., first : first + step_keys.shape[-2], :])
            if call.scale != last.scale or not is_there:
                return None
            queries.append(call.query)
            size += call.query.nbytes
        budget.allow(self.site, size)
        whole = torch.cat(queries, 2)
        return last._replace(query=whole, key=keys, mask=mask)

    def end_to_end(self) -> Tensor:
        """Concatenate values; weights and scores are empty at the keys that a step did not have."""
        values, budget = self.values(), self.store.budget
        last = values[-1]
        if last.dim() < 3:
            raise WrongUsage(f"{self.site} has no positions, so its steps cannot be joined.")
        length = sum(value.shape[-2] for value in values)
        whole = (*last.shape[:-2], length, last.shape[-1] + self.firsts[-1])
        budget.allow(self.site, working_bytes(whole, last.dtype))
        made = last.new_zeros(whole)
        if self.site.endswith("scores"):
            made.fill_(float("-inf"))
        start = 0
        for value, first in zip(values, self.firsts, strict=True):
            made[..., start : start + value.shape[-2], first : first + value.shape[-1]] = value
            start += value.shape[-2]
        return made


def _last_generation(store: Store, site: str) -> list[Passed]:
    """Return the values of the last generation, with their rows in the order of the last."""
    entries = store.of(site)
    steps = [entries[-1]]
    for entry in reversed(entries[:-1]):
        number = steps[-1].query
        if number is None:
            break
        before = store.reads[number].before
        if before is None or entry.query != before:
            break
        steps.append(entry)
    reads = [store.reads[step.query] for step in steps if step.query is not None]
    if reads and reads[-1].offset:
        raise WrongUsage(
            f"the steps at {site} cannot be joined: the first {reads[-1].offset} "
            "positions were not recorded. Record a generation from its beginning; speculative "
            "decoding, as with prompt lookup, has no steps to join."
        )
    joined = steps[:1]
    for step, rows in zip(steps[1:], _row_orders(reads)[1:], strict=True):
        joined.append(SiteSelection(site, None, None, rows, store.budget).passed(step))
    return joined[::-1]


def _row_orders(reads: Sequence[StackRead]) -> list[list[int] | None]:
    """Return the rows of each read, the last one first, that the rows of the last continue; None
    for the same rows."""
    orders: list[list[int] | None] = []
    rows: list[int] | None = None
    for read in reads:
        orders.append(rows)
        if read.rows is not None:
            rows = list(map(read.row_before, rows or range(read.shape[0])))
    return orders


def _first_key(store: Store, step: Passed, name: str) -> int:
    """Return the position of the first key of a step."""
    if step.query is None or step.key != step.query or name not in BY_HEAD:
        return 0
    read, (_, num_keys) = store.reads[step.query], step.lengths(name)
    return first_key(read.offset + read.shape[1], num_keys, read.offset)


def _joined_read(reads: Sequence[StackRead], number: int) -> StackRead:
    """Join the reads of the steps up to one: the ids and the padding of its rows."""
    chain = [reads[number]]
    while chain[-1].before is not None:
        chain.append(reads[chain[-1].before])
    length, is_padded = 0, False
    ids, real, places = [], [], []
    for read, rows in zip(reversed(chain), reversed(_row_orders(chain)), strict=True):
        kept_rows = slice(None) if rows is None else rows
        known = torch.ones(read.shape, dtype=torch.bool)
        if read.real is not None:
            known, is_padded = read.real, True
        if read.ids is not None:
            ids.append(read.ids[kept_rows])
        real.append(known[kept_rows])
        text = torch.full((*read.shape, 3), -1)
        places.append((text if read.places is None else read.places)[kept_rows])
        length += read.shape[1]
    return replace(
        chain[0],
        ids=torch.cat(ids, 1) if len(ids) == len(chain) else None,
        shape=(chain[0].shape[0], length),
        offset=chain[-1].offset,
        real=torch.cat(real, 1) if is_padded else None,
        before=None,
        rows=None,
        places=torch.cat(places, 1) if any(read.places is not None for read in chain) else None,
    )


def _joined_mask(masks: Sequence[KeptMask], firsts: Sequence[int]) -> KeptMask:
    """Stack the rows of all steps; keys that a step did not have are masked."""
    last, num_queries = masks[-1], sum(mask.num_queries for mask in masks)
    if not any(firsts) and (_is_panel(masks) or _is_triangle(masks)):
        return last._replace(num_queries=num_queries)
    num_keys = last.num_keys + firsts[-1]
    written = []
    for mask in masks:
        rows = mask.part()
        if rows is None:
            rows = torch.ones(1, 1, mask.num_queries, mask.num_keys, dtype=torch.bool)
        written.append(rows)
    whole = _stacked(written, firsts, num_keys)
    while whole.dim() > max(len(mask.shape) for mask in masks):
        whole = whole[0]
    return last._replace(mask=whole, num_queries=num_queries, num_keys=num_keys)


def _stacked(masks: Sequence[Tensor], firsts: Sequence[int], num_keys: int) -> Tensor:
    """Stack the rows of masks; the result is added to scores if one of the masks is."""
    blocked: float | bool = False
    floating = [mask.dtype for mask in masks if mask.is_floating_point()]
    if floating:
        blocked = float("-inf")
        dtype = max(floating, key=lambda dtype: dtype.itemsize)
        masks = [_added(mask, dtype) for mask in masks]
    rows = []
    for mask, first in zip(masks, firsts, strict=True):
        room = (first, num_keys - first - mask.shape[-1])
        rows.append(pad(mask, room, value=blocked))
    batch = max(row.shape[0] for row in rows)
    head = max(row.shape[1] for row in rows)
    return torch.cat([row.expand(batch, head, -1, -1) for row in rows], 2)


def _is_panel(masks: Sequence[KeptMask]) -> bool:
    """Do all steps have the same keys, whatever the query?"""
    last, rows = masks[-1], [mask.mask for mask in masks]
    if any(mask.num_keys != last.num_keys for mask in masks):
        return False
    if isinstance(last.mask, Tensor) and last.mask.shape[-2] == 1:
        return all(isinstance(row, Tensor) and torch.equal(row, last.mask) for row in rows)
    return all(row is None for row in rows)


def _is_triangle(masks: Sequence[KeptMask]) -> bool:
    """Is each step causal, with all keys from the first on?"""
    num_keys = 0
    for mask in masks:
        num_keys += mask.num_queries
        if not isinstance(mask.mask, str) or mask.num_keys != num_keys:
            return False
    return True


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask as numbers that are added to the scores."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, float("-inf"))
