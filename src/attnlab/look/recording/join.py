"""Join the steps of a cached generation: what one pass over all tokens would have shown.

Self-attention becomes one triangle, its rows as long as what each query could see; cross-attention
a panel of all queries over the same keys; everything else is laid end to end. Where a beam search
has put the rows in another order, each row is followed back to where it came from; where a cache
has let go of old keys, the others keep their places.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import pad

from attnlab.errors import WrongUsage
from attnlab.look.recording.budget import Budget
from attnlab.look.recording.contents import HAS_KEYS, MADE, Passed, Store
from attnlab.look.recording.kept_call import KeptCall, KeptMask, working_bytes
from attnlab.look.recording.selection import Pick
from attnlab.look.recording.tokens import Read, first_key


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
    steps, budget = _steps(store, site), store.budget
    last, name = steps[-1], site.rpartition(".")[2]
    if len(steps) == 1:
        return last
    if any(step.shape() is None for step in steps):
        raise WrongUsage(f"{site} was reduced; what is kept of single steps cannot be joined.")
    firsts = [_first_key(store, step, name) for step in steps]
    if name in ("key", "value"):
        if not any(firsts):
            return last
        keys = [step.value(site, budget) for step in steps]
        return replace(last, held=_all_keys(keys, store, steps))
    if name not in HAS_KEYS:
        return replace(last, held=_laid_out(site, steps, budget, firsts), gradient=None)
    mask = _joined_mask([step.mask for step in steps if step.mask is not None], firsts)
    held: KeptMask | KeptCall | Tensor | None = mask
    if name in MADE:
        held = _joined_call(site, steps, mask, store, firsts)
    if held is None:
        held = _laid_out(site, steps, budget, firsts)
    return replace(last, held=held, mask=mask, gradient=None)


def _steps(store: Store, site: str) -> list[Passed]:
    """Return the values of the last generation, with their rows in the order of the last."""
    entries = store.of(site)
    steps = [entries[-1]]
    for entry in reversed(entries[:-1]):
        number = steps[-1].query
        before = None if number is None else store.reads[number].before
        if before is None or entry.query != before:
            break
        steps.append(entry)
    reads = [store.reads[step.query] for step in steps if step.query is not None]
    if reads and reads[-1].offset:
        raise WrongUsage(
            f"the steps at {site} cannot be joined: the first {reads[-1].offset} "
            "positions passed unrecorded. Record a generation from its beginning; one that "
            "guesses ahead and goes back, as with prompt lookup, has no steps to join."
        )
    found = steps[:1]
    for step, rows in zip(steps[1:], _row_orders(reads)[1:], strict=True):
        found.append(Pick(site, None, None, rows, store.budget).passed(step))
    return found[::-1]


def _row_orders(reads: Sequence[Read]) -> list[list[int] | None]:
    """Return the rows of each reading, the last one first, from which the rows of the last come;
    None for the same rows."""
    orders: list[list[int] | None] = []
    rows: list[int] | None = None
    for read in reads:
        orders.append(rows)
        if read.rows is not None:
            rows = [read.row_before(row) for row in rows or range(read.shape[0])]
    return orders


def _first_key(store: Store, step: Passed, name: str) -> int:
    """Return the position of the first key of a step."""
    if step.query is None or step.key != step.query:
        return 0
    read, shape = store.reads[step.query], step.shape()
    assert shape is not None
    if name in ("key", "value"):
        num_keys = shape[-2]
    elif name in HAS_KEYS:
        num_keys = step.held.num_keys if isinstance(step.held, KeptMask) else shape[-1]
    else:
        return 0
    return first_key(read.offset + read.shape[1], num_keys, read.offset)


def _all_keys(keys: Sequence[Tensor], store: Store, steps: Sequence[Passed]) -> Tensor:
    """Concatenate the new keys of each step, if the last one no longer holds all."""
    lengths = [store.reads[step.query].shape[1] for step in steps if step.query is not None]
    new = [each[..., -length:, :] for each, length in zip(keys, lengths, strict=True)]
    found = torch.cat(new, -2)
    store.budget.made(found)
    return found


def _joined_read(reads: Sequence[Read], number: int) -> Read:
    """Join what was read in the steps up to one: the ids and the padding of its rows."""
    chain = [reads[number]]
    while chain[-1].before is not None:
        chain.append(reads[chain[-1].before])
    ids, real = [], []
    for read, rows in zip(reversed(chain), reversed(_row_orders(chain)), strict=True):
        own = slice(None) if rows is None else rows
        if read.ids is not None:
            ids.append(read.ids[own])
        known = torch.ones(read.shape, dtype=torch.bool) if read.real is None else read.real
        real.append(known[own])
    return chain[0]._replace(
        ids=torch.cat(ids, 1) if len(ids) == len(chain) else None,
        shape=(chain[0].shape[0], sum(read.shape[1] for read in chain)),
        offset=chain[-1].offset,
        real=torch.cat(real, 1) if any(read.real is not None for read in chain) else None,
        before=None,
        rows=None,
    )


def _joined_mask(masks: Sequence[KeptMask], firsts: Sequence[int]) -> KeptMask:
    """Put the rows of all steps below one another; keys that a step did not have are masked."""
    last, num_queries = masks[-1], sum(mask.num_queries for mask in masks)
    if not any(firsts) and (_is_panel(masks) or _is_triangle(masks)):
        return last._replace(num_queries=num_queries)
    num_keys = last.num_keys + firsts[-1]
    whole = _stacked([_written_out(mask) for mask in masks], firsts, num_keys)
    while whole.dim() > max(len(mask.shape) for mask in masks):
        whole = whole[0]
    return last._replace(mask=whole, num_queries=num_queries, num_keys=num_keys)


def _stacked(masks: Sequence[Tensor], firsts: Sequence[int], num_keys: int) -> Tensor:
    """Put the rows of masks below one another, as numbers to add if one of them is."""
    floating = [mask.dtype for mask in masks if mask.is_floating_point()]
    if floating:
        dtype = max(floating, key=lambda each: each.itemsize)
        masks = [_added(mask, dtype) for mask in masks]
    rows = []
    for mask, first in zip(masks, firsts, strict=True):
        room = (first, num_keys - first - mask.shape[-1])
        rows.append(pad(mask, room, value=float("-inf") if floating else False))
    batch, head = (max(row.shape[axis] for row in rows) for axis in (0, 1))
    return torch.cat([row.expand(batch, head, -1, -1) for row in rows], 2)


def _is_panel(masks: Sequence[KeptMask]) -> bool:
    """Do all steps look at the same keys, whatever the query?"""
    last = masks[-1]
    if any(mask.num_keys != last.num_keys for mask in masks):
        return False
    if isinstance(last.mask, Tensor) and last.mask.shape[-2] == 1:
        return all(
            isinstance(mask.mask, Tensor) and torch.equal(mask.mask, last.mask) for mask in masks
        )
    return all(mask.mask is None for mask in masks)


def _is_triangle(masks: Sequence[KeptMask]) -> bool:
    """Does each step look at all keys up to its queries, and is its first key the first of all?"""
    return (
        all(isinstance(mask.mask, str) for mask in masks)
        and masks[0].num_keys == masks[0].num_queries
        and all(two.num_keys == one.num_keys + two.num_queries for one, two in pairwise(masks))
    )


def _written_out(mask: KeptMask) -> Tensor:
    rows = mask.part()
    return torch.ones(1, 1, mask.num_queries, mask.num_keys).bool() if rows is None else rows


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask as numbers that are added to the scores."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, float("-inf"))


def _joined_call(
    site: str, steps: Sequence[Passed], mask: KeptMask, store: Store, firsts: Sequence[int]
) -> KeptCall | None:
    """Return the call that the steps' calls make up, if the last one still holds all their keys."""
    calls = [step.held for step in steps if isinstance(step.held, KeptCall)]
    if len(calls) < len(steps):
        return None
    last, budget = calls[-1], store.budget
    keys = last.keys
    if any(firsts):
        keys = _all_keys([call.keys for call in calls], store, steps)
    for call, first in zip(calls, firsts, strict=True):
        own = call.keys
        is_there = torch.equal(own, keys[..., first : first + own.shape[-2], :])
        if call.scale != last.scale or not is_there:
            return None
    queries = [call.query for call in calls]
    budget.allow(site, sum(query.nbytes for query in queries))
    whole = torch.cat(queries, 2)
    budget.made(whole)
    return last._replace(query=whole, key=keys, mask=mask)


def _laid_out(site: str, steps: Sequence[Passed], budget: Budget, firsts: Sequence[int]) -> Tensor:
    """Put values end to end; weights and scores with nothing for the keys that a step did not
    have."""
    values: list[Tensor] = [step.value(site, budget) for step in steps]
    last, name = values[-1], site.rpartition(".")[2]
    if last.dim() < 3:
        raise WrongUsage(f"{site} has no positions, so that steps cannot be joined there.")
    width = last.shape[-1] + firsts[-1]
    whole = (*last.shape[:-2], sum(value.shape[-2] for value in values), width)
    budget.allow(site, working_bytes(whole, last.dtype))
    made = last.new_full(whole, float("-inf") if name == "scores" else 0.0)
    start = 0
    for value, first in zip(values, firsts, strict=True):
        made[..., start : start + value.shape[-2], first : first + value.shape[-1]] = value
        start += value.shape[-2]
    budget.made(made)
    return made
